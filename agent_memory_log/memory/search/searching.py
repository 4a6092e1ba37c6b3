"""Searches records and the messages of linked runs, by words and, with an embedder, by vectors.

With the extra ``recall``, each subject has a warm index. Without the extra, a search returns only records that share
words with the query, and no messages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.operations import Search
from agent_memory_log.memory.records.kinds import Preference, fold_key, fold_keys
from agent_memory_log.memory.records.messages import MESSAGE, RunMessage
from agent_memory_log.memory.records.record import Record
from agent_memory_log.memory.records.reports import Hit, Hits
from agent_memory_log.memory.search.index_files import index_maker
from agent_memory_log.memory.search.reading import active_records
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.state import State
from agent_memory_log.steps import Steps, work

if TYPE_CHECKING:
    from agent_memory_log.memory.search.warm_index import WarmIndex
    from agent_memory_log.recall import DocumentHit, Embedded, Embedder

_NO_MESSAGES = "no messages were searched: pip install 'agent-memory-log[recall]'"

SHARED_WORDS = "shared_words"
"""The key in ``matched_by`` for the share of the query's words that a record contains. Only used without an index."""

_BOOST = 0.5
"""The score that a boosted preference gains, even if it shares no word with the query. An index adds the same."""

_words = re.compile(r"\w+").findall

_COMPARED_DIGITS = 9
"""The number of decimal places to which scores are compared. An index compares the same number."""


def search(context: Context, call: Search) -> Steps[Hits]:
    """Return the best hits of several scopes.

    Scores of different scopes are compared directly, because each score is a share of the whole query.
    """
    (hits,) = yield from search_each(context, [call], context.readable(call.scopes))
    return hits


def search_each(context: Context, calls: Sequence[Search], scopes: tuple[str, ...]) -> Steps[list[Hits]]:
    """Return the hits of several searches for one query. New events are read once, and the query is embedded once.

    Raises:
        InvalidArgument: An embedder is given and the extra ``recall`` is not installed, or the embedder has no
            method ``embed``.
    """
    make = index_maker()
    embedder = context.hooks.embedder
    if make is None:
        if embedder is not None:
            raise InvalidArgument("an embedder needs the extra recall: pip install 'agent-memory-log[recall]'")
        return (yield from _search_without_index(context, calls, scopes))
    if embedder is not None and not callable(getattr(embedder, "embed", None)):
        raise InvalidArgument(
            f"expected an embedder with model, dimension and embed(texts, kind), got {describe(embedder)}"
        )
    subjects = [context.subject(scope) for scope in scopes]
    with context.indexes.of(subjects, lambda subject: make(subject, context.indexes.folder)) as indexes:
        note, embedded = yield from _prepared(indexes, embedder, calls[0].query)
        now = context.hooks.now()
        hits_of_searches: list[Hits] = []
        for call in calls:
            hits: list[Hit] = []
            for scope, index in zip(scopes, indexes, strict=True):
                hits += yield from _search_index(index, call, scope, now, embedded)
            hits_of_searches.append(Hits(_best(_without_duplicates(hits), call.top_k), note))
    return hits_of_searches


def _search_index(
    index: WarmIndex, call: Search, scope: str, now: datetime, embedded: Embedded | None
) -> Steps[list[Hit]]:
    while (matches := (yield from work(lambda: index.search(call, now, embedded)))) is None:
        yield from index.refresh(None)
    return index.subject.ask(
        lambda state: [hit for match in matches if (hit := _hit_of(*match, state, scope, now)) is not None]
    )


def _hit_of(match: DocumentHit, message: RunMessage | None, state: State, scope: str, now: datetime) -> Hit | None:
    """Return a match as a hit. Returns None if it was forgotten meanwhile, for example while the embedder worked."""
    if message is not None:
        is_searchable = state.may_find(message.agent, message.run, message.seq)
        return Hit(match.score, match.matched_by, None, message) if is_searchable else None
    live = state.active(match.id, now)
    return None if live is None else Hit(match.score, match.matched_by, live.record(scope, now))


