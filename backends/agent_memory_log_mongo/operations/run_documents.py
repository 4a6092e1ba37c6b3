"""The run's own document: one for each run, written by the append that creates it, for the list of runs and its end.

Fields: ``_id`` the run's key, ``agent``, ``run``, ``own`` (whether it is one of the library's own streams), ``g`` (how
often the run was deleted before), ``c`` and ``created`` (when it was created), ``order`` (that, as text that no other
run has), ``meta`` or ``meta_json``, ``end`` and ``expires_at``, ``sum`` (the checksum of all these), and ``ceiling``:
no smaller than the run's version. A deleted run's document has ``g``, ``ceiling`` and the ids alone.

What a run was created with is decided by its first commit; the document is announced before it and mended after it.
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
from agent_memory_log_mongo.documents.commits import Document, Head, Run, head_of, meta_fields, meta_of
from agent_memory_log_mongo.engine.call import Call, TryAgain
from agent_memory_log_mongo.operations.reading import meta_at

FIRST_CEILING = 1024
RUNS_AT_ONCE = 100
"""How many runs one query asks for."""

_PEEKED_AT_ONCE = 1_000
"""How many runs one query asks for that returns nothing but numbers: far fewer than one reply holds."""

_NEVER = RunHead(0, 1)

_BY_ID = "_id_"
"""The index that is named where more than ``_id`` is asked for, since not every server chooses it by itself then."""

_OPTIONAL = ("meta", "meta_json", "end", "expires_at")
_OF_A_LIFE = (*_OPTIONAL, "order", "c", "created", "sum")


async def announce(call: Call, run: Run, head: Head, meta: Mapping[str, JsonValue], count: int) -> bool:
    """Write the run's document before the commit of ``count`` events that creates the run, which so is never unlisted.

    ``head`` is the empty run. Whether another document is there already: of a writer who is creating the run too, who
    tried to, or whose run was deleted and not yet taken from the list.
    """
    ceiling = _ceiling(head.version + count, head.base)
    where = {"_id": run.key, "order": None}
    change = _change(_fields(run, head, meta), ceiling)
    contested = not await call.update(call.database.runs, where, change, upsert=True, hint=_BY_ID)
    if contested and head.deletions:
        # What is there may be from before a deletion, and whoever deleted the run about to take it from the list.
        older = {"_id": run.key, "g": {"$lt": head.deletions}}
        await call.update(call.database.runs, older, change, hint=_BY_ID)
    if head.end is not None and not contested:
        call.database.ceilings[run.key] = ceiling
    return contested


async def mend(call: Call, run: Run, head: Head, meta: Mapping[str, JsonValue]) -> None:
    """Put what the run was really created with into its document, which another writer had announced."""
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
    # A ceiling only rises, whoever else writes and whatever life the run is in: it is remembered elsewhere.
    unset = {name: 1 for name in _OPTIONAL if name not in fields}
    return {"$set": fields, "$max": {"ceiling": ceiling}, "$unset": unset}


async def unlist(call: Call, run: Run, deletions: int) -> None:
    """Take a run from the list that was deleted ``deletions`` times, if it was not created anew since."""
    where = {"_id": run.key, "g": {"$lt": deletions}}
    change = {"$unset": dict.fromkeys(_OF_A_LIFE, 1)}
    await call.update(call.database.runs, where, change, hint=_BY_ID)


def _ceiling(version: int, base: int) -> int:
    """The ceiling for a run at ``version`` whose life began behind ``base``: room for as many events as it holds.

    A run that ends again and again goes on from its ceiling: were that twice its version, it would soon be too large.
    """
    return base + max(FIRST_CEILING, 2 * (version - base))


async def raise_ceiling(call: Call, run: Run, version: int, base: int) -> None:
    """See to it that the run's document has a number no smaller than ``version``, for when its commits are removed.

    ``base`` is the version behind which the run's life began. Its room is doubled each time, so that an append seldom
    pays for it.
    """
    known = call.database.ceilings.get(run.key)
    if known is None:
        document = await call.find_one(call.database.runs, {"_id": run.key}, fields={"ceiling": 1}) or {}
        known = int(document.get("ceiling", 0))
    if version > known:
        known = _ceiling(version, base)
        await call.update(call.database.runs, {"_id": run.key}, {"$max": {"ceiling": known}})
    call.database.ceilings[run.key] = known


async def list_runs(call: Call, agent: str | None, limit: int, cursor: str | None, include_reserved: bool) -> RunPage:
    """See ``Store.list_runs``."""
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
        # A run's document says only that it may be there: its newest commit says whether it is.
        bounds = {"$gt": ""} if before is None else {"$gt": "", "$lt": before}
        wanted = min(limit + 1 - len(runs), RUNS_AT_ONCE)
        listed, more = await runs_with_heads(call, {**where, "order": bounds}, {"order": -1}, wanted)
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
    """See ``Store.peek_runs``."""
    wanted = [Run.of(agent, run).key for agent, run in check_runs(runs)]
    keys = sorted({*wanted})
    heads: dict[bytes, RunHead | None] = {}
    for begin in range(0, len(keys), _PEEKED_AT_ONCE):
        heads.update(await call.until_done(partial(_peek, call, keys[begin : begin + _PEEKED_AT_ONCE])))
    return tuple(heads.get(key, _NEVER) for key in wanted)


async def _peek(call: Call, keys: list[bytes]) -> dict[bytes, RunHead | None]:
    """Where runs stand, by key; those that never were are left out."""
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
            end = document.get("end")  # of a life of which the server has removed every commit, as in removed_life
        heads[document["_id"]] = None if end is not None and end <= now else RunHead(head.version, head.base + 1)
    return heads


async def runs_with_heads(
    call: Call,
    where: Mapping[str, object],
    sort: Mapping[str, int],
    limit: int,
    fields: Mapping[str, int] | None = None,
) -> tuple[list[tuple[Document, Head | None]], bool]:
    """The documents of some runs, each with the run's newest commit, None where it has none; in one query.

    And whether there may be more: beyond ``limit``, or as one reply holds 16 MiB.
    """
    lookup = {
        "from": call.database.commits,
        "localField": "_id",
        "foreignField": "k",
        "pipeline": [{"$sort": {"s": -1}}, {"$limit": 1}, {"$project": call.database.head_fields}],
        "as": "heads",
    }
    project = [{"$project": fields}] if fields else []
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
    """A run as it is listed; None when it holds no events, or is over."""
    if head is None or head.is_empty or head.is_blank:
        return None
    if head.end is not None and head.end <= now_microseconds():
        return None
    try:
        run = Run(document["agent"], document["run"], document["_id"])
        # Of two writers who created the run at once, the other's document may stand, the one who won having died.
        meta = meta_of(document, run.name) if document["c"] == head.created else None
        if meta is None:
            try:
                meta = await meta_at(call, run, head)
            except TryAgain:
                return None  # it was deleted since its newest commit was found
        created = from_microseconds(head.created)
    except (KeyError, TypeError, OverflowError) as error:
        raise DecodeError(f"a run's document cannot be read: {error!r}") from error
    return RunInfo(run.agent, run.run, head.version, created, head.version - head.base, meta)


def order_of(created: int, tie: int) -> str:
    """The text by which runs are listed: when they were created, to the microsecond, and a number of their own."""
    return f"{created:019d}-{tie:014x}"


def _numbers(order: str) -> tuple[int, int]:
    created, _, tie = order.partition("-")
    try:
        return int(created), int(tie, 16)
    except ValueError as error:
        raise DecodeError(f"a run's document has {order!r} for its order") from error
