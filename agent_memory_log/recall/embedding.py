"""The interface of embedding models, and the checks of their results.

An embedder receives each text once, in batches. If it fails, the search compares words alone and returns a note.
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
"""The kind of a text. Many models embed questions and documents differently."""


class Embeddings(msgspec.Struct, frozen=True):
    """The vectors of some texts. The length of a vector does not matter, because only angles are compared.

    Attributes:
        pooled: A matrix with one row for each text (texts x dimension).
        tokens: One matrix for each text (tokens x dimension), without special tokens. None if the model has only pooled
            vectors.
        words: For each text, the word of the text that each token is part of. Only questions need it: the rarity of
            the word is the weight of the token. None if the model cannot tell.
    """

    pooled: Vectors
    tokens: tuple[Vectors, ...] | None = None
    words: tuple[tuple[str, ...], ...] | None = None


@runtime_checkable
class Embedder(Protocol):
    """An embedding model.

    Change the name ``model`` whenever the vectors change: only vectors with the same name and dimension are compared.
    ``embed`` may block; the library calls it in a thread where blocking would stop other work.
    """

    @property
    def model(self) -> str:
        """The name of the model. Vectors are stored under this name."""
        ...

    @property
    def dimension(self) -> int:
        """The length of a vector."""
        ...

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """Return the vectors of ``texts`` in the same order. It may raise any error of the model or the network."""
        ...


Model = tuple[str, int]
"""A model's name and dimension. Vectors are compared only if both are equal."""


class Embedded(msgspec.Struct, frozen=True):
    """The result of calling an embedder.

    Attributes:
        embeddings: The vectors, each of length 1, or None if the call failed.
        note: The description of the error, or ``""``.
        model: The name and dimension of the model that made the vectors.
    """

    embeddings: Embeddings | None
    note: str = ""
    model: Model = ("", 0)


class Fixed:
    """An embedder for one search, which must use one model. It fails if the model changes during the search."""

    def __init__(self, embedder: Embedder, model: Model) -> None:
        """Store the arguments; do not call the embedder yet."""
        self.model, self.dimension = model
        self._embedder = embedder

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """Return the embedder's vectors. Raises the embedder's errors, and ``InvalidArgument`` if its model changed."""
        embeddings = self._embedder.embed(texts, kind)
        if (now := _model_of(self._embedder)) != (self.model, self.dimension):
            raise InvalidArgument(f"the model changed to {now[0]} of dimension {now[1]} during the search")
        return embeddings


def embed(embedder: Embedder, texts: Sequence[str], kind: Kind) -> Embedded:
    """Call an embedder and check its result. An error becomes a note, so that the search can continue with words."""
    try:
        if not texts:
            model = _model_of(embedder)
            return Embedded(Embeddings(np.zeros((0, model[1]), np.float32)), "", model)
        embeddings = embedder.embed(texts, kind)
        model = _model_of(embedder)
        return Embedded(_checked(embeddings, len(texts), model[1]), "", model)
    except Exception as error:  # noqa: BLE001  # a model may raise anything, and the search continues without it
        message = str(error) or type(error).__name__
        return Embedded(None, f"the embedder {_name_of(embedder)} failed, words alone were compared: {message}")


def _model_of(embedder: Embedder) -> Model:
    model, dimension = embedder.model, embedder.dimension
    if not isinstance(model, str):
        raise InvalidArgument(f"its model must be text, got {describe(model)}")
    try:
        length = index(dimension)  # accepts numpy's integers too
    except TypeError:
        length = 0
    if length < 1:
        raise InvalidArgument(f"its dimension must be an integer from 1, got {describe(dimension)}")
    return str(model), length


def _name_of(embedder: Embedder) -> str:
    try:
        return str(embedder.model)
    except Exception:  # noqa: BLE001  # the embedder has failed already, and this name is only for the note
        return type(embedder).__name__


def unit(vectors: NDArray[np.floating]) -> Vectors:
    """Scale each row to length 1. A row of zeros stays zero and is similar to nothing."""
    # First divide by the longest component: the squares of very long or very short rows would overflow or underflow.
    longest = np.abs(vectors).max(axis=-1, keepdims=True)
    scaled = (vectors / np.where(longest > 0, longest, 1)).astype(np.float32)
    lengths = np.linalg.norm(scaled, axis=-1, keepdims=True)
    return (scaled / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _checked(embeddings: object, texts: int, dimension: int) -> Embeddings:
    if not isinstance(embeddings, Embeddings):
        raise InvalidArgument(f"embed must return Embeddings, got {describe(embeddings)}")
    if embeddings.pooled.shape != (texts, dimension):
        raise InvalidArgument(
            f"pooled vectors of shape {embeddings.pooled.shape} for {texts} texts of dimension {dimension}"
        )
    if not np.isfinite(embeddings.pooled).all():
        raise InvalidArgument("a pooled vector holds NaN or an infinity")
    if embeddings.tokens is None:
        return Embeddings(unit(embeddings.pooled))
    if len(embeddings.tokens) != texts:
        raise InvalidArgument(f"token vectors of {len(embeddings.tokens)} texts for {texts}")
    for at, tokens in enumerate(embeddings.tokens):
        if tokens.ndim != 2 or tokens.shape[1] != dimension or not np.isfinite(tokens).all():  # noqa: PLR2004  # a matrix
            raise InvalidArgument(f"the token vectors of text {at} are not finite rows of dimension {dimension}")
    if embeddings.words is not None and [*map(len, embeddings.words)] != [*map(len, embeddings.tokens)]:
        raise InvalidArgument("words must have the word of each token of each text")
    return Embeddings(unit(embeddings.pooled), tuple(unit(tokens) for tokens in embeddings.tokens), embeddings.words)
