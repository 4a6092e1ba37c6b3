"""Lists texts without vectors for a caller that embeds them, and stores and drops their vectors."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory.operations import DropVectors, ListTextsToEmbed, StoreVectors
from agent_memory_log.memory.records.principals import VECTORS_RUN
from agent_memory_log.memory.records.vectors import TextToEmbed, VectorsReport
from agent_memory_log.memory.search.index_files import index_maker
from agent_memory_log.memory.search.searching import NEEDS_RECALL
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.payloads import MemoryVectors
from agent_memory_log.memory.stream.vectors import VECTOR_TYPES
from agent_memory_log.steps import Steps, load, redact, work

if TYPE_CHECKING:
    from agent_memory_log.memory.search.warm_index import WarmIndex

MOST_TEXTS = 128
"""The most texts in one call. An embedder gets as many at once."""

_MOST_CHARACTERS = 1_000_000
_DROPPED = "vectors dropped"


def texts_to_embed(context: Context, call: ListTextsToEmbed) -> Steps[tuple[TextToEmbed, ...]]:
    """Return texts that have no vectors of a model, within the limits of a result."""
    model = _model(call)
    scopes = context.readable(call.scopes)
    texts: list[TextToEmbed] = []
    size = 0
    with _indexes_of(context, scopes) as indexes:
        for scope, index in zip(scopes, indexes, strict=True):
            for name, text in (yield from index.lacking(model, call.limit)):
                size += len(text)
                if len(texts) == call.limit or (texts and size > _MOST_CHARACTERS):
                    return tuple(texts)
                texts.append(TextToEmbed(scope, text, *name))
    return tuple(texts)


def store_vectors(context: Context, call: StoreVectors) -> Steps[VectorsReport]:
    """Store the vectors of texts, after a check of all of them."""
    model = _model(call)
    by_scope = yield from work(lambda: _checked(call))
    scopes = context.readable(by_scope)
    stored = 0
    with _indexes_of(context, scopes) as indexes:
        for index in indexes:
            yield from index.check_model(model)
        for scope, index in zip(scopes, indexes, strict=True):
            stored += yield from index.store(model, by_scope[scope])
    return VectorsReport(stored, len(call.vectors) - stored)


def drop_vectors(context: Context, call: DropVectors) -> Steps[int]:
    """Redact the stored vectors of scopes. Every index leaves them out when it reads the redaction."""
    count = 0
    for scope in context.readable(call.scopes):
        agent = context.subject(scope).agent
        stored = yield from load(agent, VECTORS_RUN, types=VECTOR_TYPES)
        seqs = tuple(event.seq for event in stored.log)
        if seqs:
            yield from redact(agent, VECTORS_RUN, seqs, _DROPPED)
        count += len(seqs)
    return count


def _model(call: ListTextsToEmbed | StoreVectors) -> tuple[str, int]:
    """Return the model of a call. Raises ``InvalidArgument`` if its name is invalid, or without the extra."""
    if index_maker() is None:
        raise InvalidArgument(NEEDS_RECALL)
    from agent_memory_log.memory.search.packing import check_model_name  # noqa: PLC0415  # needs the extra recall

    check_model_name(call.model, "model")
    return call.model, call.dimension


@contextmanager
def _indexes_of(context: Context, scopes: Iterable[str]) -> Generator[Sequence[WarmIndex]]:
    make = index_maker()
    assert make is not None, "_model checks this"  # noqa: S101  # see above
    subjects = [context.subject(scope) for scope in scopes]
    with context.indexes.of(subjects, lambda subject: make(subject, context.indexes.folder)) as indexes:
        yield indexes


def _checked(call: StoreVectors) -> dict[str, list[MemoryVectors]]:
    """Return the vectors of a call by scope. Raises ``InvalidArgument`` with the name of an invalid one."""
    from agent_memory_log.memory.search.packing import MOST_BYTES, decoded_rows  # noqa: PLC0415  # as above

    if len(call.vectors) > MOST_TEXTS:
        raise InvalidArgument(f"vectors must be those of at most {MOST_TEXTS} texts, got {len(call.vectors):,}")
    by_scope: dict[str, list[MemoryVectors]] = {}
    for number, item in enumerate(call.vectors):
        rows = decoded_rows(item.rows, call.dimension, MOST_BYTES, f"vectors[{number}].rows")
        data = MemoryVectors(call.model, call.dimension, rows, item.seq, item.record, item.agent, item.run)
        by_scope.setdefault(item.scope, []).append(data)
    return by_scope
