"""Raises the score of a turn by its conversation: its neighbours, its session, its speaker and its time.

An answer is often next to the words of the question and need not repeat them. So a turn adds a share of its score to
its neighbours and its session. If the question names a speaker or a time, the turns of that speaker or time also gain
a share of their score. Each share is a round number from the middle of a range. Within this range, the results on the
development corpora hardly change.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from agent_memory_log.recall.analysis import Analysis
from agent_memory_log.recall.columns import Column, Flags, Floats, Numbers
from agent_memory_log.recall.documents import Document
from agent_memory_log.recall.questions import ASSISTANT, USER, Question
from agent_memory_log.recall.words import fold, words

BESIDE: Final = 0.25
"""The share of a turn's score that the turn before it and the turn after it gain."""

ANSWER: Final = 0.5
"""The additional share that the next turn gains if a turn is a question."""

REACH: Final = 4
"""The number of turns before a turn, and after it, that gain from the turn."""

FADING: Final = 40.0
"""The number of words between two turns that reduces the share to 1/e, about a third.

Several short messages in a row are often one remark, so short messages reduce the share little.
"""

ASKING: Final = 0.2
"""The loss of a turn that is a question, as a share of its score. Such a turn seldom holds the answer."""

SESSION: Final = 0.25
"""The gain of each turn of a talk (see ``SILENCE``), as a share of the talk's score.

A talk's score is the sum of its best scores for each word of the question.
"""

SPEAKER: Final = 0.6
"""The gain of a turn if the question names its speaker, as a share of its score."""

ROLE: Final = 0.25
"""The gain of a turn of the user or the assistant if the question asks about that role, as a share of its score."""

NAME: Final = 0.2
"""The weight of a speaker's name as a word of the question. Speakers seldom say their own name."""

WHEN: Final = 0.5
"""The gain of a text that mentions a time, as a share of its score, if the question asks for a time."""

SPAN: Final = 0.5
"""The gain of a text from a time that the question names, as a share of its score."""

SPAN_ALONE: Final = 0.1
"""The additional gain of such a text, even if it shares no word with the question.

All texts of a day may answer a question about that day.
"""

SILENCE: Final = 6 * 3_600.0
"""The seconds without a turn, about a night, that end a talk. The session's next turn begins a new talk.

A run may hold months of talks.
"""

_NONE: Final = -1
"""The number that is stored in place of a document number if a turn has no neighbour."""

_NO_ROLE: Final = 0
_ROLES: Final = {USER: 1, ASSISTANT: 2}
"""The numbers of the roles. Turns of people who are named otherwise have no role."""

_NO_TALK: Final = 0
"""The talk number of turns without a session."""


class Turn(msgspec.Struct, frozen=True):
    """The properties of a document that its conversation needs.

    Attributes:
        session: The session, or ``""``.
        position: The position in the session and the document's id, which order the turns of a session.
        speaker: The name of the speaker.
        time: The time in seconds since 1970, or NaN if it is unknown.
        question: True if the text is a question.
        timed: True if the text mentions a time.
        fade: The factor by which this turn reduces the gain that passes over it to the next turn.
    """

    session: str
    position: tuple[int, str]
    speaker: str
    time: float
    question: bool
    timed: bool
    fade: float


def turn_of(document: Document, analysis: Analysis) -> Turn:
    """Return the turn of a document."""
    return Turn(
        document.session,
        (document.position, document.id),
        document.speaker,
        math.nan if document.time is None else document.time.timestamp(),
        analysis.question,
        analysis.timed,
        math.exp(-analysis.length / FADING),
    )


