"""Sends operations to a store that carries them out itself, and embeds texts and queries for it on this machine."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.memory.operations import MOST_QUERY, BuildContext, ListTextsToEmbed, Search, StoreVectors
from agent_memory_log.memory.records.arguments import Operation, Result
from agent_memory_log.memory.records.reports.outcomes import Hits, MemoryContext, without_embedding
from agent_memory_log.memory.records.vectors import TextToEmbed, TextVectors
from agent_memory_log.memory.search.searching import embed_query
from agent_memory_log.memory.stream.context import Served
from agent_memory_log.steps import Steps, StoreCall, work

if TYPE_CHECKING:
    from agent_memory_log.recall import Embedded, Embedder

_AT_ONCE_CHARACTERS = 4 * 1024 * 1024
"""About the most characters of vectors in one call."""

_ROUNDS = 1_000
"""The most lists of texts that are embedded for one search. The next search continues."""

_BY_WORDS = "texts without vectors were compared by words"


def execute_on_server(operation: Operation[Result], context: Served) -> Steps[Result]:
    """Let the store execute an operation. If this machine has an embedder, the vectors of a search come from here."""
    call: object = operation
    if isinstance(call, (Search, BuildContext)) and context.embedder is not None and call.vectors is None:
        result = yield from _with_vectors(call, context, context.embedder)
        return cast("Result", result)
    return (yield from _sent(operation, context))


def _sent(operation: Operation[Result], context: Served) -> Steps[Result]:
    return cast("Result", (yield StoreCall("execute_memory", (operation, context.principal), {})))


def _with_vectors(call: Search | BuildContext, context: Served, embedder: Embedder) -> Steps[Hits | MemoryContext]:
    """Send a query with its vectors. If texts without vectors were compared, embed them and send the query again.

    If the embedder fails, words alone are compared. The result then has a note, as that of an embedded store.
    """
    if not call.query.strip():
        return (yield from _sent(_either(call), context))
    from agent_memory_log.memory.search.packing import sent_query  # noqa: PLC0415  # needs the extra recall

    embedded, fixed = yield from work(lambda: embed_query(embedder, call.query[:MOST_QUERY]))
    note = embedded.note
    if not note:
        with_vectors = _either(msgspec.structs.replace(call, vectors=sent_query(embedded)))
        result = yield from _sent(with_vectors, context)
        if not result.scopes_to_embed:
            return result
        try:
            note = yield from _embed_texts(result.scopes_to_embed, context, fixed)
        except AgentMemoryLogError as error:
            return without_embedding(result, f"{_BY_WORDS}: {error}")
        if not note:
            result = yield from _sent(with_vectors, context)
            return without_embedding(result, _BY_WORDS) if result.scopes_to_embed else result
    return without_embedding((yield from _sent(_either(call), context)), note)


def _either(call: Search | BuildContext) -> Operation[Hits | MemoryContext]:
    """Return the call with the results of both types, which a type parameter cannot hold."""
    return cast("Operation[Hits | MemoryContext]", call)


def _embed_texts(scopes: Sequence[str], context: Served, embedder: Embedder) -> Steps[str]:
    """Embed the texts of scopes, and store their vectors. Returns a note about a failure of the embedder, or ``""``."""
    from agent_memory_log.recall import embed  # noqa: PLC0415  # needs the extra recall

    model, dimension = embedder.model, embedder.dimension
    previous: Sequence[TextToEmbed] = ()
    for _ in range(_ROUNDS):
        texts = yield from _sent(ListTextsToEmbed(model, dimension, scopes=tuple(scopes)), context)
        if not texts or texts == previous:
            break
        embedded = yield from work(lambda: embed(embedder, [text.text for text in texts], "document"))  # noqa: B023  # called at once
        if embedded.embeddings is None:
            return embedded.note
        parts = yield from work(lambda: list(_parts(texts, embedded)))  # noqa: B023  # called at once
        for vectors in parts:
            yield from _sent(StoreVectors(model, dimension, vectors), context)
        previous = texts
    return ""


def _parts(texts: Sequence[TextToEmbed], embedded: Embedded) -> Iterator[tuple[TextVectors, ...]]:
    """Yield the vectors of texts, as many in each part as one call takes."""
    from agent_memory_log.memory.search.packing import pack  # noqa: PLC0415  # needs the extra recall

    embeddings = embedded.embeddings
    assert embeddings is not None, "the texts were not embedded"  # noqa: S101  # the caller checks it
    part: list[TextVectors] = []
    size = 0
    for row, text in enumerate(texts):
        packed = pack(embeddings.pooled[row], None if embeddings.tokens is None else embeddings.tokens[row])
        rows = b64encode(packed).decode()
        size += len(rows)
        if part and size > _AT_ONCE_CHARACTERS:
            yield tuple(part)
            part, size = [], len(rows)
        part.append(TextVectors(text.scope, rows, text.record, text.agent, text.run, text.seq))
    yield tuple(part)
