"""Embeds texts with an endpoint that has OpenAI's embeddings API: OpenAI or another server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol, cast

import numpy as np

from agent_memory_log.recall.adapters.extras import import_extra
from agent_memory_log.recall.adapters.texts import stored_name
from agent_memory_log.recall.embedding import Embeddings, Kind

MOST_AT_ONCE: Final = 256
"""The maximum number of texts in one request. It is the smallest limit that we know of a server."""

MOST_BYTES_AT_ONCE: Final = 256_000
"""The maximum size of a request in bytes. OpenAI accepts 300,000 tokens, and a token has at least one byte."""

LONGEST_TEXT: Final = 8_000
"""The default maximum of a text in bytes. OpenAI's models refuse a request with a text of more than 8,192 tokens."""


class _Datum(Protocol):
    index: int
    embedding: list[float]


class _Answer(Protocol):
    data: list[_Datum]


class _Endpoint(Protocol):
    def create(self, *, model: str, input: list[str], encoding_format: str) -> _Answer: ...  # noqa: A002  # its name


class _Client(Protocol):
    embeddings: _Endpoint

    def close(self) -> None: ...


class _Module(Protocol):
    def OpenAI(self, *, base_url: str | None, api_key: str | None, timeout: float) -> _Client: ...  # noqa: N802  # its name


class OpenAICompatibleEmbedder:
    """An embedder that calls an OpenAI-compatible endpoint. It gives pooled vectors and needs the extra ``memory``.

    Args:
        model: The model's name at the endpoint.
        dimension: The length of its vectors.
        base_url: The endpoint; by default the client reads ``OPENAI_BASE_URL``.
        api_key: The key; by default the client reads ``OPENAI_API_KEY``.
        timeout: The timeout of a request in seconds. Default 30.
        query_prefix: The text before each query, for models that were trained with one.
        document_prefix: The same for documents.
        longest_text: The maximum number of bytes of a text; the rest is cut. Default 8,000.
    """

    def __init__(
        self,
        model: str,
        dimension: int,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 30.0,
        query_prefix: str = "",
        document_prefix: str = "",
        longest_text: int = LONGEST_TEXT,
    ) -> None:
        module = cast("_Module", import_extra("openai", "memory", type(self).__name__))
        self._client = module.OpenAI(base_url=base_url, api_key=api_key, timeout=timeout)
        self._prefixes: dict[Kind, str] = {"query": query_prefix, "document": document_prefix}
        self._requested_model = model
        self._longest = longest_text
        self.model: Final = stored_name(model, document_prefix)
        self.dimension: Final = dimension

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """Return the vectors of ``texts``. Raises the client's errors."""
        rows: list[list[float]] = []
        for part in self._requests(texts, self._prefixes[kind]):
            answer = self._client.embeddings.create(model=self._requested_model, input=part, encoding_format="float")
            rows += [datum.embedding for datum in sorted(answer.data, key=lambda datum: datum.index)]
        return Embeddings(np.asarray(rows, np.float32).reshape(len(rows), -1))

    def _requests(self, texts: Sequence[str], prefix: str) -> Iterator[list[str]]:
        part: list[str] = []
        size = 0
        for text in texts:
            # Some servers refuse an empty text.
            sent = (prefix + text or " ").encode(errors="replace")[: self._longest].decode(errors="ignore")
            length = len(sent.encode())
            if part and (len(part) == MOST_AT_ONCE or size + length > MOST_BYTES_AT_ONCE):
                yield part
                part, size = [], 0
            part.append(sent)
            size += length
        if part:
            yield part

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
