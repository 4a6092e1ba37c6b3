"""Prepares texts for the models of the adapters: stored model names, and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

TOKENS_AT_ONCE: Final = 4_096
"""The number of tokens in one batch, with padding. Larger batches are not faster and need more memory."""

CHARACTERS_AT_ONCE: Final = 4 * TOKENS_AT_ONCE
"""The number of characters in one batch, for models that do not expose their tokens."""

_TEXTS_AT_ONCE: Final = 32

_STRETCH: Final = 2
"""The longest text of a batch may be this many times as long as the shortest."""

_SHORT: Final = 16
"""Texts up to this length count as equally long."""


def stored_name(model: str, document_prefix: str) -> str:
    """Return the name under which vectors are stored. Another document prefix counts as another model."""
    return f"{model} {document_prefix!r}" if document_prefix else model


def batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield the indexes of all texts in batches of similar length, with at most ``most`` units including padding.

    Padding makes every text of a batch as slow as the longest one, so long and short texts are kept apart.
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
