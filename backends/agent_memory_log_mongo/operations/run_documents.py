"""Reads and writes the run documents. Each run has one, by which the store lists and expires the run.

The append that creates a run writes its document. It has these fields:

- ``_id``: the run's key. ``agent``, ``run``: the ids.
- ``own``: whether the agent is one of the library's own.
- ``g``: the number of earlier deletions of the run.
- ``c``, ``created``: the creation time in microseconds since 1970, and as a date.
- ``order``: the creation time as text, with a suffix that makes it unique.
- ``meta`` or ``meta_json``: the run's meta. ``end``, ``expires_at``: the run's end.
- ``sum``: the checksum of the fields above.
- ``ceiling``: an upper bound of the run's version.

The document of a deleted run has only ``g``, ``ceiling``, ``own`` and the ids.

The first commit is authoritative. The document is written before it, so that a run with events is always listed. It is
corrected after the commit if two writers collided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from agent_memory_log.backend_kit import (
    check_listing,
    check_runs,
    decode_cursor,
    encode_cursor,
    is_reserved,
    now_microseconds,
)
from agent_memory_log.errors import DecodeError
from agent_memory_log.events.event import from_microseconds
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.store import RunHead, RunInfo, RunPage
from agent_memory_log_mongo.documents.checksums import compare, compare_run, run_sum
from agent_memory_log_mongo.documents.commits import HEAD_FIELDS, Document, Head, Run, head_of
from agent_memory_log_mongo.documents.events import meta_fields, meta_of, time_of
from agent_memory_log_mongo.engine.call import Call, TryAgain
from agent_memory_log_mongo.operations.reading import meta_at

FIRST_CEILING = 1024
RUNS_AT_ONCE = 100
"""The number of runs in one query."""

_PEEKED_AT_ONCE = 1_000
"""The number of runs in one query that returns only numbers. A reply has room for far more."""

_NEVER = RunHead(0, 1)

_BY_ID = "_id_"
"""The hint for filters with more fields than ``_id``, because not every server chooses this index for them."""

_NEWEST_TIME: Document = {
    "$let": {
        "vars": {"event": {"$arrayElemAt": ["$events", -1]}},
        "in": {"timestamp": "$$event.timestamp", "us": {"$ifNull": ["$$event.us", 0]}},
    }
}
"""The expression for the time of a commit's newest event, in the fields that ``time_of`` reads."""

_OPTIONAL = ("meta", "meta_json", "end", "expires_at")
_OF_A_LIFE = (*_OPTIONAL, "order", "c", "created", "sum")


async def announce(call: Call, run: Run, head: Head, meta: Mapping[str, JsonValue], count: int) -> bool:
    """Write the run's document before its first commit, so that the list of runs always has the run.

    Returns whether the run already had a document. It may come from a writer that creates the run at the same time or
    failed to create it, or from a deleted run that is still listed.

    Args:
        call: the call.
        run: the run.
        head: the head of the run before its first commit.
        meta: the run's meta.
        count: the number of events in the first commit.
    """
    ceiling = _ceiling(head.version + count, head.base)
    where = {"_id": run.key, "order": None}
    change = _change(_fields(run, head, meta), ceiling)
    contested = not await call.update(call.database.runs, where, change, upsert=True, hint=_BY_ID)
    if contested and head.deletions:
        # The document may be older than a deletion that is still in progress. Replace it.
        older = {"_id": run.key, "g": {"$lt": head.deletions}}
        await call.update(call.database.runs, older, change, hint=_BY_ID)
    if head.end is not None and not contested:
        call.database.ceilings[run.key] = ceiling
    return contested


async def correct(call: Call, run: Run, head: Head, meta: Mapping[str, JsonValue]) -> None:
    """Replace the run's document, which another writer wrote, with the values of the first commit."""
    where = {"_id": run.key, "g": {"$lte": head.deletions}}
    ceiling = _ceiling(head.version, head.base)
    change = _change(_fields(run, head, meta), ceiling)
    await call.update(call.database.runs, where, change, hint=_BY_ID)