def _prepared(
    indexes: Sequence[WarmIndex], embedder: Embedder | None, query: str
) -> Steps[tuple[str, Embedded | None]]:
    """Bring the indexes up to date, and embed the query.

    Returns a note and the query's vectors. The note says why vectors were not compared; then the vectors are None.
    """
    if embedder is None or not query.strip():
        for index in indexes:
            yield from index.refresh(None)
        return "", None
    embedded, fixed = yield from work(lambda: _embed_query(embedder, query))
    note = embedded.note
    for index in indexes:
        yield from index.refresh(None if note else fixed)
        if not note:
            note = yield from index.embed_lacking(fixed)
    return note, None if note else embedded


def _embed_query(embedder: Embedder, query: str) -> tuple[Embedded, Embedder]:
    """Return the query's vectors, or a note why embedding failed, and the embedder fixed to that model."""
    from agent_memory_log.recall import Fixed, embed  # noqa: PLC0415  # as in index_maker

    embedded = embed(embedder, [query], "query")
    return embedded, Fixed(embedder, embedded.model)


def _search_without_index(context: Context, calls: Sequence[Search], scopes: tuple[str, ...]) -> Steps[list[Hits]]:
    records: list[Record] = []
    for scope in scopes:
        records += yield from active_records(context, context.subject(scope), None)
    return [
        Hits(
            _best(_sharing_words(records, call), call.top_k),
            _NO_MESSAGES if call.kinds is None or MESSAGE in call.kinds else "",
        )
        for call in calls
    ]


def _sharing_words(records: Sequence[Record], call: Search) -> list[Hit]:
    """Return the records that share words with the query. The score is the share of the query's words."""
    kinds = None if call.kinds is None else frozenset(call.kinds)
    words, boosted = frozenset(_words(call.query.casefold())), fold_keys(call.boost_preferences)
    hits = (
        _shared_words(record, words, boosted)
        for record in records
        if (kinds is None or record.kind in kinds) and _is_within(record, call)
    )
    return [hit for hit in hits if hit is not None]


def _is_within(record: Record, call: Search) -> bool:
    time = record.valid_from or record.created
    return (
        record.stars >= call.min_importance
        and (call.since is None or time >= call.since)
        and (call.until is None or time < call.until)
    )


def _shared_words(record: Record, words: frozenset[str], boosted: frozenset[str]) -> Hit | None:
    """Return the record as a hit, or None if it shares no word and is not boosted."""
    text = " ".join((record.text, record.key.replace("_", " "), *record.tags, *record.entities))
    shared = len(words.intersection(_words(text.casefold())))
    parts: dict[str, float] = {}
    if record.kind == Preference.kind and fold_key(record.key) in boosted:
        parts["preference"] = _BOOST
    if shared:
        parts[SHARED_WORDS] = shared / len(words)
    return Hit(sum(parts.values()), parts, record) if parts else None


def _without_duplicates(hits: list[Hit]) -> list[Hit]:
    """Keep each message's best hit. A message has several hits if its run is linked to several scopes."""
    best: dict[str, Hit] = {}
    for hit in hits:
        if hit.id not in best or hit.score > best[hit.id].score:
            best[hit.id] = hit
    return list(best.values())


def _best(hits: list[Hit], top_k: int) -> list[Hit]:
    """Return the first ``top_k`` hits by score, then by score without boosts, then newest first."""
    hits.sort(key=lambda hit: (-round(hit.score, _COMPARED_DIGITS), -_unboosted(hit), -_time(hit)))
    return hits[:top_k]


def _unboosted(hit: Hit) -> float:
    return hit.matched_by.get("words", 0.0) + hit.matched_by.get("vectors", 0.0)


def _time(hit: Hit) -> float:
    if hit.record is not None:
        return (hit.record.valid_from or hit.record.created).timestamp()
    return 0.0 if hit.message is None else hit.message.time.timestamp()
