"""What the adapters do with texts before a model sees them: prefixes, and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

TOKENS_AT_ONCE: Final = 4_096
"""How much goes through a model together, with padding: more of it no longer gains, and takes memory."""

CHARACTERS_AT_ONCE: Final = 4 * TOKENS_AT_ONCE
"""The same in characters, for models that keep their tokens to themselves."""

_TEXTS_AT_ONCE: Final = 32

_STRETCH: Final = 2
"""How many times as long as the shortest text of a batch the longest may be."""

_SHORT: Final = 16
"""Texts up to this length are all alike."""


def stored_name(model: str, document_prefix: str) -> str:
    """What a model's vectors are stored under: those of texts with another prefix are as those of another model."""
    return f"{model} {document_prefix!r}" if document_prefix else model


def batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """The places of all texts, in batches of about one length that hold ``most`` with their padding.

    In a batch every text is padded to the longest, so that one long text makes all that are with it as slow as itself.
    """
    batch: list[int] = []
    for at in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (
            len(batch) == _TEXTS_AT_ONCE
            or lengths[at] > _STRETCH * max(lengths[batch[0]], _SHORT)
            or (len(batch) + 1) * lengths[at] > most
        ):
            yield batch
            batch = []
        batch.append(at)
    if batch:
        yield batch
