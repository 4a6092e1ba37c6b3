"""Searching: records and the messages of linked runs, by words, by vectors where there is an embedder.

With the extra ``recall`` each subject has an index that is kept warm. Without it, the records that share words with the
question are found, and no messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.memory.operations import Search
from agent_memory_log.memory.records.kinds import Preference, fold_key, fold_keys
from agent_memory_log.memory.records.messages import MESSAGE, RunMessage
from agent_memory_log.memory.records.record import Record
from agent_memory_log.memory.records.reports import Hit, Hits
from agent_memory_log.memory.search.reading import active_records
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.state import State
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.steps import Steps, work

if TYPE_CHECKING:
    from agent_memory_log.memory.search.warm_index import WarmIndex
    from agent_memory_log.recall import DocumentHit, Embedded, Embedder

_NO_MESSAGES = "no messages were searched: pip install 'agent-memory-log[recall]'"

SHARED_WORDS = "shared_words"
"""What ``matched_by`` calls the share of the question's words that a record has, where there is no index."""

_BOOST = 0.5
"""What a preference gains whose key is boosted, whether it shares a word or not; as in an index."""

_words = re.compile(r"\w+").findall

_COMPARED_DIGITS = 9
"""Digits behind the point to which scores are compared, as in an index."""


def search(context: Context, call: Search) -> Steps[Hits]:
    """The best hits of several scopes. Their scores are compared as they are: each is a share of the whole question."""
    (hits,) = yield from search_each(context, [call], context.readable(call.scopes))
    return hits


def search_each(context: Context, several: Sequence[Search], scopes: tuple[str, ...]) -> Steps[list[Hits]]:
    """The hits of several searches for one query: what is new is read once, and the query embedded once."""
    make = _index_type()
    embedder = context.hooks.embedder
    if make is None:
        if embedder is not None:
            raise InvalidArgument("an embedder needs what is not installed: pip install 'agent-memory-log[recall]'")
        return (yield from _search_without_index(context, several, scopes))
    if embedder is not None and not callable(getattr(embedder, "embed", None)):
        raise InvalidArgument(f"embedder must have model, dimension and embed(texts, kind), found {describe(embedder)}")
    with context.indexes.of([context.subject(scope) for scope in scopes], make) as indexes:
        note, embedded = yield from _prepared(indexes, embedder, several[0].query)
        now = context.hooks.now()
        answers: list[Hits] = []
        for query in several:
            hits: list[Hit] = []
            for scope, index in zip(scopes, indexes, strict=True):
                hits += yield from _search_index(index, query, scope, now, embedded)
            answers.append(Hits(_best(_once(hits), query.top_k), note))
    return answers


def _search_index(
    index: WarmIndex, query: Search, scope: str, now: datetime, embedded: Embedded | None
) -> Steps[list[Hit]]:
    while (found := (yield from work(lambda: index.search(query, now, embedded)))) is None:
        yield from index.refresh(None)
    return index.subject.ask(
        lambda state: [hit for one in found if (hit := _hit_of(*one, state, scope, now)) is not None]
    )


def _hit_of(found: DocumentHit, message: RunMessage | None, state: State, scope: str, now: datetime) -> Hit | None:
    """What was found, as a hit; None where it was forgotten a moment ago, as while an embedder was asked."""
    if message is not None:
        is_there = state.may_find(message.agent, message.run, message.seq)
        return Hit(found.score, found.matched_by, None, message) if is_there else None
    live = state.active(found.id, now)
    return None if live is None else Hit(found.score, found.matched_by, live.record(scope, now))


@cache
def _index_type() -> Callable[[Subject], WarmIndex] | None:
    """The index that is kept warm; None without the extra. Imported when it is needed: numpy takes its time."""
    try:
        import agent_memory_log.recall  # noqa: F401, PLC0415  # pyright: ignore[reportUnusedImport]  # it says what is missing
    except InvalidArgument:
        return None
    from agent_memory_log.memory.search.warm_index import WarmIndex  # noqa: PLC0415  # see above

    return WarmIndex


