"""Raises the score of a turn by its conversation: its neighbours, its session, its speaker and its time.

An answer is often next to the words of the question and need not repeat them. So a turn adds a share of its score to
its neighbours and its session. If the question names a speaker or a time, the turns of that speaker or time also gain
a share of their score. Each share is a round number from the middle of a range. Within this range, the results on the
development corpora hardly change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from agent_memory_log.recall.analysis import Analysis
from agent_memory_log.recall.documents import Document
from agent_memory_log.recall.index.columns import NONE, Columns, Flags, Floats, Numbers
from agent_memory_log.recall.index.database import Database
from agent_memory_log.recall.index.documents import Documents
from agent_memory_log.recall.index.names import Names
from agent_memory_log.recall.questions import ASSISTANT, USER, Question

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

ELSEWHERE: Final = 0.5
"""The loss of a turn of people who have nothing to do with those that the question names, as a share of its score.

A memory may have the conversations of many people. In a single conversation no turn loses.
"""

_STEPS: Final = 2
"""The circle of a speaker: those who take part in the same sessions, and those who take part in sessions with them."""

SPEAKER_TOO: Final = 0.3
"""The same gain for the other speakers whom the question names. It mostly asks what the first one said or did."""

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

_NO_ROLE: Final = 0
ASSISTANT_ROLE: Final = 2
_ROLES: Final = {USER: 1, ASSISTANT: ASSISTANT_ROLE}
"""The numbers of the roles. Turns of people who are named otherwise have no role."""


class Place(msgspec.Struct, frozen=True, order=True):
    """The position of a turn in its session, and the document's id, which order the turns of a session."""

    position: int
    name: str


def properties_of(document: Document, analysis: Analysis) -> dict[str, float]:
    """Return the properties of a document that its conversation needs."""
    return {
        "position": document.position,
        "time": math.nan if document.time is None else document.time.timestamp(),
        "question": analysis.question,
        "timed": analysis.timed,
        "fade": math.exp(-analysis.length / FADING),
        "role": _ROLES.get(document.speaker, _NO_ROLE),
        "signs": analysis.signs,
    }


