"""The input and output values of a recall index: documents and hits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A text that a search can find: a message, a preference, a fact, an episode, or a text of any other kind.

    Attributes:
        id: The caller's id, unique in an index.
        text: The text to search.
        kind: The kind of the text. A search can filter by kind.
        session: The conversation of a message, or ``""``. Neighbours in a session raise each other's scores.
        position: The position of a message in its session.
        speaker: The name of the message's speaker.
        time: The aware time of the text. Relative dates in the text count from it.
        importance: Stars, from 0 (unrated) to 5.
        confidence: The confidence in the text, from 0 to 1. A lower confidence lowers the score; a search never finds a
            text with confidence 0.
        lasting: True for a text that holds until it is replaced, such as a fact. A search can
            filter such a text by its stars, but its stars and age do not change its score.
        key: The key of a preference, for ``boost_preferences`` of a search, or ``""``.
        expires: The aware time from which searches no longer find the text. None means never.
        note: Bytes that a hit returns as they are, such as the encoded object that the text belongs to.
    """

    id: str
    text: str
    kind: str = "message"
    session: str = ""
    position: int = 0
    speaker: str = ""
    time: datetime | None = None
    importance: float = 0.0
    confidence: float = 1.0
    lasting: bool = False
    key: str = ""
    expires: datetime | None = None
    note: bytes = b""


class DocumentHit(msgspec.Struct, frozen=True):
    """A document that a search found.

    Attributes:
        id: The document's id.
        score: The sum of the contributions in ``matched_by``. A text with all words of the question gets about 1 for
            its words.
        matched_by: The contribution of each part of the ranking, by the part's name.
        note: The document's note.
    """

    id: str
    score: float
    matched_by: Mapping[str, float]
    note: bytes = b""
