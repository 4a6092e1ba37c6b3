"""The erasure journal: one document for each redaction and each deletion, written before the events are removed.

A document has its position as ``_id``, the run's key ``k``, ``agent`` and ``run``, and ``seqs`` or ``up_to``. A writer
inserts at the position after the last one, and tries again if another writer was faster. So positions have no gaps, and
a reader that has read up to a position has missed none before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bson.int64 import Int64

from agent_memory_log.backend_kit import check_erasures, check_journal_reached
from agent_memory_log.errors import DecodeError
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.store import Erasure, Erasures
from agent_memory_log_mongo.documents.commits import Document, Run
from agent_memory_log_mongo.documents.events import decode_events
from agent_memory_log_mongo.engine.call import Call, TryAgain

BY_RUN = "erasures_of_runs"
_RUNS_AT_ONCE = 1_000


async def note_erasure(call: Call, run: Run, *, seqs: Sequence[int] = (), up_to: int = 0) -> None:
    """Append an entry to the journal."""
    fields: Document = {"k": run.key, "agent": run.agent, "run": run.run}
    fields |= {"up_to": Int64(up_to)} if up_to else {"seqs": list(seqs)}

    async def attempt() -> None:
        position = await _end(call) + 1
        # If the outcome is unknown, a second entry with the same content does no harm.
        if not (await call.insert_once(call.database.erasures, {"_id": Int64(position), **fields})):
            raise TryAgain

    await call.until_done(attempt)


async def _end(call: Call) -> int:
    # The filter and the hint make every server use the index.
    of_all = {"_id": {"$gt": 0}}
    last = await call.find_one(call.database.erasures, of_all, sort={"_id": -1}, fields={"_id": 1}, hint="_id_")
    return int(last["_id"]) if last is not None else 0


async def erasures(call: Call, after: int, runs: Iterable[tuple[str, str]] | None, limit: int | None) -> Erasures:
    """Read the journal."""
    pairs = check_erasures(after, runs, limit)
    end = await _end(call)
    check_journal_reached(after, end)
    if after == end:
        return Erasures(end)
    entries: list[Erasure] = []
    if pairs is None:
        entries = await _entries(call, {}, after, end, limit)
    keys = sorted({Run.of(agent, run).key for agent, run in pairs or ()})
    for begin in range(0, len(keys), _RUNS_AT_ONCE):
        entries += await _entries(call, {"k": {"$in": keys[begin : begin + _RUNS_AT_ONCE]}}, after, end, limit)
    entries = sorted(entries, key=lambda entry: entry.position)[:limit]
    return Erasures(entries[-1].position if len(entries) == limit else end, tuple(entries))


async def _entries(call: Call, where: Document, after: int, end: int, limit: int | None) -> list[Erasure]:
    entries: list[Erasure] = []
    while after < end and (limit is None or len(entries) < limit):
        bounds = {"_id": {"$gt": after, "$lte": end}}
        more = await call.find(call.database.erasures, {**where, **bounds}, sort={"_id": 1}, limit=limit or 0)
        if not more:
            break
        entries += map(_entry, more)
        after = entries[-1].position
    return entries


def _entry(document: Document) -> Erasure:
    try:
        seqs = tuple(int(seq) for seq in document.get("seqs", ()))
        return Erasure(int(document["_id"]), document["agent"], document["run"], seqs, int(document.get("up_to", 0)))
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(f"an entry of the erasure journal cannot be read: {error!r}") from error


async def fill_journal(call: Call) -> None:
    """Fill the journal from the tombstones and markers of a database that had none.

    An interrupted fill is repeated, so some entries may be there twice. Older releases did not note whether a run was
    deleted or had expired, so every tombstone counts as a deletion.
    """
    last: Any = None
    while True:
        where: Document = {} if last is None else {"_id": {"$gt": last}}
        of_interest = {"$or": [{"n": 0}, {"events.type": Redaction.event_type}]}
        commits = await call.find(call.database.commits, {**where, **of_interest}, sort={"_id": 1})
        if not commits:
            return
        for commit in commits:
            run = Run(commit["agent"], commit["run"], commit["k"])
            if not commit["n"]:
                if commit.get("b", 0) == commit["v"]:  # a tombstone, not a commit that a deletion emptied
                    await note_erasure(call, run, up_to=commit["v"])
                continue
            for event in decode_events([commit], run.name, 0):
                if isinstance(event.data, Redaction):
                    await note_erasure(call, run, seqs=event.data.seqs)
        last = commits[-1]["_id"]
