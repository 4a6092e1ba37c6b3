"""Vectors from a fastembed model: pooled ones, or those of the tokens of a late-interaction model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from agent_memory_log.memory.recall.adapters.extras import import_extra
from agent_memory_log.memory.recall.embedding import Embeddings, Kind


class _Model(Protocol):
    def query_embed(self, query: list[str]) -> Iterable[NDArray[np.float32]]: ...

    def passage_embed(self, texts: list[str]) -> Iterable[NDArray[np.float32]]: ...


class _Module(Protocol):
    def TextEmbedding(self, model_name: str) -> _Model: ...  # noqa: N802  # its name

    def LateInteractionTextEmbedding(self, model_name: str) -> _Model: ...  # noqa: N802  # its name


class FastEmbedEmbedder:
    """A model by the name fastembed knows it by; needs the extra ``fastembed``.

    With ``late_interaction`` it is one of its late-interaction models (``colbert-ir/colbertv2.0``), whose token vectors
    also give the pooled one: their mean.
    """

    def __init__(self, model: str, dimension: int, *, late_interaction: bool = False) -> None:
        module = cast("_Module", import_extra("fastembed", "fastembed", type(self).__name__))
        self._model = module.LateInteractionTextEmbedding(model) if late_interaction else module.TextEmbedding(model)
        self._late = late_interaction
        self.model: Final = model
        self.dimension: Final = dimension

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """The vectors of ``texts``; raises what the model raises."""
        ask = self._model.query_embed if kind == "query" else self._model.passage_embed
        found = [np.asarray(one, np.float32) for one in ask(list(texts))]
        if self._late:
            return Embeddings(np.stack([one.mean(axis=0) for one in found]), tuple(found))
        return Embeddings(np.stack(found))