def _fields(run: Run, head: Head, meta: Mapping[str, JsonValue]) -> Document:
    fields: Document = {
        "agent": run.agent,
        "run": run.run,
        "own": is_reserved(run.agent),
        "g": head.deletions,
        "c": head.created,
        "created": from_microseconds(head.created),
        "order": order_of(head.created, run.cursor_tie),
        **meta_fields(meta),
    }
    if head.end is not None:
        fields["end"] = head.end
        fields["expires_at"] = from_microseconds(head.end)
    fields["sum"] = run_sum(run.key, fields)
    return fields


def _change(fields: Document, ceiling: int) -> Document:
    # The ceiling never decreases, because other handles remember it.
    unset = {name: 1 for name in _OPTIONAL if name not in fields}
    return {"$set": fields, "$max": {"ceiling": ceiling}, "$unset": unset}


async def unlist(call: Call, run: Run, deletions: int) -> None:
    """Remove a deleted run from the list, unless it was recreated after its deletion number ``deletions``."""
    where = {"_id": run.key, "g": {"$lt": deletions}}
    change = {"$unset": dict.fromkeys(_OF_A_LIFE, 1)}
    await call.update(call.database.runs, where, change, hint=_BY_ID)


def _ceiling(version: int, base: int) -> int:
    """Return the ceiling for a run at ``version`` whose first event follows seq ``base``.

    It leaves room for as many events as the run has. It is not twice the version: a run that is recreated continues
    from its ceiling, so its seqs would grow too fast.
    """
    return base + max(FIRST_CEILING, 2 * (version - base))


async def raise_ceiling(call: Call, run: Run, version: int, base: int) -> None:
    """Raise the ceiling in the run's document to at least ``version``. It outlives the run's commits.

    ``base`` is the seq before the run's first event. The room doubles each time, so that few appends need an update.
    """
    ceiling = call.database.ceilings.get(run.key)
    if ceiling is None:
        document = await call.find_one(call.database.runs, {"_id": run.key}, fields={"ceiling": 1}) or {}
        ceiling = int(document.get("ceiling", 0))
    if version > ceiling:
        ceiling = _ceiling(version, base)
        await call.update(call.database.runs, {"_id": run.key}, {"$max": {"ceiling": ceiling}})
    call.database.ceilings[run.key] = ceiling


async def list_runs(call: Call, agent: str | None, limit: int, cursor: str | None, include_reserved: bool) -> RunPage:
    """Return one page of runs, the newest run first."""
    check_listing(agent, limit)
    before = order_of(*decode_cursor(cursor)) if cursor is not None else None
    where: Document = {}
    if agent is not None:
        where["agent"] = agent
    elif not include_reserved:
        where["own"] = False
    runs: list[RunInfo] = []
    last: str | None = None
    while True:
        # A document alone does not prove that the run exists. Its newest commit does.
        bounds = {"$gt": ""} if before is None else {"$gt": "", "$lt": before}
        page_size = min(limit + 1 - len(runs), RUNS_AT_ONCE)
        listed, more = await runs_with_heads(call, {**where, "order": bounds}, {"order": -1}, page_size)
        for document, head in listed:
            info = await _info(call, document, head)
            if info is not None and len(runs) == limit:
                return RunPage(tuple(runs), encode_cursor(*_numbers(last or "")))
            before = document["order"]
            if info is not None:
                runs.append(info)
                last = before
        if not more:
            return RunPage(tuple(runs), None)


async def peek_runs(call: Call, runs: Iterable[tuple[str, str]]) -> tuple[RunHead | None, ...]:
    """Return the heads of some runs. An expired run has None."""
    keys_in_order = [Run.of(agent, run).key for agent, run in check_runs(runs)]
    keys = sorted({*keys_in_order})
    heads: dict[bytes, RunHead | None] = {}
    for begin in range(0, len(keys), _PEEKED_AT_ONCE):
        heads.update(await call.until_done(partial(_peek, call, keys[begin : begin + _PEEKED_AT_ONCE])))
    return tuple(heads.get(key, _NEVER) for key in keys_in_order)


