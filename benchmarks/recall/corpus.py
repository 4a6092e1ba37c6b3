"""Reads the corpus. The rules were tuned on its half ``dev`` and only measured on its half ``reported``.

``chats`` has working chats with an assistant, which are only measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from agent_memory_log.recall import Document

HALVES: Final = ("dev", "reported")

LONG: Final = 150
"""The number of turns from which a conversation is long. Questions about long ones may repeat their words."""

_FOLDER: Final = Path(__file__).parent


class Turn(msgspec.Struct, frozen=True):
    """A turn of a conversation. Turns are numbered from 0."""

    session: int
    time: datetime
    speaker: str
    text: str


class Question(msgspec.Struct, frozen=True):
    """A question, its answer, and the numbers of all turns with its evidence. A question without an answer has none."""

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
        """Return the turns as documents. The id of a document is the number of its turn."""
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
        """Return the questions that have evidence."""
        return [question for question in self.questions if question.evidence]


def conversations(part: str) -> list[Conversation]:
    """Return the conversations of ``chats`` or a half in the order of their file names.

    Raises:
        msgspec.DecodeError: A file has another format.
    """
    decoder = msgspec.json.Decoder(Conversation)
    return [decoder.decode(path.read_bytes()) for path in sorted((_FOLDER / part).glob("*.json"))]


def recall(hits: Sequence[int], evidence: Sequence[int]) -> float:
    """Return the share of the evidence that the hits contain."""
    return len(set(hits) & set(evidence)) / len(set(evidence))
