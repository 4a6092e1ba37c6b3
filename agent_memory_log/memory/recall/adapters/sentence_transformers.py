"""Vectors from a sentence-transformers model, with those of its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from agent_memory_log.memory.recall.adapters.extras import import_extra
from agent_memory_log.memory.recall.embedding import Embeddings, Kind, Vectors


class _Tensor(Protocol):
    def detach(self) -> _Tensor: ...

    def cpu(self) -> _Tensor: ...

    def float(self) -> _Tensor: ...

    def numpy(self) -> NDArray[np.float32]: ...


class _Model(Protocol):
    def get_sentence_embedding_dimension(self) -> int | None: ...

    def encode(
        self, sentences: list[str], *, prompt: str | None, output_value: None, show_progress_bar: bool
    ) -> list[dict[str, _Tensor]]: ...


class _Module(Protocol):
    def SentenceTransformer(self, model_name_or_path: str) -> _Model: ...  # noqa: N802  # its name


class SentenceTransformersEmbedder:
    """A model by its name or folder; needs the extra ``sentence-transformers``.

    The prefixes stand before each text of their kind, for models that were trained with them ("query: ").
    """

    def __init__(self, model: str, *, query_prefix: str = "", document_prefix: str = "") -> None:
        module = cast("_Module", import_extra("sentence_transformers", "sentence-transformers", type(self).__name__))
        self._model = module.SentenceTransformer(model)
        self._prefixes: dict[Kind, str] = {"query": query_prefix, "document": document_prefix}
        self.model: Final = model
        self.dimension: Final = self._model.get_sentence_embedding_dimension() or 0

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """The vectors of ``texts``; raises what the model raises."""
        found = self._model.encode(
            list(texts), prompt=self._prefixes[kind] or None, output_value=None, show_progress_bar=False
        )
        pooled = np.stack([_array(one["sentence_embedding"]) for one in found])
        return Embeddings(pooled, tuple(_inner(one) for one in found))


def _inner(one: dict[str, _Tensor]) -> Vectors:
    tokens = _array(one["token_embeddings"])
    length = int(_array(one["attention_mask"])[: len(tokens)].sum())
    # The first and the last token are special in the models this is for.
    return tokens[1 : max(length - 1, 1)]


def _array(tensor: _Tensor) -> Vectors:
    return tensor.detach().cpu().float().numpy()
