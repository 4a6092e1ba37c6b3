"""Reads the head, the commits and the meta of a run.

Every query selects a range of one index after an equality (``preparing.py``). If a deletion happens between two
queries, the run is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from agent_memory_log.backend_kit import check_expiry, now_microseconds
from agent_memory_log.errors import StoreCorrupt
from agent_memory_log.events.jsonvalue import JsonValue, decode_json, encode_json
from agent_memory_log_mongo.documents.checksums import REMEDY, WITHOUT_EVENTS, compare, compare_run
from agent_memory_log_mongo.documents.commits import (
    HEAD_FIELDS,
    Document,
    Head,
    Run,
    checked,
    head_of,
    type_key,
)
from agent_memory_log_mongo.documents.events import meta_of
from agent_memory_log_mongo.engine.call import Call, TryAgain
from agent_memory_log_mongo.engine.database import SOUGHT_TYPES


async def find_head(call: Call, run: Run) -> Head | None:
    """Return the head of a run, or None if it has no commits.

    Raises ``TryAgain``, ``DecodeError`` or ``StoreCorrupt``.
    """
    remembered = call.database.heads.get(run.key)
    # With a remembered head, the query covers only newer commits. Otherwise it covers the run, newest commit first.
    floor = remembered.place if remembered is not None else 1
    newest = await last_commit(call, run, floor, None, call.database.head_fields)
    if newest is None and floor > 1:
        newest = await last_commit(call, run, 1, None, call.database.head_fields)
    if newest is None:
        return None
    head = head_of(newest, run.name)
    if head.is_blank:
        call.database.forget()
        # The tombstone was written before this commit was emptied, so it must exist now.
        if await last_commit(call, run, head.place + 1, None, call.database.head_fields):
            raise TryAgain
        raise StoreCorrupt(
            f"{run.name}: the events up to {head.version} were removed, but the run was not deleted: {REMEDY}"
        )
    call.database.heads[run.key] = head
    return head


async def last_commit(
    call: Call, run: Run, low: int, high: int | None, fields: Mapping[str, int] | None = None
) -> Document | None:
    """Return the last commit of a run at the positions from ``low`` to ``high``, or None."""
    bounds = {"$gte": low} if high is None else {"$gte": low, "$lte": high}
    where = {"k": run.key, "s": bounds}
    last = await call.find_one(call.database.commits, where, sort={"s": -1}, fields=fields)
    if last is not None and fields is WITHOUT_EVENTS:
        compare([last], run.name, required=call.database.all_have_sums)
    return last


async def current_head(call: Call, run: Run) -> Head:
    """Return the head of a run, or a head of zeros if it has no commits. Raises ``RunExpired``, ``TryAgain``."""
    head = await latest_head(call, run)
    check_expiry(run.agent, run.run, head.end)
    return head


async def latest_head(call: Call, run: Run) -> Head:
    """Return the head of a run as ``current_head`` does, even if the run has expired."""
    head = await find_head(call, run)
    if head is None or head.is_empty:
        removed = await removed_life(call, run, head)
        if removed is not None:
            return removed
    return head or Head()


async def removed_life(call: Call, run: Run, head: Head | None) -> Head | None:
    """Return the head of an expired run whose commits the server has removed, or None if the run is not such a run.

    ``head`` is the run's tombstone, or None. The version of the result is an upper bound of the run's version.
    """
    document = await call.find_one(call.database.runs, {"_id": run.key})
    if document is None:
        return None
    before = head or Head()
    if call.database.settings.verify:
        compare_run(document, run.name)
    # The end applies only if the run was not deleted after its document was written.
    end = document.get("end") if document.get("g", 0) == before.deletions else None
    if end is None or end > now_microseconds():
        return None
    version = max(int(document.get("ceiling", 0)), before.version + 1)
    return Head(0, version, before.deletions, before.base, 0, int(end))


async def commits_of(call: Call, run: Run, head: Head, after: int, upper: int) -> list[Document]:
    """Return the commits with the events after seq ``after`` up to ``upper``. ``after`` is at least ``head.base``."""
    if after >= upper:
        return []
    try:
        return await _gapless(call, run, head, after, upper)
    except TryAgain:
        await _check_deleted(call, run, head)
        raise StoreCorrupt(f"{run.name}: some of the events {after + 1} to {upper} are missing: {REMEDY}") from None


async def _check_deleted(call: Call, run: Run, head: Head) -> None:
    """Raise ``TryAgain`` if the run was deleted after ``head`` was read, which explains missing commits."""
    newest = await current_head(call, run)
    if newest.deletions != head.deletions or newest.version < head.version:
        raise TryAgain


async def _gapless(call: Call, run: Run, head: Head, after: int, upper: int) -> list[Document]:
    """Return the same commits as ``commits_of``. Raises ``TryAgain`` if some are missing."""
    place = after + head.deletions + 1
    documents = await commits_between(call, run, place, upper + head.deletions)
    documents = await from_the_commit_of(call, run, documents, after, place)
    if not documents:
        raise TryAgain
    first = documents[0]
    check_chain(call, documents, head, run, first["s"], first["v"] - first["n"])
    if not first["v"] - first["n"] <= after < first["v"] or documents[-1]["v"] < upper:
        raise TryAgain
    return documents


async def from_the_commit_of(call: Call, run: Run, documents: list[Document], after: int, place: int) -> list[Document]:
    """Return the commits at and after ``place``, with the one before if the event after ``after`` is inside it."""
    if documents and documents[0]["v"] - documents[0]["n"] == after:
        return documents
    before = await last_commit(call, run, 1, place - 1)
    return [*verified(call, run, [before] if before is not None else []), *documents]


def verified(call: Call, run: Run, documents: list[Document]) -> list[Document]:
    """Return the commits after checking them. With ``verify``, the checksums are compared too."""
    checked(documents, run.name)
    if call.database.settings.verify:
        compare(documents, run.name, required=call.database.all_have_sums)
    return documents


async def commits_between(call: Call, run: Run, low: int, high: int | None) -> list[Document]:
    """Return the commits at the positions from ``low`` to ``high``, or to the newest commit without ``high``."""
    documents: list[Document] = []
    is_complete = False
    while not is_complete:
        is_whole = low == 1 and high is None
        bounds = {"$gte": low} if high is None else {"$gte": low, "$lte": high}
        where = {"k": run.key} if is_whole else {"k": run.key, "s": bounds}
        more, is_complete = await call.find_in_order(call.database.commits, where, "s", is_sorted_here=is_whole)
        if not more:
            break
        documents.extend(verified(call, run, more))
        low = head_of(more[-1], run.name).next_place
        if high is None and not is_complete:
            # The read ends at the commit that is the newest now. Otherwise it might never end while others append.
            newest = await last_commit(call, run, low, None, call.database.head_fields)
            if newest is None:
                break
            high = head_of(newest, run.name).place
    return documents


def check_chain(call: Call, documents: Sequence[Document], head: Head, run: Run, at: int, version: int) -> None:
    """Check that commits follow each other without a gap.

    The first one must be at position ``at`` and begin after seq ``version``. Raises ``TryAgain`` if a commit was
    deleted, and ``StoreCorrupt`` for a gap.
    """
    has_sums = call.database.all_have_sums
    for document in documents:
        if document.get("g", 0) != head.deletions or not document["n"]:
            raise TryAgain
        if document["s"] != at or document["v"] - document["n"] != version:
            raise StoreCorrupt(
                f"{run.name}: event {version + 1} is missing: the next commit is not the one for position {at} of the "
                f"run's chain: {REMEDY}"
            )
        version = document["v"]
        if "sums" in document:
            has_sums = True
        elif has_sums:
            raise StoreCorrupt(f"{run.name}: the commit of the events up to {version} has lost its checksums: {REMEDY}")
        at = version + head.deletions + 1


async def commits_of_type(call: Call, run: Run, event_type: str, low: int, high: int) -> list[Document]:
    """Return the commits at the positions from ``low`` to ``high`` that have an event of an indexed type."""
    commits: list[Document] = []
    while low <= high:
        where = {"k": run.key, "t": type_key(run.key, event_type), "ts": {"$gte": low, "$lte": high}}
        more = await call.find(call.database.commits, where, sort={"ts": 1}, hint=SOUGHT_TYPES)
        if not more:
            break
        commits.extend(verified(call, run, more))
        low = more[-1]["s"] + 1
    return commits


async def meta_at(call: Call, run: Run, head: Head) -> dict[str, JsonValue]:
    """Return the meta of a run from its first commit."""
    if head.is_empty:
        return {}
    stored = call.database.metas.get((run.key, head.deletions))
    if stored is not None:
        return cast("dict[str, JsonValue]", decode_json(stored))
    fields = call.database.head_fields if call.database.settings.verify else {**HEAD_FIELDS, "meta": 1, "meta_json": 1}
    document = await last_commit(call, run, 1, head.base + head.deletions + 1, fields)
    first = head_of(document, run.name) if document is not None else Head()
    if document is None or not first.count or first.deletions != head.deletions:
        await _check_deleted(call, run, head)
        raise StoreCorrupt(f"{run.name}: event {head.base + 1}, the run's first, is missing: {REMEDY}")
    return remembered_meta(call, run, head, document)


def remembered_meta(call: Call, run: Run, head: Head, first: Document) -> dict[str, JsonValue]:
    """Return the meta of a run from its first commit, and remember it."""
    meta = meta_of(first, run.name)
    call.database.metas[run.key, head.deletions] = encode_json(meta)
    return meta
