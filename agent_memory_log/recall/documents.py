"""What is searched and what is found: the values that go into a recall index and come out of it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """One text that can be found: a message, a preference, a fact, an episode, or of any other kind.

    ``id`` is the caller's own and unique in an index. ``session`` is the conversation a message belongs to ("" for
    none) and ``position`` its place in it: messages of one session beside each other lift each other. ``speaker`` is
    who said it. ``time`` (aware) is when; relative dates in the text count from it. ``importance`` is 0 (unrated) to 5
    stars, ``confidence`` 0 to 1. ``lasting`` is what holds until it is replaced, as a fact does: stars choose it, but
    neither they nor its age lift it. ``key`` names a preference. From ``expires`` on (aware; None: never) it is not
    found.
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


class DocumentHit(msgspec.Struct, frozen=True):
    """A document that was found.

    ``score`` is the sum of ``matched_by``: what each part contributed, in the order of the parts' names. The words of
    a text that holds the whole question contribute about 1, whatever else the index holds.
    """

    id: str
    score: float
    matched_by: Mapping[str, float]
