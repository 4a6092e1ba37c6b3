"""Searches records and the messages of linked runs, by words and, with an embedder, by vectors.

With the extra ``recall``, each subject has a warm index. Without the extra, a search returns only records that share
words with the query, and no messages.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory.operations import MOST_QUERY, Search
from agent_memory_log.memory.records.kinds import Preference, fold_key, fold_keys
from agent_memory_log.memory.records.messages import MESSAGE, RunMessage
from agent_memory_log.memory.records.plans import Plan, Strategy
from agent_memory_log.memory.records.protocols import Reranker
from agent_memory_log.memory.records.record import Record
from agent_memory_log.memory.records.reports.outcomes import Hit, Hits
from agent_memory_log.memory.records.vectors import QueryVectors
from agent_memory_log.memory.search.index_files import index_maker
from agent_memory_log.memory.search.reading import active_records
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.state import State
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.steps import Steps, work

if TYPE_CHECKING:
    from agent_memory_log.memory.search.warm_index import WarmIndex
    from agent_memory_log.recall import DocumentHit, Embedded, Embedder

NEEDS_RECALL = "vectors and an embedder need the extra recall: pip install 'agent-memory-log[recall]'"

_NO_MESSAGES = "no messages were searched: pip install 'agent-memory-log[recall]'"

SHARED_WORDS = "shared_words"
"""The key in ``matched_by`` for the share of the query's words that a record contains. Only used without an index."""

_BOOST = 0.5
"""The score that a boosted preference gains, even if it shares no word with the query. An index adds the same."""

TOP_K = 4
"""The most hits of a search by default."""

MOST_INSTANCES = 50
"""The most hits by default if the question asks for every instance."""

INSTANCE = 0.3
"""The share of the best score that a hit needs to be an instance."""

PROFILE = 0.25
"""The gain of a preference or fact if the question is about the user. An index adds the same to the user's turns."""

TRACE = 0.5
"""The share of a record's score that the records get that it links to."""

RERANKED = 50
"""The fewest hits that a reranker compares."""
_words = re.compile(r"\w+").findall

_COMPARED_DIGITS = 9
"""The number of decimal places to which scores are compared. An index compares the same number."""


def search(context: Context, call: Search) -> Steps[Hits]:
    """Return the best hits of several scopes. Their scores can be compared: each is a share of the whole query."""
    call = msgspec.structs.replace(call, query=call.query[:MOST_QUERY])
    (hits,) = yield from search_each(context, [call], context.readable(call.scopes))
    return hits


def search_each(
    context: Context, calls: Sequence[Search], scopes: tuple[str, ...], *, with_changes: Search | None = None
) -> Steps[list[Hits]]:
    """Return the hits of several searches for one query. New events are read once, and the query is embedded once.

    The hits of ``with_changes`` are followed by the latest messages that may change what they say.

    Raises ``InvalidArgument`` if the extra ``recall`` is missing for an embedder.
    """
    make, embedder = index_maker(), context.hooks.embedder
    if make is None:
        if embedder is not None or calls[0].vectors is not None:
            raise InvalidArgument(NEEDS_RECALL)
        return (yield from _search_without_index(context, calls, scopes))
    reranker = context.hooks.reranker
    reranked = 0 if reranker is None else RERANKED
    subjects = [context.subject(scope) for scope in scopes]
    with context.indexes.of(subjects, lambda subject: make(subject, context.indexes.folder)) as indexes:
        note, embedded, to_embed = yield from _prepared(dict(zip(scopes, indexes, strict=True)), embedder, calls[0])
        now = context.hooks.now()
        plans = _plans(calls, now, has_vectors=embedded is not None)
        hits_of_searches: list[Hits] = []
        for call, plan in zip(calls, plans, strict=True):
            hits: list[Hit] = []
            for scope, index in zip(scopes, indexes, strict=True):
                hits += yield from _search_index(
                    index, call, plan, scope, now, embedded, reranked, changes=call is with_changes
                )
            if plan.order != "best" and len(scopes) > 1:
                hits = _by_time(hits, plan.order)
            best = _best(_without_duplicates(hits), max(plan.limit, reranked), plan.kinds)
            if plan.every and call.top_k is None:
                best = _instances(best, plan.kinds)
            if reranker is not None and plan.order == "best":
                best, failure = yield from work(partial(_in_new_order, reranker, call.query, best))
                best = [hit for hit in best if any(_is_remembered(hit, subject, now) for subject in subjects)]
                note = note or failure
            if plan.every and call.top_k is None:
                best = _spread(best)
            hits_of_searches.append(Hits(best[: plan.limit], note, plan, to_embed))
    return hits_of_searches


