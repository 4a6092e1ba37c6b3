"""What an embedding model is to recall: texts in, vectors out; and what is checked of what it says.

An embedder is called once for each text, with as many at a time as the caller has. It may fail: then what was asked is
answered from the words alone, with a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent_memory_log.errors import InvalidArgument

Vectors = NDArray[np.float32]
Kind = Literal["query", "document"]
"""What a text is: models of questions and answers embed the two differently."""


class Embeddings(msgspec.Struct, frozen=True):
    """The vectors of some texts.

    ``pooled`` has a row a text (texts x dimension). ``tokens`` has for each text a matrix (tokens x dimension), one row
    a token, special tokens left out; None when the model has only pooled vectors. Lengths do not matter: only angles.
    """

    pooled: Vectors
    tokens: tuple[Vectors, ...] | None = None


@runtime_checkable
class Embedder(Protocol):
    """An embedding model.

    ``model`` names it and whatever else changes its vectors: those of two names are never compared. ``dimension`` is
    the length of its vectors. ``embed`` may block; it is called in a thread of its own where that matters.
    """

    @property
    def model(self) -> str:
        """What the vectors are of."""
        ...

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        ...

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """The vectors of ``texts``, in their order; raises whatever its model or network raises."""
        ...


class Embedded(msgspec.Struct, frozen=True):
    """The outcome of asking an embedder: ``embeddings``, or None and a ``note`` that says what went wrong."""

    embeddings: Embeddings | None
    note: str = ""


def embed(embedder: Embedder, texts: Sequence[str], kind: Kind) -> Embedded:
    """Ask an embedder, and check what it answers: a failing one costs its vectors and nothing else."""
    if not texts:
        return Embedded(Embeddings(np.zeros((0, embedder.dimension), np.float32)))
    try:
        return Embedded(_checked(embedder.embed(texts, kind), len(texts), embedder.dimension))
    except Exception as error:  # noqa: BLE001  # a model may raise anything, and search goes on without it
        return Embedded(None, f"the embedder {embedder.model} failed, words alone were compared: {error}")


def unit(vectors: NDArray[np.floating]) -> Vectors:
    """Rows of length 1; a row of zeros stays, and is like nothing."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _checked(found: Embeddings, texts: int, dimension: int) -> Embeddings:
    if found.pooled.shape != (texts, dimension):
        raise InvalidArgument(
            f"pooled vectors of shape {found.pooled.shape} for {texts} texts of dimension {dimension}"
        )
    if not np.isfinite(found.pooled).all():
        raise InvalidArgument("a pooled vector holds NaN or an infinity")
    if found.tokens is None:
        return Embeddings(unit(found.pooled))
    if len(found.tokens) != texts:
        raise InvalidArgument(f"token vectors of {len(found.tokens)} texts for {texts}")
    for at, tokens in enumerate(found.tokens):
        if tokens.ndim != 2 or tokens.shape[1] != dimension or not np.isfinite(tokens).all():  # noqa: PLR2004  # a matrix
            raise InvalidArgument(f"the token vectors of text {at} are not finite rows of dimension {dimension}")
    return Embeddings(unit(found.pooled), tuple(unit(tokens) for tokens in found.tokens))
