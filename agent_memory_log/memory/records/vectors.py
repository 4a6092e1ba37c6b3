"""The vectors that a caller sends, and the texts that it can embed. Rows of numbers travel as base64 text."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from agent_memory_log.memory.records.arguments import check_arguments


class QueryVectors(msgspec.Struct, frozen=True):
    """The vectors of a query, which its caller has embedded.

    Attributes:
        model: The name of the embedding model.
        dimension: The number of components of a vector.
        rows: The base64 text of 32-bit little-endian numbers: the pooled vector, then up to 512 vectors of tokens. Each
            vector has the length 1, or is zero.
        words: For each vector of a token, the word of the query that the token is part of, or ``()``. The rarity of the
            word is the weight of the token.
    """

    model: str
    dimension: Annotated[int, Meta(ge=1, le=16_384)]
    rows: str
    words: tuple[str, ...] = ()


class TextToEmbed(msgspec.Struct, frozen=True):
    """A text that search covers and that has no vectors. It is a record's or a message's.

    Attributes:
        scope: The scope in which search finds it.
        text: The text.
        record: The id of the record, or ``""`` for a message.
        agent: The agent of the message's run, or ``""`` for a record.
        run: The message's run, or ``""`` for a record.
        seq: The seq of the message, or of the event that last changed the record's words.
    """

    scope: str
    text: str
    record: str
    agent: str
    run: str
    seq: int


class TextVectors(msgspec.Struct, frozen=True):
    """The vectors of a text. ``scope``, ``record``, ``agent``, ``run`` and ``seq`` name it as ``TextToEmbed`` does.

    Attributes:
        rows: The base64 text of signed bytes: the pooled vector, then one vector for each token. The largest component
            of a vector is 127.
    """

    scope: str
    rows: str
    record: str = ""
    agent: str = ""
    run: str = ""
    seq: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0

    def __post_init__(self) -> None:
        check_arguments(self)


class VectorsReport(msgspec.Struct, frozen=True):
    """The result of storing vectors.

    Attributes:
        stored: The number of texts that got vectors.
        left_out: The number of texts that are unknown, were forgotten or changed, or have vectors already.
    """

    stored: int
    left_out: int
