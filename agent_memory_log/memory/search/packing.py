"""Packs vectors for storage, with one byte for each component. Only the angles between vectors matter.

A row is scaled so that its largest component is 127, and then rounded. 384 components then take 512 characters of
JSON, an eighth of their size as 32-bit numbers. A cosine changes by less than 0.001.
"""

from __future__ import annotations

import numpy as np

from agent_memory_log.recall import Embeddings
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
