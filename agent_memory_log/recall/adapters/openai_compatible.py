"""Vectors from an endpoint that speaks OpenAI's embeddings protocol: OpenAI itself, or a server of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol, cast

import numpy as np

from agent_memory_log.recall.adapters.extras import import_extra
from agent_memory_log.recall.adapters.texts import stored_name
from agent_memory_log.recall.embedding import Embeddings, Kind

MOST_AT_ONCE: Final = 256
"""Texts in one request: servers limit them, the smallest known limit being this."""

MOST_BYTES_AT_ONCE: Final = 256_000
"""Bytes in one request: OpenAI takes 300,000 tokens, and no tokenizer makes more tokens of a text than it has bytes."""

LONGEST_TEXT: Final = 8_000
"""Bytes of a text that are sent: OpenAI's models take 8,192 tokens, and refuse a whole request for one longer text."""


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
    were trained with them. ``longest_text`` is how many bytes of a text are sent, for servers that refuse longer ones.
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
        self._asked = model
        self._longest = longest_text
        self.model: Final = stored_name(model, document_prefix)
        self.dimension: Final = dimension

    def embed(self, texts: Sequence[str], kind: Kind) -> Embeddings:
        """The vectors of ``texts``; raises what the client raises."""
        rows: list[list[float]] = []
        for part in self._requests(texts, self._prefixes[kind]):
            answer = self._client.embeddings.create(model=self._asked, input=part, encoding_format="float")
            rows += [datum.embedding for datum in sorted(answer.data, key=lambda datum: datum.index)]
        return Embeddings(np.asarray(rows, np.float32).reshape(len(rows), -1))

    def _requests(self, texts: Sequence[str], prefix: str) -> Iterator[list[str]]:
        part: list[str] = []
        size = 0
        for text in texts:
            # An empty text is refused by some servers, and means nothing to any.
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