def _plans(calls: Sequence[Search], now: datetime, *, has_vectors: bool) -> list[Plan]:
    """Return the plan of each search. All have the same query."""
    from agent_memory_log.recall.analysis import ask  # noqa: PLC0415  # as in index_maker
    from agent_memory_log.recall.questions import CAUSE, EVERY, FIRST, LATEST, USER, kinds_named  # noqa: PLC0415

    query = calls[0].query
    question = ask(query, now, ())
    every = EVERY in question.wants
    uses: dict[Strategy, bool] = {
        "words": True,
        "meaning": has_vectors,
        "entity": any(map(str.isupper, query[1:])),
        "trace": CAUSE in question.wants,
        "profile": question.role == USER,
    }
    times = tuple(
        (datetime.fromtimestamp(span[0], UTC), datetime.fromtimestamp(span[1], UTC)) for span in question.spans
    )
    return [
        Plan(
            tuple(strategy for strategy, is_used in uses.items() if is_used),
            "latest" if LATEST in question.wants else "first" if FIRST in question.wants else "best",
            every,
            question.now,
            tuple(kind for kind in kinds_named(query.casefold()) if call.kinds is None or kind in call.kinds),
            times,
            call.top_k or (MOST_INSTANCES if every else TOP_K),
        )
        for call in calls
    ]


def _search_index(
    index: WarmIndex,
    call: Search,
    plan: Plan,
    scope: str,
    now: datetime,
    embedded: Embedded | None,
    least: int,
    *,
    changes: bool,
) -> Steps[list[Hit]]:
    top_k = max(plan.limit, least)
    hits: list[Hit] = []
    # Records of the kinds that the question names come first, so they are searched for alone, too.
    for part in [
        *([msgspec.structs.replace(call, kinds=plan.kinds)] if plan.kinds not in ((), call.kinds) else []),
        call,
    ]:
        hits += yield from _hits_of(index, part, top_k, scope, now, embedded, changes=changes)
    # The index has put what holds now, the latest or the first above the rest already.
    is_ordered = plan.order != "best" or any("update" in hit.matched_by for hit in hits)
    if "profile" in plan.strategies and not is_ordered:
        gains = {hit.id: PROFILE * hit.score for hit in hits if hit.record is not None and hit.record.key}
        hits = [_gained(hit, "profile", gains.get(hit.id, 0.0)) for hit in hits]
    if "trace" in plan.strategies:
        hits += index.subject.ask(lambda state: _linked(hits, call, state, scope, now))
    return hits


def _hits_of(
    index: WarmIndex, call: Search, top_k: int, scope: str, now: datetime, embedded: Embedded | None, *, changes: bool
) -> Steps[list[Hit]]:
    while (matches := (yield from work(lambda: index.search(call, top_k, now, embedded, changes=changes)))) is None:
        yield from index.refresh(None)
    return index.subject.ask(
        lambda state: [hit for match in matches if (hit := _hit_of(*match, state, scope, now)) is not None]
    )


def _linked(hits: Sequence[Hit], call: Search, state: State, scope: str, now: datetime) -> list[Hit]:
    """Return the records that the hits link to, such as their causes, if the call asks for records like them."""
    return [
        Hit(TRACE * hit.score, {"trace": TRACE * hit.score}, record)
        for hit in hits
        if hit.record is not None
        for link in hit.record.links
        if (live := state.active(link.target, now)) is not None
        if _is_within(record := live.record(scope, now), call)
    ]


def _by_time(hits: Sequence[Hit], order: str) -> list[Hit]:
    """Let the relevant hits of several scopes exchange their scores, as those of one index do, in the order of time."""
    from agent_memory_log.recall.ranking.orders import RELEVANT  # noqa: PLC0415  # as in index_maker

    least = RELEVANT[order] * max((hit.score for hit in hits), default=0.0)
    relevant = sorted((hit for hit in hits if hit.score >= least), key=_time, reverse=order == "latest")
    scores = sorted((hit.score for hit in relevant), reverse=True)
    in_order = [_gained(hit, "order", score - hit.score) for score, hit in zip(scores, relevant, strict=True)]
    return [*in_order, *(hit for hit in hits if hit.score < least)]


def _gained(hit: Hit, part: str, gain: float) -> Hit:
    """Return a hit with another score, and the part of ``matched_by`` that has changed it."""
    if not gain:
        return hit
    parts = {**hit.matched_by, part: hit.matched_by.get(part, 0.0) + gain}
    return Hit(hit.score + gain, parts, hit.record, hit.message)


def _instances(hits: Sequence[Hit], kinds: tuple[str, ...]) -> list[Hit]:
    """Return the hits that match well enough to be instances, and those of the kinds that the question names."""
    least = INSTANCE * max((hit.score for hit in hits), default=0.0)
    return [hit for hit in hits if hit.score >= least or hit.kind in kinds]


def _spread(hits: Sequence[Hit]) -> list[Hit]:
    """Return the first hit of each run, then the second of each run, and so on."""
    seen = Counter[object]()

    def turn(hit: Hit) -> int:
        run = hit.id if hit.message is None else (hit.message.agent, hit.message.run)
        seen[run] += 1
        return seen[run]

    return sorted(hits, key=turn)


