"""Embeds texts with a sentence-transformers model, with token vectors if the model has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from agent_memory_log.recall.adapters.extras import import_extra, load_model
from agent_memory_log.recall.adapters.texts import CHARACTERS_AT_ONCE, batches, stored_name
from agent_memory_log.recall.embedding import Embeddings, Kind, Vectors


class _Tensor(Protocol):
    def detach(self) -> _Tensor: ...

    def cpu(self) -> _Tensor: ...

    def float(self) -> _Tensor: ...

    def numpy(self) -> NDArray[np.float32]: ...


class _Encode(Protocol):
    def __call__(
        self, sentences: list[str], /, *, prompt: str | None, output_value: None, show_progress_bar: bool
    ) -> list[Mapping[str, _Tensor]]: ...


class _Tokenizer(Protocol):
    def __call__(self, text: list[str], *, return_special_tokens_mask: bool) -> Mapping[str, list[list[int]]]: ...


class _Model(Protocol):
    encode_query: _Encode
    encode_document: _Encode
    tokenizer: object


class _Module(Protocol):
    def SentenceTransformer(self, model_name_or_path: str, **options: object) -> _Model: ...  # noqa: N802  # its name


class SentenceTransformersEmbedder:
    """An embedder that runs a sentence-transformers model. It needs the extra ``sentence-transformers``.

    A model without token vectors, or with token vectors of another dimension, gives only pooled vectors.

    Args:
        model: The model's name or folder.
        name: The name under which vectors are stored; by default the model's name or folder. Give a new name when the
            weights in a folder change.
        query_prefix: The text before each query, in place of the model's own prompt. Some models were trained with
            prefixes but bring no prompts (e5: ``"query: "`` and ``"passage: "``).
        document_prefix: The same for documents.
        options: Options for ``SentenceTransformer``, such as ``device``, ``revision`` and ``truncate_dim``.

    Raises:
        ModelUnavailable: The model cannot be loaded.
        InvalidArgument: The extra is not installed.
    """

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        **options: object,
    ) -> None:
        module = cast("_Module", import_extra("sentence_transformers", "sentence-transformers", type(self).__name__))
        self._model = load_model(lambda: module.SentenceTransformer(model, **options), model)
        self._lock = Lock()  # a model need not be thread-safe, and uses all cores for one call
        self._prefixes: dict[Kind, str | None] = {"query": query_prefix, "document": document_prefix}
        self.model: Final = name or stored_name(f"sentence-transformers:{model}", document_prefix or "")
        # Probe both kinds: some models have separate parts for questions.
        probes = load_model(lambda: self._ask(["a"], "document") + self._ask(["a"], "query"), model)
        self.dimension: Final = len(_array(probes[0]["sentence_embedding"]))
        self._has_tokens = all(_has_tokens(probe, self.dimension) for probe in probes)
        self._special = _special_tokens(self._model.tokenizer) if self._has_tokens else (0, 0)

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """Return the vectors of ``texts``. Raises the model's errors. Pooled vectors include special tokens."""
        pooled = np.zeros((len(texts), self.dimension), np.float32)
        tokens: dict[int, Vectors] = {}
        for batch in batches([len(text) for text in texts], CHARACTERS_AT_ONCE):
            for at, features in zip(batch, self._ask([texts[at] for at in batch], kind), strict=True):
                pooled[at] = _array(features["sentence_embedding"])
                if self._has_tokens:
                    tokens[at] = self._tokens(features)
        return Embeddings(pooled, tuple(tokens[at] for at in range(len(texts))) if self._has_tokens else None)

    def _ask(self, texts: list[str], kind: Kind) -> list[Mapping[str, _Tensor]]:
        encode = self._model.encode_query if kind == "query" else self._model.encode_document
        with self._lock:
            return encode(texts, prompt=self._prefixes[kind], output_value=None, show_progress_bar=False)

    def _tokens(self, features: Mapping[str, _Tensor]) -> Vectors:
        real = _array(features["token_embeddings"])[
            _array(features["attention_mask"]) > 0
        ]  # padding may be on either side
        first, last = self._special
        return real[first : max(len(real) - last, first)]


def _has_tokens(features: Mapping[str, _Tensor], dimension: int) -> bool:
    if not {"token_embeddings", "attention_mask"} <= features.keys():
        return False
    return _array(features["token_embeddings"]).shape == (len(_array(features["attention_mask"])), dimension)


def _special_tokens(tokenizer: object) -> tuple[int, int]:
    """Return how many special tokens the tokenizer puts before and after a text."""
    if not callable(tokenizer):
        return 0, 0
    (mask,) = cast("_Tokenizer", tokenizer)(["a"], return_special_tokens_mask=True)["special_tokens_mask"]
    text = mask.index(0)
    return text, mask[::-1].index(0)


def _array(tensor: _Tensor) -> Vectors:
    return tensor.detach().cpu().float().numpy()
