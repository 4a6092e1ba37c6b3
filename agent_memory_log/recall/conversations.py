"""What a conversation adds to its turns: the ones beside a match, its session, who is named, when it was.

Evidence is often next to where the words are: the answer to a question need not repeat it. So a turn lends a share of
its score to its neighbours and its session, and what fits the question otherwise gains a share of what it has. The
shares are round numbers from the middle of where it matters little what they are.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from agent_memory_log.recall.analysis import Analysis
from agent_memory_log.recall.columns import Column, Floats, Numbers
from agent_memory_log.recall.documents import Document
from agent_memory_log.recall.questions import Question
from agent_memory_log.recall.words import fold, words

BESIDE: Final = 0.25
"""The share of its score that a turn lends to the one before it and to the one after it."""

ANSWER: Final = 0.5
"""What it lends to the one after it besides, when it is a question."""

REACH: Final = 4
"""How many turns before it and after it a turn lends to."""

FADING: Final = 40.0
"""Words between two turns by which that share falls to a third (to 1/e): a burst of short messages is one remark."""

ASKING: Final = 0.2
"""What a turn loses that asks something, as a share of what it has: it has a question's words and not the answer."""

SESSION: Final = 0.25
"""What a talk lends to each of its turns: a share of what its best turn for each word of the question has, together."""

SPEAKER: Final = 0.6
"""What a turn gains whose speaker is named, as a share of what it has."""

NAME: Final = 0.2
"""The weight of a speaker's name as a word: those who are asked about seldom say their own name."""

WHEN: Final = 0.5
"""What a text gains that speaks of time, when a time is asked for."""

SPAN: Final = 0.5
"""What a text gains that is from a time the question names."""

SPAN_ALONE: Final = 0.1
"""What it has even without a word of the question: asked what was said that day, all of that day is an answer."""

SILENCE: Final = 6 * 3_600.0
"""Seconds without a word, about a night, after which a session is another talk: a run may hold months of them."""

_NONE: Final = -1
"""The number of no document."""

_NO_TALK: Final = 0
"""The talk of what is of no session."""


class Turn(msgspec.Struct, frozen=True):
    """What of a document matters here.

    ``time`` is in seconds, NaN when it is unknown; ``fade`` is what is left, behind it, of what a turn before it lends.
    """

    session: str
    place: tuple[int, str]
    speaker: str
    time: float
    question: bool
    timed: bool
    fade: float