def _is_remembered(hit: Hit, subject: Subject, now: datetime) -> bool:
    """Return whether a subject still has what a hit shows. It may be forgotten while a reranker works."""
    place = hit.message and (hit.message.agent, hit.message.run, hit.message.seq)
    return subject.ask(lambda state: state.may_find(*place) if place else state.active(hit.id, now) is not None)


def _in_new_order(reranker: Reranker, query: str, hits: list[Hit]) -> tuple[list[Hit], str]:
    """Return the hits in the order of the reranker, and a note if it failed. Then the hits stay as they are."""
    if not hits:
        return hits, ""
    try:
        scores = [float(score) for score in reranker.rerank(query, [hit.text for hit in hits])]
        reason = "" if len(scores) == len(hits) and all(map(math.isfinite, scores)) else "not one finite score a text"
    except Exception as error:  # noqa: BLE001  # a reranker may raise anything, and the search continues without it
        scores, reason = [], str(error)[:200] or type(error).__name__
    if reason:
        return hits, f"the reranker failed, so the hits have the order of the index: {reason}"
    scored = [_gained(hit, "reranker", score - hit.score) for hit, score in zip(hits, scores, strict=True)]
    return sorted(scored, key=lambda hit: -hit.score), ""


def _hit_of(match: DocumentHit, message: RunMessage | None, state: State, scope: str, now: datetime) -> Hit | None:
    """Return a match as a hit. Returns None if it was forgotten meanwhile, for example while the embedder worked."""
    if message is not None:
        is_searchable = state.may_find(message.agent, message.run, message.seq)
        return Hit(match.score, match.matched_by, None, message) if is_searchable else None
    live = state.active(match.id, now)
    return None if live is None else Hit(match.score, match.matched_by, live.record(scope, now))


def _prepared(
    indexes: Mapping[str, WarmIndex], embedder: Embedder | None, call: Search
) -> Steps[tuple[str, Embedded | None, tuple[str, ...]]]:
    """Bring the indexes up to date, and embed the query, unless its caller sent its vectors.

    Returns a note, the query's vectors, and the scopes with texts that the caller can embed. The note says why vectors
    were not compared; then the vectors are None.
    """
    if call.vectors is not None:
        return "", *(yield from _prepared_for(indexes, call.vectors))
    if embedder is None or not call.query.strip():
        for index in indexes.values():
            yield from index.refresh(None)
        return "", None, ()
    embedded, fixed = yield from work(lambda: embed_query(embedder, call.query))
    note = embedded.note
    for index in indexes.values():
        yield from index.refresh(None if note else embedded.model)
        if not note:
            note = yield from index.embed_lacking(fixed)
    return note, None if note else embedded, ()


def _prepared_for(indexes: Mapping[str, WarmIndex], sent: QueryVectors) -> Steps[tuple[Embedded, tuple[str, ...]]]:
    """Bring the indexes up to date for vectors that the caller sent. Return these, and the scopes to embed."""
    from agent_memory_log.memory.search.packing import read_query  # noqa: PLC0415  # as in index_maker

    embedded = yield from work(lambda: read_query(sent))
    to_embed: list[str] = []
    for scope, index in indexes.items():
        if (yield from index.lacking(embedded.model, 1)):
            to_embed.append(scope)
    return embedded, tuple(to_embed)


def embed_query(embedder: Embedder, query: str) -> tuple[Embedded, Embedder]:
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
            _best(_sharing_words(records, call), call.top_k or TOP_K),
            _NO_MESSAGES if call.kinds is None or MESSAGE in call.kinds else "",
            Plan(limit=call.top_k or TOP_K),
        )
        for call in calls
    ]


def _sharing_words(records: Sequence[Record], call: Search) -> list[Hit]:
    """Return the records that share words with the query. The score is the share of the query's words."""
    words, boosted = frozenset(_words(call.query.casefold())), fold_keys(call.boost_preferences)
    within = (record for record in records if _is_within(record, call))
    return [hit for record in within if (hit := _shared_words(record, words, boosted)) is not None]


def _is_within(record: Record, call: Search) -> bool:
    """Return whether a record has a kind, a time and an importance that the call asks for."""
    time = record.valid_from or record.created
    return (
        (call.kinds is None or record.kind in call.kinds)
        and record.stars >= call.min_importance
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


def _best(hits: list[Hit], top_k: int, first_kinds: tuple[str, ...] = ()) -> list[Hit]:
    """Return the first ``top_k`` hits: ``first_kinds`` first, then by score, score without boosts, and newest first."""
    hits.sort(
        key=lambda hit: (
            hit.kind not in first_kinds,
            -round(hit.score, _COMPARED_DIGITS),
            -_unboosted(hit),
            -_time(hit),
        )
    )
    return hits[:top_k]


def _unboosted(hit: Hit) -> float:
    return hit.matched_by.get("words", 0.0) + hit.matched_by.get("vectors", 0.0)


def _time(hit: Hit) -> float:
    if hit.record is not None:
        return (hit.record.valid_from or hit.record.created).timestamp()
    return 0.0 if hit.message is None else hit.message.time.timestamp()
