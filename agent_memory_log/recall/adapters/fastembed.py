"""Vectors from a fastembed model: pooled ones, or those of the tokens of a late-interaction model."""

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
    """A model by the name fastembed knows it by; needs the extra ``fastembed``.

    - ``name``: what its vectors are stored under, unless that is the model's own. A model that was added with
      ``add_custom_model`` needs a new one when its files change.
    - ``late_interaction``: it is one of fastembed's late-interaction models (``colbert-ir/colbertv2.0``), whose token
      vectors also give the pooled one: their mean.
    - The prefixes stand before each text of their kind. fastembed has none of its own: models that were trained with
      them (e5: "query: " and "passage: ") need them here.
    - ``options`` go to fastembed as they are (``cache_dir``, ``specific_model_path``, …).

    Raises ``ModelUnavailable`` for a model that cannot be loaded.
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
        self._lock = Lock()  # in some releases a late-interaction model changes its tokenizer for each question
        self._late = late_interaction
        self._prefixes: dict[Kind, str] = {"query": query_prefix, "document": document_prefix}
        self.model: Final = name or stored_name(f"fastembed:{model}", document_prefix)
        self.dimension: Final = load_model(lambda: self._ask(["a"], "document")[0].shape[-1], model)

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """The vectors of ``texts``; raises what the model raises."""
        given = [self._prefixes[kind] + text for text in texts]
        pooled = np.zeros((len(texts), self.dimension), np.float32)
        tokens: dict[int, Vectors] = {}
        for batch in batches([len(text) for text in given], CHARACTERS_AT_ONCE):
            for at, found in zip(batch, self._ask([given[at] for at in batch], kind), strict=True):
                if not self._late:
                    pooled[at] = found
                    continue
                tokens[at] = found
                if len(found):
                    pooled[at] = found.mean(axis=0)
        return Embeddings(pooled, tuple(tokens[at] for at in range(len(texts))) if self._late else None)

    def _ask(self, texts: list[str], kind: Kind) -> list[Vectors]:
        ask = self._model.query_embed if kind == "query" else self._model.passage_embed
        with self._lock:
            return [np.asarray(one, np.float32) for one in ask(texts)]
