"""The corpus: conversations in ``dev`` (looked at while working) and ``reported`` (measured, never tuned on)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from agent_memory_log.recall import Document

HALVES: Final = ("dev", "reported")

LONG: Final = 150
"""Turns from which a conversation is long; the long ones are asked about in whatever words come to mind."""

_FOLDER: Final = Path(__file__).parent


class Turn(msgspec.Struct, frozen=True):
    """A turn; its number is its place in the conversation, from 0."""

    session: int
    time: datetime
    speaker: str
    text: str


class Question(msgspec.Struct, frozen=True):
    """A question and the numbers of all turns that it takes to answer it; none when it cannot be answered."""

    kind: str
    question: str
    answer: str
    evidence: tuple[int, ...]


class Conversation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A conversation with its questions."""

    language: str
    about: str
    speakers: tuple[str, ...]
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]

    def documents(self) -> list[Document]:
        """The turns as documents, their numbers for ids."""
        return [
            Document(
                id=str(number),
                text=turn.text,
                session=str(turn.session),
                position=number,
                speaker=turn.speaker,
                time=turn.time,
            )
            for number, turn in enumerate(self.turns)
        ]

    def answerable(self) -> list[Question]:
        """The questions that have evidence."""
        return [question for question in self.questions if question.evidence]


def conversations(half: str) -> list[Conversation]:
    """The conversations of a half, by file name. Raises ``msgspec.DecodeError`` for a file of another format."""
    decoder = msgspec.json.Decoder(Conversation)
    return [decoder.decode(path.read_bytes()) for path in sorted((_FOLDER / half).glob("*.json"))]


def recall(found: Sequence[int], evidence: Sequence[int]) -> float:
    """The share of the evidence that is among what was found."""
    return len(set(found) & set(evidence)) / len(set(evidence))
