"""Vectors from an endpoint that speaks OpenAI's embeddings protocol: OpenAI itself, or a server of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, cast

import numpy as np

from agent_memory_log.memory.recall.adapters.extras import import_extra
from agent_memory_log.memory.recall.embedding import Embeddings, Kind

MOST_AT_ONCE: Final = 256
"""Texts in one request: servers limit them, the smallest known limit being this."""


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
    """The ``model`` of an endpoint, with pooled vectors of ``dimension``; needs the extra ``memory``.

    ``base_url`` and ``api_key`` default to what the environment gives the client (``OPENAI_BASE_URL``,
    ``OPENAI_API_KEY``). ``timeout`` is in seconds. The prefixes stand before each text of their kind, for models that
    were trained with them.
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
    ) -> None:
        module = cast("_Module", import_extra("openai", "memory", type(self).__name__))
        self._client = module.OpenAI(base_url=base_url, api_key=api_key, timeout=timeout)
        self._prefixes: dict[Kind, str] = {"query": query_prefix, "document": document_prefix}
        self.model: Final = model
        self.dimension: Final = dimension

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """The vectors of ``texts``; raises what the client raises."""
        rows: list[list[float]] = []
        for start in range(0, len(texts), MOST_AT_ONCE):
            # An empty text is refused by some servers, and means nothing to any.
            part = [self._prefixes[kind] + text or " " for text in texts[start : start + MOST_AT_ONCE]]
            answer = self._client.embeddings.create(model=self.model, input=part, encoding_format="float")
            rows += [datum.embedding for datum in sorted(answer.data, key=lambda datum: datum.index)]
        return Embeddings(np.asarray(rows, np.float32).reshape(len(rows), -1))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