class Conversations:
    """The sessions and speakers of documents, by document number. Not safe for concurrent use by several threads.

    The turns of a session are ordered by their positions. A turn at the end of a session is added in
    constant time; any other turn needs a search. A pause longer than ``SILENCE`` divides a session into talks. Turns
    raise each other's scores only within a talk.
    """

    def __init__(self) -> None:
        self._positions: list[tuple[int, str]] = []
        self._before = Column(np.int32)
        self._after = Column(np.int32)
        self._question = Column(np.bool_)
        self._timed = Column(np.bool_)
        self._time = Column(np.float64)
        self._fade = Column(np.float64)
        self._session = Column(np.int32)
        self._sessions: dict[str, int] = {"": 0}
        self._turns: list[list[int]] = [[]]
        self._talk = Column(np.int32)
        self._talks = 1
        self._speaker = Column(np.int32)
        self._speakers: dict[str, int] = {}
        self._spoken: list[int] = []
        self._names: dict[str, list[int]] = {}
        self._role = Column(np.int8)

    def append(self, turn: Turn) -> None:
        """Add the turn of the next document number."""
        number = len(self._positions)
        self._positions.append(turn.position)
        self._question.append(turn.question)
        self._timed.append(turn.timed)
        self._time.append(turn.time)
        self._fade.append(turn.fade)
        self._speaker.append(self._speaker_number(turn.speaker))
        self._role.append(_ROLES.get(turn.speaker, _NO_ROLE))
        self._before.append(_NONE)
        self._after.append(_NONE)
        session = self._sessions.setdefault(turn.session, len(self._turns))
        if session == len(self._turns):
            self._turns.append([])
        self._session.append(session)
        self._talk.append(_NO_TALK)
        if session:
            self._link(number, self._turns[session])

    def _speaker_number(self, name: str) -> int:
        speaker = self._speakers.get(name)
        if speaker is None:
            speaker = self._speakers[name] = len(self._speakers)
            self._spoken.append(0)
            for word in dict.fromkeys(words(fold(name))):
                self._names.setdefault(word, []).append(speaker)
        self._spoken[speaker] += 1
        return speaker

    def _link(self, number: int, turns: list[int]) -> None:
        position = self._positions[number]
        last = not turns or self._positions[turns[-1]] < position
        at = len(turns) if last else bisect_left(turns, position, key=self._positions.__getitem__)
        turns.insert(at, number)
        if at > 0:
            self._join(turns[at - 1], number)
        if at + 1 < len(turns):
            self._join(number, turns[at + 1])
        self._divide(turns, at)

    def _join(self, before: int, after: int) -> None:
        beside = not self._time.values[after] - self._time.values[before] > SILENCE
        self._after.values[before] = after if beside else _NONE
        self._before.values[after] = before if beside else _NONE

    def _divide(self, turns: Sequence[int], at: int) -> None:
        """Set the talks of the turns from index ``at``. Stop at the first turn whose talk does not change."""
        talks, before = self._talk.values, self._before.values
        previous = int(talks[turns[at - 1]]) if at else _NO_TALK
        for index in range(at, len(turns)):  # a slice would copy a long session for each turn that arrives late
            turn = turns[index]
            old = int(talks[turn])
            if before[turn] != _NONE:
                new = previous
            elif old in {_NO_TALK, previous}:
                new = self._talks
                self._talks += 1
            else:
                new = old
            if new == old:
                return
            talks[turn] = previous = new

    def remove(self, number: int) -> None:
        """Remove a turn. The turns before and after it become neighbours."""
        self._spoken[int(self._speaker.values[number])] -= 1
        session = int(self._session.values[number])
        if session:
            self._talk.values[number] = _NO_TALK
            turns = self._turns[session]
            at = bisect_left(turns, self._positions[number], key=self._positions.__getitem__)
            del turns[at]
            if at < len(turns):
                if at:
                    self._join(turns[at - 1], turns[at])
                else:
                    self._before.values[turns[at]] = _NONE
                self._divide(turns, at)
            elif at:
                self._after.values[turns[at - 1]] = _NONE

    def keeping(self, numbers: Sequence[int]) -> Conversations:
        """Return conversations with only these turns, renumbered in their order."""
        remaining = Conversations()
        sessions, speakers = list(self._sessions), list(self._speakers)
        for number in numbers:
            remaining.append(
                Turn(
                    sessions[int(self._session.values[number])],
                    self._positions[number],
                    speakers[int(self._speaker.values[number])],
                    float(self._time.values[number]),
                    bool(self._question.values[number]),
                    bool(self._timed.values[number]),
                    float(self._fade.values[number]),
                )
            )
        return remaining

    @property
    def has_role(self) -> Flags:
        """True for each document that is a turn of a user or an assistant, by document number."""
        has_role: Flags = self._role.values != _NO_ROLE
        return has_role

    @property
    def times(self) -> Floats:
        """The time of each document in seconds since 1970, by document number. NaN means unknown."""
        return self._time.values

    def position(self, number: int) -> tuple[int, str]:
        """Return the position of a turn in its session, and the document's id."""
        return self._positions[number]

    def weights(self, question: Question) -> dict[str, float]:
        """Return the weight of each word of the question that is the name of a speaker."""
        return {word: NAME for word, _ in question.words if self._speakers_named(word)}

    def shared(self, matches: Iterable[Sequence[tuple[Numbers, Floats]]]) -> Floats:
        """Return the score of each talk, by talk number.

        ``matches`` has an item for each word of the question: documents and their scores. The score of a talk is the
        sum of its best scores for each word.
        """
        talks = self._talk.values
        shared = np.zeros(self._talks)
        for match in filter(None, matches):
            best = np.zeros(self._talks)
            for documents, scores in match:
                np.maximum.at(best, talks[documents], scores)
            shared += best
        shared[_NO_TALK] = 0
        return shared

    def lifts(self, question: Question, scores: Floats, shared: Floats) -> dict[str, Floats]:
        """Return the gains of all documents for each part of the ranking.

        The keys are the names of the parts. Each array has the gain of each document, by document number.

        Args:
            question: The question.
            scores: The score of each document by words and vectors. It is 0 for removed documents.
            shared: The score of each talk, from the method ``shared``.
        """
        asks = self._question.values & (self._role.values != _ROLES[USER])  # a user states facts in requests
        near = self._near(scores)
        together = SESSION * shared[self._talk.values]
        total = scores + near + together
        lifts = {"asking": -ASKING * total * asks, "neighbours": near, "session": together}
        speakers = [speaker for word, _ in question.words for speaker in self._speakers_named(word)]
        if speakers:
            in_question = np.zeros(len(self._speakers), np.bool_)
            in_question[speakers] = True
            lifts["speaker"] = SPEAKER * total * in_question[self._speaker.values]
        if question.role:
            lifts["role"] = ROLE * total * (self._role.values == _ROLES[question.role])
        if question.asks_for_time or question.spans:
            lifts["time"] = WHEN * total * self._timed.values if question.asks_for_time else np.zeros(len(scores))
            for start, end in question.spans:
                within = (self._time.values >= start) & (self._time.values < end)
                lifts["time"] += within * (SPAN * total + SPAN_ALONE)
        return lifts

    def _near(self, scores: Floats) -> Floats:
        """Return the gain of each turn from its neighbours."""
        near = np.zeros(len(scores))
        lending: Numbers = np.flatnonzero(scores).astype(np.int32)
        fade = self._fade.values
        for beside in (self._after.values, self._before.values):
            turns, lent = lending, BESIDE * scores[lending]
            for _ in range(REACH):
                turns = beside[turns]
                exists = turns != _NONE
                turns, lent = turns[exists], lent[exists]
                near[turns] += lent
                lent = lent * fade[turns]
        asks = self._question.values & (self._role.values != _ROLES[USER])  # an assistant's answer repeats the request
        asking = lending[asks[lending] & (self._after.values[lending] != _NONE)]
        near[self._after.values[asking]] += ANSWER * scores[asking]
        return near

    def _speakers_named(self, word: str) -> Iterable[int]:
        return [speaker for speaker in self._names.get(word, ()) if self._spoken[speaker]]
