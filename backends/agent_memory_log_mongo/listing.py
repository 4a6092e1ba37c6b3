"""The run's own document: one for each run, written by the append that creates it, for the list of runs and its end.

Fields: ``_id`` the run's key, ``agent``, ``run``, ``own`` (whether it is one of the library's own streams), ``g`` (how
often the run was deleted before), ``c`` and ``created`` (when it was created), ``order`` (that, as text that no other
run has), ``meta`` or ``meta_json``, ``end`` and ``expires_at``, ``sum`` (the checksum of all these), and ``ceiling``:
no smaller than the run's version. A deleted run's document has ``g``, ``ceiling`` and the ids alone.

What a run was created with is decided by its first commit; the document is announced before it and mended after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from agent_memory_log.backend_kit import decode_cursor, encode_cursor, is_reserved, now_microseconds
from agent_memory_log.errors import DecodeError
from agent_memory_log.events.event import from_microseconds
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.store import RunHead, RunInfo, RunPage
from agent_memory_log_mongo.documents import Document, Head, Run, head_of, meta_fields, meta_of
from agent_memory_log_mongo.place import Place
from agent_memory_log_mongo.reads import Interfered, meta_at, undisturbed
from agent_memory_log_mongo.steps import Steps, ask, find, update
from agent_memory_log_mongo.sums import compare, compare_run, run_sum

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


def announce(place: Place, run: Run, head: Head, meta: Mapping[str, JsonValue], count: int) -> Steps[bool]:
    """Write the run's document before the commit of ``count`` events that creates the run, which so is never unlisted.

    ``head`` is the empty run. Whether another document is there already: of a writer who is creating the run too, who
    tried to, or whose run was deleted and not yet taken from the list.
    """
    ceiling = _ceiling(head.version + count, head.base)
    where = {"_id": run.key, "order": None}
    change = _change(_fields(run, head, meta), ceiling)
    reply = yield from update(place.runs, where, change, place.concern, upsert=True, hint=_BY_ID)
    contested = bool(reply.get("writeErrors"))
    if contested and head.deletions:
        # What is there may be from before a deletion, and whoever deleted the run about to take it from the list.
        older = {"_id": run.key, "g": {"$lt": head.deletions}}
        yield from update(place.runs, older, change, place.concern, hint=_BY_ID)
    if head.end is not None and not contested:
        place.remember_ceiling(run.key, ceiling)
    return contested


def mend(place: Place, run: Run, head: Head, meta: Mapping[str, JsonValue]) -> Steps[None]:
    """Put what the run was really created with into its document, which another writer had announced."""
    where = {"_id": run.key, "g": {"$lte": head.deletions}}
    ceiling = _ceiling(head.version, head.base)
    change = _change(_fields(run, head, meta), ceiling)
    yield from update(place.runs, where, change, place.concern, hint=_BY_ID)


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


def unlist(place: Place, run: Run, deletions: int) -> Steps[None]:
    """Take a run from the list that was deleted ``deletions`` times, if it was not created anew since."""
    where = {"_id": run.key, "g": {"$lt": deletions}}
    change = {"$unset": dict.fromkeys(_OF_A_LIFE, 1)}
    yield from update(place.runs, where, change, place.concern, hint=_BY_ID)


def _ceiling(version: int, base: int) -> int:
    """The ceiling for a run at ``version`` whose life began behind ``base``: room for as many events as it holds.

    A run that ends again and again goes on from its ceiling: were that twice its version, it would soon be too large.
    """
    return base + max(FIRST_CEILING, 2 * (version - base))


def raise_ceiling(place: Place, run: Run, version: int, base: int) -> Steps[None]:
    """See to it that the run's document has a number no smaller than ``version``, for when its commits are removed.

    ``base`` is the version behind which the run's life began. Its room is doubled each time, so that an append seldom
    pays for it.
    """
    known = place.ceiling(run.key)
    if known is None:
        found = yield from find(place.runs, {"_id": run.key}, place.level, limit=1, fields={"ceiling": 1})
        known = int(found[0].get("ceiling", 0)) if found else 0
    if version > known:
        known = _ceiling(version, base)
        yield from update(place.runs, {"_id": run.key}, {"$max": {"ceiling": known}}, place.concern)
    place.remember_ceiling(run.key, known)


def list_runs(
    place: Place, agent: str | None, limit: int, cursor: str | None, include_reserved: bool
) -> Steps[RunPage]:
    """See ``Store.list_runs``."""
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
        found, more = yield from runs_with_heads(place, {**where, "order": bounds}, {"order": -1}, wanted)
        for document, head in found:
            info = yield from _info(place, document, head)
            if info is not None and len(runs) == limit:
                return RunPage(tuple(runs), encode_cursor(*_numbers(last or "")))
            before = document["order"]
            if info is not None:
                runs.append(info)
                last = before
        if not more:
            return RunPage(tuple(runs), None)


def peek_runs(place: Place, runs: Sequence[Run]) -> Steps[tuple[RunHead | None, ...]]:
    """See ``Store.peek_runs``."""
    keys = sorted({run.key for run in runs})
    heads: dict[bytes, RunHead | None] = {}
    for begin in range(0, len(keys), _PEEKED_AT_ONCE):
        heads.update((yield from undisturbed(partial(_peek, place, keys[begin : begin + _PEEKED_AT_ONCE]))))
    return tuple(heads.get(run.key, _NEVER) for run in runs)


def _peek(place: Place, keys: list[bytes]) -> Steps[dict[bytes, RunHead | None]]:
    """Where runs stand, by key; those that never were are left out."""
    where = {"_id": {"$in": keys}}
    found, _ = yield from runs_with_heads(place, where, {"_id": 1}, len(keys), {"g": 1, "end": 1})
    now = now_microseconds()
    heads: dict[bytes, RunHead | None] = {}
    for document, newest in found:
        head = newest or Head()
        if head.is_blank:
            raise Interfered
        end = head.end
        if head.is_empty and document.get("g", 0) == head.deletions:
            end = document.get("end")  # of a life of which the server has removed every commit, as in removed_life
        heads[document["_id"]] = None if end is not None and end <= now else RunHead(head.version, head.base + 1)
    return heads


def runs_with_heads(
    place: Place,
    where: Mapping[str, object],
    sort: Mapping[str, int],
    limit: int,
    fields: Mapping[str, int] | None = None,
) -> Steps[tuple[list[tuple[Document, Head | None]], bool]]:
    """The documents of some runs, each with the run's newest commit, None where it has none; in one query.

    And whether there may be more: beyond ``limit``, or as one reply holds 16 MiB.
    """
    lookup = {
        "from": place.commits,
        "localField": "_id",
        "foreignField": "k",
        "pipeline": [{"$sort": {"s": -1}}, {"$limit": 1}, {"$project": place.head_fields}],
        "as": "heads",
    }
    project = [{"$project": fields}] if fields else []
    reply = yield from ask(
        {
            "aggregate": place.runs,
            "pipeline": [{"$match": where}, {"$sort": sort}, {"$limit": limit}, *project, {"$lookup": lookup}],
            "cursor": {"batchSize": limit},
            "readConcern": {"level": place.level},
        }
    )
    cursor = reply["cursor"]
    if cursor["id"]:
        yield from ask({"killCursors": place.runs, "cursors": [cursor["id"]]})
    documents: list[Document] = cursor["firstBatch"]
    if place.settings.verify:
        for one in documents:
            name = f"{one.get('agent')}/{one.get('run')}"
            compare(one["heads"], name, required=place.all_have_sums)
            if not fields:
                compare_run(one, name)
    found = [(one, head_of(one["heads"][0], "a run") if one["heads"] else None) for one in documents]
    return found, bool(cursor["id"]) or len(found) == limit


def _info(place: Place, document: Document, head: Head | None) -> Steps[RunInfo | None]:
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
                meta = yield from meta_at(place, run, head)
            except Interfered:
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
