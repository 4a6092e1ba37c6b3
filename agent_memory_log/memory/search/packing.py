"""Packs vectors for storage, with one byte for each component. Only the angles between vectors matter.

A row is scaled so that its largest component is 127, and then rounded. 384 components then take 512 characters of
JSON, an eighth of their size as 32-bit numbers. A cosine changes by less than 0.001.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error

import numpy as np

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory.records.arguments import check_arguments
from agent_memory_log.memory.records.vectors import QueryVectors
from agent_memory_log.recall import Embedded, Embeddings
from agent_memory_log.recall.embedding import Vectors, unit

_LARGEST = 127

MOST_BYTES = 512 * 1024
"""The most bytes of one text's packed vectors. Further tokens are left out, so that the event fits into every store."""


def pack(pooled: Vectors, tokens: Vectors | None) -> bytes:
    """Return the bytes of a text's pooled vector (dimension), then of its token vectors (tokens x dimension)."""
    rows = pooled[np.newaxis] if tokens is None else np.concatenate([pooled[np.newaxis], tokens])
    rows = rows[: max(1, MOST_BYTES // rows.shape[1])]
    largest = np.abs(rows).max(axis=1, keepdims=True)
    return np.rint(rows / np.where(largest > 0, largest, 1) * _LARGEST).astype(np.int8).tobytes()


def unpack(packed: bytes, dimension: int) -> Embeddings | None:
    """Return the vectors of one text, scaled to length 1. Returns None if the bytes are not rows of ``dimension``."""
    if dimension < 1 or not packed or len(packed) % dimension:
        return None
    rows = unit(np.frombuffer(packed, np.int8).reshape(-1, dimension).astype(np.float32))
    return Embeddings(rows[:1], (rows[1:],) if len(rows) > 1 else None)


MOST_TOKENS = 512
"""The most vectors of tokens that a caller may send with a query."""

_NUMBER = np.dtype("<f4")
_LONGEST_MODEL = 512
_TOLERANCE = 1e-3
"""The difference from 1 that the length of a vector may have."""


def sent_query(embedded: Embedded) -> QueryVectors:
    """Return the vectors of one query as a caller sends them. ``embedded`` has no note."""
    assert embedded.embeddings is not None, "the query was not embedded"  # noqa: S101  # see above
    pooled, tokens = embedded.embeddings.pooled, embedded.embeddings.tokens
    rows = pooled if tokens is None else np.concatenate([pooled, tokens[0][:MOST_TOKENS]])
    words = () if embedded.embeddings.words is None else embedded.embeddings.words[0][:MOST_TOKENS]
    return QueryVectors(*embedded.model, b64encode(rows.astype(_NUMBER).tobytes()).decode(), words)


def read_query(vectors: QueryVectors) -> Embedded:
    """Return the vectors that a caller sent with its query. Raises ``InvalidArgument`` with the name of the field."""
    check_arguments(vectors)
    check_model_name(vectors.model, "vectors.model")
    size = vectors.dimension * _NUMBER.itemsize
    data = decoded_rows(vectors.rows, size, (1 + MOST_TOKENS) * size, "vectors.rows")
    rows = np.frombuffer(data, _NUMBER).reshape(-1, vectors.dimension).astype(np.float32)
    with np.errstate(over="ignore"):  # the length of a wrong vector may be infinite
        lengths = np.linalg.norm(rows, axis=1)
    if not np.all((lengths == 0) | (np.abs(lengths - 1) <= _TOLERANCE)):
        raise InvalidArgument("vectors.rows must be finite vectors of length 1 or 0: divide each by its length")
    if len(vectors.words) not in (0, len(rows) - 1):
        raise InvalidArgument(
            f"vectors.words must have a word for each of the {len(rows) - 1} tokens, or none; got {len(vectors.words)}"
        )
    tokens = (rows[1:],) if len(rows) > 1 else None
    words = (vectors.words,) if vectors.words else None
    return Embedded(Embeddings(rows[:1], tokens, words), "", (vectors.model, vectors.dimension))


def check_model_name(model: str, name: str) -> None:
    """Raise ``InvalidArgument`` with the argument's name unless a model has a name of 1 to 512 characters."""
    if not 0 < len(model) <= _LONGEST_MODEL:
        raise InvalidArgument(f"{name} must have 1 to {_LONGEST_MODEL} characters, got {len(model):,}")


def decoded_rows(text: str, row_bytes: int, most_bytes: int, name: str) -> bytes:
    """Return the bytes of whole rows from base64. Raises ``InvalidArgument`` with the argument's name."""
    if len(text) > 4 * (most_bytes // 3 + 1):
        raise InvalidArgument(f"{name} must have at most {most_bytes:,} bytes")
    try:
        data = b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:  # a ValueError means that the text is not ASCII
        raise InvalidArgument(f"{name} must be base64: {error}") from error
    if not data or len(data) % row_bytes or len(data) > most_bytes:
        raise InvalidArgument(
            f"{name} must be whole rows of {row_bytes:,} bytes, at least one and at most {most_bytes:,} bytes; got "
            f"{len(data):,} bytes"
        )
    return data
