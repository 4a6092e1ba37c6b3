"""Sends operations to a store that carries them out itself, and embeds texts and queries for it on this machine."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from agent_memory_log.errors import AccessDenied
from agent_memory_log.memory.operations import BuildContext, ListTextsToEmbed, Search, StoreVectors
from agent_memory_log.memory.records.arguments import Operation, Result
from agent_memory_log.memory.records.reports.outcomes import Hits, MemoryContext
from agent_memory_log.memory.records.vectors import TextToEmbed, TextVectors
from agent_memory_log.memory.search.searching import check_embedder, embed_query
from agent_memory_log.memory.stream.context import Served
from agent_memory_log.steps import Steps, StoreCall, work

if TYPE_CHECKING:
    from agent_memory_log.recall import Embedded, Embedder

_AT_ONCE_CHARACTERS = 4 * 1024 * 1024
"""About the most characters of vectors in one call."""

_ATTEMPTS = 100

_READ_ONLY = "texts without vectors were compared by words, because the token may not write"
_REPLACED = "other clients kept changing the texts while they were embedded, words alone were compared"


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
    """Embed a query and the texts without vectors, and send the query with its vectors.

    If this fails, words alone are compared. The result then has a note, as that of an embedded store.
    """
    check_embedder(embedder)
    if not call.query.strip():
        return (yield from _sent(_either(call), context))
    from agent_memory_log.memory.search.packing import sent_query  # noqa: PLC0415  # needs the extra recall

    embedded, fixed = yield from work(lambda: embed_query(embedder, call.query))
    note = embedded.note
    if not note:
        note = yield from _embed_lacking(call, context, fixed)
    if not note or note == _READ_ONLY:
        call = msgspec.structs.replace(call, vectors=sent_query(embedded))
    result = yield from _sent(_either(call), context)
    if isinstance(result, Hits):
        return Hits(result, result.note or note)
    return msgspec.structs.replace(result, note=result.note or note)


def _either(call: Search | BuildContext) -> Operation[Hits | MemoryContext]:
    """Return the call with the results of both types, which a type parameter cannot hold."""
    return cast("Operation[Hits | MemoryContext]", call)


def _embed_lacking(call: Search | BuildContext, context: Served, embedder: Embedder) -> Steps[str]:
    """Embed the texts that a search covers, and store their vectors. Returns a note about a failure, or ``""``."""
    from agent_memory_log.recall import embed  # noqa: PLC0415  # needs the extra recall

    model, dimension = embedder.model, embedder.dimension
    attempts = 0
    while True:
        texts = yield from _sent(ListTextsToEmbed(model, dimension, scopes=call.scopes), context)
        if not texts:
            return ""
        try:
            yield from _sent(StoreVectors(model, dimension, ()), context)  # before the work of the model
        except AccessDenied:
            return _READ_ONLY
        embedded = yield from work(lambda: embed(embedder, [text.text for text in texts], "document"))  # noqa: B023  # called at once
        if embedded.embeddings is None:
            return embedded.note
        stored = 0
        for vectors in _parts(texts, embedded):
            stored += (yield from _sent(StoreVectors(model, dimension, vectors), context)).stored
        attempts = 0 if stored else attempts + 1
        if attempts == _ATTEMPTS:
            return _REPLACED


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