def _prepared(
    indexes: Sequence[WarmIndex], embedder: Embedder | None, query: str
) -> Steps[tuple[str, Embedded | None]]:
    """Bring the indexes up to date; what went wrong with vectors, and those of the question if nothing did."""
    if embedder is None or not query.strip():
        for index in indexes:
            yield from index.refresh(None)
        return "", None
    embedded, fixed = yield from work(lambda: _embed_question(embedder, query))
    note = embedded.note
    for index in indexes:
        yield from index.refresh(None if note else fixed)
        if not note:
            note = yield from index.embed_lacking(fixed)
    return note, None if note else embedded


def _embed_question(embedder: Embedder, query: str) -> tuple[Embedded, Embedder]:
    """The vectors of a question, or why there are none; and the embedder, as that model."""
    from agent_memory_log.recall import Fixed, embed  # noqa: PLC0415  # as in _index_type

    embedded = embed(embedder, [query], "query")
    return embedded, Fixed(embedder, embedded.model)


def _search_without_index(context: Context, several: Sequence[Search], scopes: tuple[str, ...]) -> Steps[list[Hits]]:
    records: list[Record] = []
    for scope in scopes:
        records += yield from active_records(context, context.subject(scope), None)
    return [
        Hits(
            _best(_sharing_words(records, query), query.top_k),
            _NO_MESSAGES if query.kinds is None or MESSAGE in query.kinds else "",
        )
        for query in several
    ]


def _sharing_words(records: Sequence[Record], query: Search) -> list[Hit]:
    """The records that share words with the question, each by the share of the question's words that it has."""
    kinds = None if query.kinds is None else frozenset(query.kinds)
    words, boosted = frozenset(_words(query.query.casefold())), fold_keys(query.boost_preferences)
    hits = (
        _shared_words(record, words, boosted)
        for record in records
        if (kinds is None or record.kind in kinds) and _is_within(record, query)
    )
    return [hit for hit in hits if hit is not None]


def _is_within(record: Record, query: Search) -> bool:
    time = record.valid_from or record.created
    return (
        record.stars >= query.min_importance
        and (query.since is None or time >= query.since)
        and (query.until is None or time < query.until)
    )


def _shared_words(record: Record, words: frozenset[str], boosted: frozenset[str]) -> Hit | None:
    """The record as a hit. Returns None if it shares no word and is not boosted."""
    text = " ".join((record.text, record.key.replace("_", " "), *record.tags, *record.entities))
    shared = len(words.intersection(_words(text.casefold())))
    parts: dict[str, float] = {}
    if record.kind == Preference.kind and fold_key(record.key) in boosted:
        parts["preference"] = _BOOST
    if shared:
        parts[SHARED_WORDS] = shared / len(words)
    return Hit(sum(parts.values()), parts, record) if parts else None


def _once(hits: list[Hit]) -> list[Hit]:
    """A message once, by its best score: its run may be linked to several scopes."""
    best: dict[str, Hit] = {}
    for hit in hits:
        if hit.id not in best or hit.score > best[hit.id].score:
            best[hit.id] = hit
    return list(best.values())


def _best(hits: list[Hit], top_k: int) -> list[Hit]:
    """The first ones; of two alike the one that has more by itself, then the newer, and then as they came."""
    hits.sort(key=lambda hit: (-round(hit.score, _COMPARED_DIGITS), -_alone(hit), -_time(hit)))
    return hits[:top_k]


def _alone(hit: Hit) -> float:
    return hit.matched_by.get("words", 0.0) + hit.matched_by.get("vectors", 0.0)


def _time(hit: Hit) -> float:
    if hit.record is not None:
        return (hit.record.valid_from or hit.record.created).timestamp()
    return 0.0 if hit.message is None else hit.message.time.timestamp()