def turn_of(document: Document, analysis: Analysis) -> Turn:
    """The turn that a document is."""
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
    """The sessions and speakers of documents, by number. Not for several threads at once.

    A turn goes where its position says: at the end of a session that costs nothing, elsewhere a search in it. Where it
    was silent for long, a session falls into talks, each as if it were a session of its own.
    """

    def __init__(self) -> None:
        self._places: list[tuple[int, str]] = []
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

    def append(self, turn: Turn) -> None:
        """Add the next number's turn."""
        number = len(self._places)
        self._places.append(turn.place)
        self._question.append(turn.question)
        self._timed.append(turn.timed)
        self._time.append(turn.time)
        self._fade.append(turn.fade)
        self._speaker.append(self._heard(turn.speaker))
        self._before.append(_NONE)
        self._after.append(_NONE)
        session = self._sessions.setdefault(turn.session, len(self._turns))
        if session == len(self._turns):
            self._turns.append([])
        self._session.append(session)
        self._talk.append(_NO_TALK)
        if session:
            self._link(number, self._turns[session])

    def _heard(self, name: str) -> int:
        speaker = self._speakers.get(name)
        if speaker is None:
            speaker = self._speakers[name] = len(self._speakers)
            self._spoken.append(0)
            for word in dict.fromkeys(words(fold(name))):
                self._names.setdefault(word, []).append(speaker)
        self._spoken[speaker] += 1
        return speaker

    def _link(self, number: int, turns: list[int]) -> None:
        place = self._places[number]
        last = not turns or self._places[turns[-1]] < place
        at = len(turns) if last else bisect_left(turns, place, key=self._places.__getitem__)
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
        """Say of the turns from a place on which talk they are of, as far as that is another than it was."""
        talks, before = self._talk.values, self._before.values
        last = int(talks[turns[at - 1]]) if at else _NO_TALK
        for place in range(at, len(turns)):
            talk = int(talks[turns[place]])
            if before[turns[place]] != _NONE:
                now = last
            elif talk in {_NO_TALK, last}:
                now = self._talks
                self._talks += 1
            else:
                now = talk
            if now == talk:
                return
            talks[turns[place]] = last = now

    def remove(self, number: int) -> None:
        """Take a turn out: those beside it are beside each other now."""
        self._spoken[int(self._speaker.values[number])] -= 1
        session = int(self._session.values[number])
        if session:
            self._talk.values[number] = _NO_TALK
            turns = self._turns[session]
            at = bisect_left(turns, self._places[number], key=self._places.__getitem__)
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
        """The same with these turns alone, numbered anew in their order."""
        kept = Conversations()
        sessions, speakers = list(self._sessions), list(self._speakers)
        for number in numbers:
            kept.append(
                Turn(
                    sessions[int(self._session.values[number])],
                    self._places[number],
                    speakers[int(self._speaker.values[number])],
                    float(self._time.values[number]),
                    bool(self._question.values[number]),
                    bool(self._timed.values[number]),
                    float(self._fade.values[number]),
                )
            )
        return kept

    @property
    def times(self) -> Floats:
        """When each was, in seconds, by number; NaN where it is unknown."""
        return self._time.values

    def place(self, number: int) -> tuple[int, str]:
        """The position of a turn in its session, and its id."""
        return self._places[number]

    def weights(self, asked: Question) -> dict[str, float]:
        """The words of a question that count for less: the names of speakers."""
        return {word: NAME for word, _ in asked.words if self._named(word)}

    def shared(self, said: Iterable[Sequence[tuple[Numbers, Floats]]]) -> Floats:
        """What each talk has, by its number: the best of each of ``said``, which are documents and what each has."""
        talks = self._talk.values
        shared = np.zeros(self._talks)
        for one in filter(None, said):
            best = np.zeros(self._talks)
            for documents, scores in one:
                np.maximum.at(best, talks[documents], scores)
            shared += best
        shared[_NO_TALK] = 0
        return shared

    def lifts(self, asked: Question, scores: Floats, shared: Floats) -> dict[str, Floats]:
        """What each document gains, by part and number.

        It gains by what it and others have in ``scores`` (0 for those removed), and its talk in ``shared``.
        """
        asks = self._question.values
        near = self._near(scores)
        together = SESSION * shared[self._talk.values]
        have = scores + near + together
        lifts = {"asking": -ASKING * have * asks, "neighbours": near, "session": together}
        named = [speaker for word, _ in asked.words for speaker in self._named(word)]
        if named:
            chosen = np.zeros(len(self._speakers), np.bool_)
            chosen[named] = True
            lifts["speaker"] = SPEAKER * have * chosen[self._speaker.values]
        if asked.when or asked.spans:
            lifts["time"] = WHEN * have * self._timed.values if asked.when else np.zeros(len(scores))
            for start, end in asked.spans:
                within = (self._time.values >= start) & (self._time.values < end)
                lifts["time"] += within * (SPAN * have + SPAN_ALONE)
        return lifts

    def _near(self, scores: Floats) -> Floats:
        """What the turns beside each one lend to it."""
        near = np.zeros(len(scores))
        lending: Numbers = np.flatnonzero(scores).astype(np.int32)
        fade = self._fade.values
        for beside in (self._after.values, self._before.values):
            turns, lent = lending, BESIDE * scores[lending]
            for _ in range(REACH):
                turns = beside[turns]
                there = turns != _NONE
                turns, lent = turns[there], lent[there]
                near[turns] += lent
                lent = lent * fade[turns]
        asking = lending[self._question.values[lending] & (self._after.values[lending] != _NONE)]
        near[self._after.values[asking]] += ANSWER * scores[asking]
        return near

    def _named(self, word: str) -> Iterable[int]:
        return [speaker for speaker in self._names.get(word, ()) if self._spoken[speaker]]
