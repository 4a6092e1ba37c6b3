"""A BERT sentence model that needs only numpy, not a framework. It also gives token vectors.

Small models are fast enough: a message takes some milliseconds with six layers of dimension 384. The folder has the
format of a sentence-transformers model: ``config.json``, ``tokenizer.json`` and ``model.safetensors`` (such as
all-MiniLM-L6-v2 or multilingual-e5-small). The pooled vector is the mean of the token vectors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent_memory_log.recall.adapters.extras import import_extra, load_model
from agent_memory_log.recall.adapters.texts import TOKENS_AT_ONCE, batches, stored_name
from agent_memory_log.recall.embedding import Embeddings, Kind, Vectors

_HIDDEN: Final = np.float32(-1e9)
"""The value that is added to the attention scores of padding, so that padding gets no attention."""


_WORD: Final = re.compile(r"\w+")


class _Config(msgspec.Struct, frozen=True):
    num_hidden_layers: int
    num_attention_heads: int
    hidden_size: int
    max_position_embeddings: int = 512
    layer_norm_eps: float = 1e-12


class _Encoding(Protocol):
    ids: list[int]
    special_tokens_mask: list[int]
    offsets: list[tuple[int, int]]


class _Tokenizer(Protocol):
    def encode_batch(self, input: list[str]) -> list[_Encoding]: ...  # noqa: A002  # its name

    def enable_truncation(self, max_length: int) -> None: ...

    def no_padding(self) -> None: ...


class _TokenizerType(Protocol):
    def from_file(self, path: str) -> _Tokenizer: ...


class _Tokenizers(Protocol):
    Tokenizer: _TokenizerType


class _Safetensors(Protocol):
    def load_file(self, filename: str) -> dict[str, Vectors]: ...


class BertEmbedder:
    """An embedder that runs a BERT model from a folder. It needs the extra ``bert`` (tokenizers and safetensors).

    Args:
        folder: The folder with the model's files.
        model: The name of the model; vectors are stored under it.
        longest: The maximum number of tokens of a text; the rest is cut. Default 256.
        query_prefix: The text before each query, for models that were trained with one (``"query: "``).
        document_prefix: The same for documents.

    Raises:
        ModelUnavailable: The folder has no such model.
        InvalidArgument: The extra is not installed.
    """

    def __init__(
        self, folder: Path | str, model: str, *, longest: int = 256, query_prefix: str = "", document_prefix: str = ""
    ) -> None:
        tokenizers = cast("_Tokenizers", import_extra("tokenizers", "bert", type(self).__name__))
        safetensors = cast("_Safetensors", import_extra("safetensors.numpy", "bert", type(self).__name__))
        path = Path(folder)
        self._config = load_model(lambda: msgspec.json.decode((path / "config.json").read_bytes(), type=_Config), model)
        self._tokenizer = load_model(lambda: tokenizers.Tokenizer.from_file(str(path / "tokenizer.json")), model)
        weights = load_model(lambda: safetensors.load_file(str(path / "model.safetensors")), model)
        self._tokenizer.enable_truncation(min(longest, self._config.max_position_embeddings))
        self._tokenizer.no_padding()
        self._layers = _Layers(self._config, weights)
        self._prefixes: dict[Kind, str] = {"query": query_prefix, "document": document_prefix}
        self.model: Final = stored_name(model, document_prefix)
        self.dimension: Final = self._config.hidden_size

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """Return the vectors of ``texts``. Special tokens count only for the pooled vectors."""
        prefixed = [self._prefixes[kind] + text for text in texts]
        encoded = self._tokenizer.encode_batch(prefixed)
        pooled = np.zeros((len(texts), self.dimension), np.float32)
        tokens: dict[int, Vectors] = {}
        for batch in batches([len(encoding.ids) for encoding in encoded], TOKENS_AT_ONCE):
            states = self._layers.run([encoded[at].ids for at in batch])
            for at, state in zip(batch, states, strict=True):
                pooled[at] = state.mean(axis=0)
                tokens[at] = state[np.asarray(encoded[at].special_tokens_mask) == 0]
        words = tuple(_words(*pair) for pair in zip(prefixed, encoded, strict=True)) if kind == "query" else None
        return Embeddings(pooled, tuple(tokens[at] for at in range(len(texts))), words)


def _words(text: str, encoding: _Encoding) -> tuple[str, ...]:
    """Return the word of the text that each token is part of, without special tokens."""
    spans = {at: word.group() for word in _WORD.finditer(text) for at in range(*word.span())}
    return tuple(
        spans.get(start, "")
        for (start, _), is_special in zip(encoding.offsets, encoding.special_tokens_mask, strict=True)
        if not is_special
    )


class _Layers:
    def __init__(self, config: _Config, weights: Mapping[str, Vectors]) -> None:
        self._config = config
        self._weights = weights

    def run(self, texts: Sequence[Sequence[int]]) -> list[Vectors]:
        """Return the last layer's state of each text (tokens x dimension)."""
        longest = max(len(ids) for ids in texts)
        padded = np.zeros((len(texts), longest), np.int64)
        hidden = np.full((len(texts), 1, 1, longest), _HIDDEN)
        for row, ids in enumerate(texts):
            padded[row, : len(ids)] = ids
            hidden[row, ..., : len(ids)] = 0
        state = self._embedded(padded)
        for layer in range(self._config.num_hidden_layers):
            state = self._layer(state, hidden, f"encoder.layer.{layer}.")
        return [state[row, : len(ids)] for row, ids in enumerate(texts)]

    def _embedded(self, ids: NDArray[np.int64]) -> Vectors:
        weights = self._weights
        words = weights["embeddings.word_embeddings.weight"][ids]
        positions = weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        return self._norm(
            words + positions + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm"
        )

    def _layer(self, state: Vectors, hidden: Vectors, name: str) -> Vectors:
        attended = self._dense(self._attention(state, hidden, name), f"{name}attention.output.dense")
        state = self._norm(attended + state, f"{name}attention.output.LayerNorm")
        inner = _gelu(self._dense(state, f"{name}intermediate.dense"))
        return self._norm(self._dense(inner, f"{name}output.dense") + state, f"{name}output.LayerNorm")

    def _attention(self, state: Vectors, hidden: Vectors, name: str) -> Vectors:
        heads = self._config.num_attention_heads
        texts, tokens, dimension = state.shape
        query, key, value = (
            self._dense(state, f"{name}attention.self.{part}")
            .reshape(texts, tokens, heads, dimension // heads)
            .transpose(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        weights = query @ key.transpose(0, 1, 3, 2) / np.float32(math.sqrt(dimension // heads)) + hidden
        weights = np.exp(weights - weights.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed: Vectors = (weights @ value).transpose(0, 2, 1, 3).reshape(texts, tokens, dimension)
        return mixed

    def _dense(self, state: Vectors, name: str) -> Vectors:
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, state: Vectors, name: str) -> Vectors:
        centered = state - state.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centered * centered).mean(axis=-1, keepdims=True) + np.float32(self._config.layer_norm_eps))
        normal: Vectors = centered / spread
        return normal * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def _gelu(state: Vectors) -> Vectors:
    # numpy has no error function. This polynomial has an error below 1.5e-7 (Abramowitz and Stegun 7.1.26).
    size = np.abs(state) * np.float32(math.sqrt(0.5))
    step: Vectors = np.float32(1) / (np.float32(1) + np.float32(0.3275911) * size)
    factors = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    polynomial: Vectors = np.zeros_like(state)
    for factor in factors:
        polynomial = (polynomial + np.float32(factor)) * step
    error: Vectors = np.copysign(np.float32(1) - polynomial * np.exp(-size * size), state)
    return (np.float32(0.5) * state * (np.float32(1) + error)).astype(np.float32)
