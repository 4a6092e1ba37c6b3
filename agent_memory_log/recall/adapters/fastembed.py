"""Embeds texts with a fastembed model: pooled vectors, or the token vectors of a late-interaction model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from agent_memory_log.recall.adapters.extras import import_extra, load_model
from agent_memory_log.recall.adapters.texts import CHARACTERS_AT_ONCE, batches, stored_name
from agent_memory_log.recall.embedding import Embeddings, Kind, Vectors


class _Model(Protocol):
    def query_embed(self, query: list[str]) -> Iterable[NDArray[np.floating]]: ...

    def passage_embed(self, texts: list[str]) -> Iterable[NDArray[np.floating]]: ...


class _Module(Protocol):
    def TextEmbedding(self, model_name: str, **options: object) -> _Model: ...  # noqa: N802  # its name

    def LateInteractionTextEmbedding(self, model_name: str, **options: object) -> _Model: ...  # noqa: N802  # its name


class FastEmbedEmbedder:
    """An embedder that runs a fastembed model. It needs the extra ``fastembed``.

    Args:
        model: The name of the model in fastembed.
        name: The name under which vectors are stored; by default the model's name. A model that was added with
            ``add_custom_model`` needs a new name when its files change.
        late_interaction: True for a late-interaction model such as ``colbert-ir/colbertv2.0``. The pooled vector is
            the mean of its token vectors.
        query_prefix: The text before each query. fastembed adds none, so models that were trained with prefixes
            (e5: ``"query: "`` and ``"passage: "``) need them here.
        document_prefix: The same for documents.
        options: Options for fastembed, such as ``cache_dir`` and ``specific_model_path``.

    Raises:
        ModelUnavailable: The model cannot be loaded.
        InvalidArgument: The extra is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        late_interaction: bool = False,
        query_prefix: str = "",
        document_prefix: str = "",
        **options: object,
    ) -> None:
        module = cast("_Module", import_extra("fastembed", "fastembed", type(self).__name__))
        make = module.LateInteractionTextEmbedding if late_interaction else module.TextEmbedding
        self._model = load_model(lambda: make(model, **options), model)
        self._lock = Lock()  # in some releases, a late-interaction model changes its tokenizer for each question
        self._late = late_interaction
        self._prefixes: dict[Kind, str] = {"query": query_prefix, "document": document_prefix}
        self.model: Final = name or stored_name(f"fastembed:{model}", document_prefix)
        self.dimension: Final = load_model(lambda: self._ask(["a"], "document")[0].shape[-1], model)

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """Return the vectors of ``texts``. Raises the model's errors."""
        prefixed = [self._prefixes[kind] + text for text in texts]
        pooled = np.zeros((len(texts), self.dimension), np.float32)
        tokens: dict[int, Vectors] = {}
        for batch in batches([len(text) for text in prefixed], CHARACTERS_AT_ONCE):
            for at, vectors in zip(batch, self._ask([prefixed[at] for at in batch], kind), strict=True):
                if not self._late:
                    pooled[at] = vectors
                    continue
                tokens[at] = vectors
                if len(vectors):
                    pooled[at] = vectors.mean(axis=0)
        return Embeddings(pooled, tuple(tokens[at] for at in range(len(texts))) if self._late else None)

    def _ask(self, texts: list[str], kind: Kind) -> list[Vectors]:
        ask = self._model.query_embed if kind == "query" else self._model.passage_embed
        with self._lock:
            return [np.asarray(vectors, np.float32) for vectors in ask(texts)]
