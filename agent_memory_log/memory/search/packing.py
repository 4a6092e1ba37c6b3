"""Vectors as they are stored: a byte a component, as only angles matter.

A row is scaled so that its longest component is 127, and rounded: 384 components are 512 characters of JSON, an eighth
of what they are in 32 bits, and a cosine changes by less than 0.001.
"""

from __future__ import annotations

import numpy as np

from agent_memory_log.recall import Embeddings
from agent_memory_log.recall.embedding import Vectors, unit

_LONGEST = 127

MOST_BYTES = 512 * 1024
"""How much of a text's vectors is kept: the tokens beyond are left out, so that no store refuses the event."""


def pack(pooled: Vectors, tokens: Vectors | None) -> bytes:
    """The bytes of a text's vectors: the pooled one (dimension), then those of its tokens (tokens x dimension)."""
    rows = pooled[np.newaxis] if tokens is None else np.concatenate([pooled[np.newaxis], tokens])
    rows = rows[: max(1, MOST_BYTES // rows.shape[1])]
    longest = np.abs(rows).max(axis=1, keepdims=True)
    return np.rint(rows / np.where(longest > 0, longest, 1) * _LONGEST).astype(np.int8).tobytes()


def unpack(packed: bytes, dimension: int) -> Embeddings | None:
    """The vectors of one text, of length 1; None where the bytes are not rows of ``dimension``."""
    if dimension < 1 or not packed or len(packed) % dimension:
        return None
    rows = unit(np.frombuffer(packed, np.int8).reshape(-1, dimension).astype(np.float32))
    return Embeddings(rows[:1], (rows[1:],) if len(rows) > 1 else None)