async def _peek(call: Call, keys: list[bytes]) -> dict[bytes, RunHead | None]:
    """Return the heads of runs by key. Runs that never existed are omitted."""
    where = {"_id": {"$in": keys}}
    documents, _ = await runs_with_heads(call, where, {"_id": 1}, len(keys), {"g": 1, "end": 1})
    now = now_microseconds()
    heads: dict[bytes, RunHead | None] = {}
    for document, newest in documents:
        head = newest or Head()
        if head.is_blank:
            raise TryAgain
        end = head.end
        if head.is_empty and document.get("g", 0) == head.deletions:
            end = document.get("end")  # the server has removed every commit, as in removed_life
        heads[document["_id"]] = None if end is not None and end <= now else RunHead(head.version, head.base + 1)
    return heads


async def runs_with_heads(
    call: Call,
    where: Mapping[str, object],
    sort: Mapping[str, int],
    limit: int,
    fields: Mapping[str, int] | None = None,
) -> tuple[list[tuple[Document, Head | None]], bool]:
    """Return run documents with the head of each run, or None if the run has no commits, in one query.

    Without ``fields``, a document also has the time of the newest event, in ``heads``. The second result is whether
    more documents may match, because of ``limit`` or because a reply has at most 16 MiB.

    Args:
        call: the call.
        where: the filter.
        sort: the sort order.
        limit: the largest number of documents.
        fields: the projection, or None for all fields.
    """
    project = [{"$project": fields}] if fields else []
    head: list[Document] = [{"$project": call.database.head_fields}]
    if not fields:
        # With ``verify``, read the whole commit, because the checksum of an event covers all of it.
        with_time: Document = {**HEAD_FIELDS, "events": [_NEWEST_TIME]}
        head = [] if call.database.settings.verify else [{"$project": with_time}]
    lookup = {
        "from": call.database.commits,
        "localField": "_id",
        "foreignField": "k",
        "pipeline": [{"$sort": {"s": -1}}, {"$limit": 1}, *head],
        "as": "heads",
    }
    reply = await call.ask(
        {
            "aggregate": call.database.runs,
            "pipeline": [{"$match": where}, {"$sort": sort}, {"$limit": limit}, *project, {"$lookup": lookup}],
            "cursor": {"batchSize": limit},
            "readConcern": {"level": call.database.level},
        }
    )
    cursor = reply["cursor"]
    if cursor["id"]:
        await call.ask({"killCursors": call.database.runs, "cursors": [cursor["id"]]})
    documents: list[Document] = cursor["firstBatch"]
    if call.database.settings.verify:
        for document in documents:
            name = f"{document.get('agent')}/{document.get('run')}"
            compare(document["heads"], name, required=call.database.all_have_sums)
            if not fields:
                compare_run(document, name)
    runs = [(document, head_of(document["heads"][0], "a run") if document["heads"] else None) for document in documents]
    return runs, bool(cursor["id"]) or len(runs) == limit


async def _info(call: Call, document: Document, head: Head | None) -> RunInfo | None:
    """Return the list entry of a run, or None if the run has no events or has expired."""
    if head is None or head.is_empty or head.is_blank:
        return None
    if head.end is not None and head.end <= now_microseconds():
        return None
    try:
        run = Run(document["agent"], document["run"], document["_id"])
        # The document may come from a writer that lost the race to create the run, if the winner died.
        meta = meta_of(document, run.name) if document["c"] == head.created else None
        if meta is None:
            try:
                meta = await meta_at(call, run, head)
            except TryAgain:
                return None  # it was deleted after its newest commit was read
        created = from_microseconds(head.created)
        updated = time_of(document["heads"][0]["events"][-1])
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise DecodeError(f"a run's document or its newest event cannot be read: {error!r}") from error
    return RunInfo(run.agent, run.run, head.version, created, updated, head.version - head.base, meta)


def order_of(created: int, tie: int) -> str:
    """Return the sort key of a run in the list: its creation time in microseconds and a tie breaker."""
    return f"{created:019d}-{tie:014x}"


def _numbers(order: str) -> tuple[int, int]:
    created, _, tie = order.partition("-")
    try:
        return int(created), int(tie, 16)
    except ValueError as error:
        raise DecodeError(f"the field 'order' of a run's document is invalid: {order!r}") from error