class Conversations:
    """The sessions and speakers of documents, by document number. Not safe for concurrent use by several threads.

    The turns of a session are ordered by their places. A turn costs two searches, or none at the end of the session
    that got the last turn. A pause longer than ``SILENCE`` divides a session into talks. A talk has the number of its
    first turn. Turns raise each other's scores only within a talk.
    """

    def __init__(self, database: Database, columns: Columns, documents: Documents, speakers: Names) -> None:
        self._database = database
        self._documents = documents
        self._columns = columns
        self._speakers = speakers
        self._last: dict[int, tuple[Place, int]] = {}
        self._circles: dict[tuple[int, ...], Flags] = {}

    def forget(self) -> None:
        """Forget the last turns and the circles, because another process may have added turns."""
        self._last.clear()
        self._circles.clear()

    def append(self, number: int, session: int, place: Place) -> None:
        """Link the turn of a document that was added to ``session``."""
        self._circles.clear()
        before, after = self._neighbours(session, place)
        self._columns.put("before", number, NONE)
        self._columns.put("after", number, NONE)
        self._columns.put("talk", number, number if session else NONE)
        if before is not None:
            self._join(before, number)
            if self._columns["before"][number] != NONE:
                self._columns.put("talk", number, int(self._columns["talk"][before]))
        if after is None:
            if session:
                self._last[session] = place, number
        else:
            self._join(number, after)
            self._divide(after)

    def _neighbours(self, session: int, place: Place) -> tuple[int | None, int | None]:
        if not session:
            return None, None
        last = self._last.get(session)
        if last is not None and last[0] < place:
            return last[1], None
        neighbours = self._documents.beside(session, place.position, place.name)
        for number in neighbours:
            if number is not None and not (number < self._columns.count and self._columns["alive"][number]):
                raise self._database.damaged(f"document {number} is a neighbour, but does not exist")
        return neighbours

    def _join(self, before: int, after: int) -> None:
        beside = not self._columns["time"][after] - self._columns["time"][before] > SILENCE
        self._columns.put("after", before, after if beside else NONE)
        self._columns.put("before", after, before if beside else NONE)

    def _divide(self, turn: int) -> None:
        """Set the talk of a turn, and of the turns after it in its talk. Stop at the first one that does not change."""
        while turn != NONE:
            before = int(self._columns["before"][turn])
            talk = turn if before == NONE else int(self._columns["talk"][before])
            if talk == self._columns["talk"][turn]:
                return
            self._columns.put("talk", turn, talk)
            turn = int(self._columns["after"][turn])

    def remove(self, session: int, place: Place) -> None:
        """Unlink a turn whose document was removed. The turns before and after it become neighbours."""
        self._circles.clear()
        if not session:
            return
        self._last.pop(session, None)
        before, after = self._neighbours(session, place)
        if before is not None and after is not None:
            self._join(before, after)
        elif before is not None:
            self._columns.put("after", before, NONE)
        elif after is not None:
            self._columns.put("before", after, NONE)
        if after is not None:
            self._divide(after)

    @property
    def has_role(self) -> Flags:
        """True for each document that is a turn of a user or an assistant, by document number."""
        has_role: Flags = self._columns["role"] != _NO_ROLE
        return has_role

    @property
    def times(self) -> Floats:
        """The time of each document in seconds since 1970, by document number. NaN means unknown."""
        return self._columns["time"]

    def weights(self, question: Question) -> dict[str, float]:
        """Return the weight of each word of the question that is the name of a speaker."""
        return {word: NAME for word, _ in question.words if self._speakers.with_word(word)}

    def shared(self, matches: Iterable[Sequence[tuple[Numbers, Floats]]]) -> Floats:
        """Return the score of each talk, by talk number. The last item is for documents without a session.

        ``matches`` has an item for each word of the question: documents and their scores. The score of a talk is the
        sum of its best scores for each word.
        """
        talks = self._columns["talk"]
        shared = np.zeros(len(talks) + 1)
        for match in filter(None, matches):
            best = np.zeros(len(talks) + 1)
            for documents, scores in match:
                np.maximum.at(best, talks[documents], scores)
            shared += best
        shared[NONE] = 0
        return shared

    def lifts(self, question: Question, scores: Floats, shared: Floats) -> dict[str, Floats]:
        """Return the gains of all documents for each part of the ranking.

        The keys are the names of the parts. Each array has the gain of each document, by document number.

        Args:
            question: The question.
            scores: The score of each document by words and vectors. It is 0 for removed documents.
            shared: The score of each talk, from the method ``shared``.
        """
        asks = self._columns["question"] & (self._columns["role"] != _ROLES[USER])  # a user states facts in requests
        near = self._near(scores)
        together = SESSION * shared[self._columns["talk"]]
        total = scores + near + together
        lifts = {"asking": -ASKING * total * asks, "neighbours": near, "session": together}
        speakers = [numbers for word, _ in question.words if (numbers := self._speakers.with_word(word))]
        if speakers:
            gains = np.zeros(self._speakers.end)
            for numbers in reversed(speakers):
                gains[numbers] = SPEAKER if numbers is speakers[0] else SPEAKER_TOO
            lifts["speaker"] = total * gains[self._columns["speaker"]]
        if question.role:
            lifts["role"] = ROLE * total * (self._columns["role"] == _ROLES[question.role])
        if question.asks_for_time or question.spans:
            lifts["time"] = WHEN * total * self._columns["timed"] if question.asks_for_time else np.zeros(len(scores))
            for start, end in question.spans:
                within = (self._columns["time"] >= start) & (self._columns["time"] < end)
                lifts["time"] += within * (SPAN * total + SPAN_ALONE)
        circles = list(map(self._circle, speakers))
        if circles and not all(circle.all() for circle in circles):
            away = 1 - np.mean(circles, axis=0)
            lifts["elsewhere"] = -ELSEWHERE * (scores + sum(lifts.values())) * away[self._columns["speaker"]]
        return lifts

    def may_change(self, statement: int, later: Numbers) -> Flags:
        """Return which documents may change what a document says.

        Questions, the turns of an assistant and those of people outside the speaker's circle may not.
        """
        circle = self._circle([int(self._columns["speaker"][statement])])
        may_change: Flags = (
            circle[self._columns["speaker"][later]]
            & ~self._columns["question"][later]
            & (self._columns["role"][later] != ASSISTANT_ROLE)
        )
        return may_change

    def _circle(self, speakers: Sequence[int]) -> Flags:
        """Return which speakers, by number, belong to the circle of ``speakers``. Texts without a speaker do."""
        key = tuple(speakers)
        circle = self._circles.get(key)
        if circle is None:
            spoken, sessions = self._columns["speaker"], self._columns["session"]
            circle = np.zeros(self._speakers.end, np.bool_)
            circle[speakers] = True
            for _ in range(_STEPS):
                shared = np.zeros(int(sessions.max(initial=0)) + 1, np.bool_)
                shared[sessions[circle[spoken]]] = True
                shared[0] = False
                circle[spoken[shared[sessions]]] = True
            circle[[0, *filter(None, map(self._speakers.find, _ROLES))]] = True
            self._circles[key] = circle
        return circle

    def _near(self, scores: Floats) -> Floats:
        """Return the gain of each turn from its neighbours."""
        near = np.zeros(len(scores))
        lending: Numbers = np.flatnonzero(scores).astype(np.int32)
        fade = self._columns["fade"]
        for beside in (self._columns["after"], self._columns["before"]):
            turns, lent = lending, BESIDE * scores[lending]
            for _ in range(REACH):
                turns = beside[turns]
                exists = turns != NONE
                turns, lent = turns[exists], lent[exists]
                near[turns] += lent
                lent = lent * fade[turns]
        asks = self._columns["question"] & (
            self._columns["role"] != _ROLES[USER]
        )  # an assistant's answer repeats the request
        asking = lending[asks[lending] & (self._columns["after"][lending] != NONE)]
        near[self._columns["after"][asking]] += ANSWER * scores[asking]
        return near
