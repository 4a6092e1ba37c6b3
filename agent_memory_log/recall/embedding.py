"""What an embedding model is to recall: texts in, vectors out; and what is checked of what it says.

An embedder is called once for each text, with as many at a time as the caller has. It may fail: then what was asked is
answered from the words alone, with a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe

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


Model = tuple[str, int]
"""What vectors can be compared: those of one model and dimension."""


class Embedded(msgspec.Struct, frozen=True):
    """The outcome of asking an embedder: ``embeddings`` by ``model``, or None and a ``note`` of what went wrong."""

    embeddings: Embeddings | None
    note: str = ""
    model: Model = ("", 0)


class Fixed:
    """An embedder as it was when a search began: should it become another model meanwhile, it fails."""

    def __init__(self, embedder: Embedder, model: Model) -> None:
        """Asks nothing yet."""
        self.model, self.dimension = model
        self._embedder = embedder

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """What it answers. Raises what it raises, and ``InvalidArgument``."""
        found = self._embedder.embed(texts, kind)
        if (now := _model_of(self._embedder)) != (self.model, self.dimension):
            raise InvalidArgument(f"meanwhile it has become {now[0]} of dimension {now[1]}")
        return found


def embed(embedder: Embedder, texts: Sequence[str], kind: Kind) -> Embedded:
    """Ask an embedder, and check what it answers: a failing one costs its vectors and nothing else."""
    try:
        if not texts:
            model = _model_of(embedder)
            return Embedded(Embeddings(np.zeros((0, model[1]), np.float32)), "", model)
        found = embedder.embed(texts, kind)
        model = _model_of(embedder)
        return Embedded(_checked(found, len(texts), model[1]), "", model)
    except Exception as error:  # noqa: BLE001  # a model may raise anything, and search goes on without it
        said = str(error) or type(error).__name__
        return Embedded(None, f"the embedder {_name_of(embedder)} failed, words alone were compared: {said}")


def _model_of(embedder: Embedder) -> Model:
    model, dimension = embedder.model, embedder.dimension
    if not isinstance(model, str):
        raise InvalidArgument(f"its model must be text, found {describe(model)}")
    try:
        length = index(dimension)  # numpy's integers are such too
    except TypeError:
        length = 0
    if length < 1:
        raise InvalidArgument(f"its dimension must be an integer from 1, found {describe(dimension)}")
    return str(model), length


def _name_of(embedder: Embedder) -> str:
    try:
        return str(embedder.model)
    except Exception:  # noqa: BLE001  # it has failed already, and this is only what it is called
        return type(embedder).__name__


def unit(vectors: NDArray[np.floating]) -> Vectors:
    """Rows of length 1; a row of zeros stays, and is like nothing."""
    # By their longest components first: the squares of very long and very short ones are infinite, or nothing.
    longest = np.abs(vectors).max(axis=-1, keepdims=True)
    scaled = (vectors / np.where(longest > 0, longest, 1)).astype(np.float32)
    lengths = np.linalg.norm(scaled, axis=-1, keepdims=True)
    return (scaled / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _checked(found: object, texts: int, dimension: int) -> Embeddings:
    if not isinstance(found, Embeddings):
        raise InvalidArgument(f"embed must return Embeddings, found {describe(found)}")
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
