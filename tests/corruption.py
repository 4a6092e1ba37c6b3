"""Damages SQLite stores at random, and checks the results of readers and of ``verify``."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from agent_memory_log import (
    AgentMemoryLogError,
    AssistantMessage,
    EventData,
    PlannerNote,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.transfer.verifying import verify

_RUNS = [("support", f"run-{number}") for number in range(8)] + [("sales", "run-0"), ("@memory/t/user/1", "stream")]
_START = datetime(2026, 1, 1, tzinfo=UTC)
_PAGE = 4096


def make(path: Path, random: Random) -> None:
    """Create a store of ten runs, with redactions, deletions, expiries and values in every column."""
    with open_sync_store(f"sqlite:///{path}?durability=os") as store:
        for number, (agent, run) in enumerate(_RUNS):
            meta = {"session": run, "expires_at": "9999-01-01T00:00:00Z"} if number % 3 == 0 else None
            for position in range(random.randrange(20, 60)):
                store.append_events(
                    agent,
                    run,
                    new_event(
                        _payload(random, position),
                        timestamp=_START + timedelta(seconds=position),
                        labels={"position": str(position)} if position % 4 == 0 else {},
                        event_id=f"{run}-{position}",
                    ),
                    meta=meta,
                    reserved=True,
                )
        store.redact_events("support", "run-1", [2, 3, 9], reason="asked for")
        store.delete_run("support", "run-2")
        store.append_events("support", "run-2", new_event(PlannerNote(note="a new run")))
        store.delete_run("support", "run-3")


def _payload(random: Random, position: int) -> EventData:
    text = " ".join(random.choices(("order", "invoice", "tomorrow", "why", "naïve", "日本", "0123456789"), k=12))
    return (
        UserMessage(message=text, structured={"n": position}),
        ToolCall(f"c{position}", "find", payload_json=f'{{"q": "{text}"}}'),
        ToolResult(f"c{position - 1}", "find", result_json=f'["{text}"]'),
        AssistantMessage(message=text),
        PlannerNote(note=text),
    )[position % 5]


def _flip(data: bytearray, random: Random) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _flip_in_front(data: bytearray, random: Random) -> None:
    """Flip a bit in the file's header, its schema or the header of a page."""
    page = random.randrange(len(data) // _PAGE) * _PAGE
    data[page + random.randrange(100 if page else 2000)] ^= 1 << random.randrange(8)


def _set_byte(data: bytearray, random: Random) -> None:
    data[random.randrange(len(data))] = random.randrange(256)


def _zero(data: bytearray, random: Random) -> None:
    length = random.choice((1, 8, 64, 512, _PAGE))
    start = random.randrange(len(data))
    data[start : start + length] = bytes(len(data[start : start + length]))


def _swap_pages(data: bytearray, random: Random) -> None:
    first, second = (number * _PAGE for number in random.sample(range(len(data) // _PAGE), 2))
    first_page, second_page = bytes(data[first : first + _PAGE]), bytes(data[second : second + _PAGE])
    data[first : first + _PAGE], data[second : second + _PAGE] = second_page, first_page


def _copy_page(data: bytearray, random: Random) -> None:
    target, source = (number * _PAGE for number in random.sample(range(len(data) // _PAGE), 2))
    data[target : target + _PAGE] = data[source : source + _PAGE]


def _cut(data: bytearray, random: Random) -> None:
    """Cut the file at any byte or at a page. Keep at least one byte, because an empty file is a new store."""
    del data[random.choice((random.randrange(1, len(data)), random.randrange(1, len(data) // _PAGE) * _PAGE)) :]


IN_BYTES: list[Callable[[bytearray, Random], None]] = [
    _flip,
    _flip,
    _flip_in_front,
    _set_byte,
    _zero,
    _swap_pages,
    _copy_page,
    _cut,
]

IN_ROWS = [
    "DELETE FROM events WHERE id = {event}",
    "DELETE FROM events WHERE id >= {event} AND id < {event} + 5",
    "DELETE FROM runs WHERE id = {run}",
    "UPDATE events SET data = replace(data, 'order', 'other') WHERE id = {event}",
    "UPDATE events SET data = (SELECT data FROM events WHERE id = {other}) WHERE id = {event}",
    "UPDATE events SET verbatim = NULL WHERE id = {event}",
    "UPDATE events SET labels = NULL WHERE id = {event}",
    "UPDATE events SET timestamp = timestamp + 1 WHERE id = {event}",
    "UPDATE events SET event_id = event_id || 'x' WHERE id = {event}",
    "UPDATE events SET type = 'planner_note' WHERE id = {event}",
    "UPDATE events SET sum = NULL WHERE id = {event}",
    "UPDATE events SET run = 1 WHERE id = {event}",
    "UPDATE events SET id = -id WHERE id = {event}",
    "UPDATE runs SET base_seq = base_seq + 1 WHERE id = {run}",
    "UPDATE runs SET agent = 'sales' WHERE id = {run} AND id > 1",
    "UPDATE runs SET run = run || 'x' WHERE id = {run}",
    "UPDATE runs SET meta = NULL WHERE id = {run}",
    "UPDATE runs SET expires_at = 1 WHERE id = {run}",
    "UPDATE runs SET created = NULL WHERE id = {run}",
    "UPDATE runs SET redactions = 0 WHERE id = {run}",
    "UPDATE runs SET sum = NULL WHERE id = {run}",
    "UPDATE runs SET sum = NULL, created = created + 1 WHERE id = {run}",
    "UPDATE runs SET id = 77 WHERE id = {run}",
    "DROP INDEX events_by_type",
]

_OF_INDEXES = ("events_by_event_id", "events_by_type", "runs_by_creation", "runs_by_agent", "sqlite_autoindex_runs_1")


def _in_rows(path: Path, random: Random) -> str:
    connection = sqlite3.connect(path, isolation_level=None)
    events = [number for (number,) in connection.execute("SELECT id FROM events")]
    runs = [number for (number,) in connection.execute("SELECT id FROM runs")]
    changed, statement = 0, ""
    while not changed:
        statement = random.choice(IN_ROWS)
        numbers = {"event": random.choice(events), "other": random.choice(events), "run": random.choice(runs)}
        with suppress(sqlite3.IntegrityError):
            changed = connection.execute(statement.format(**numbers)).rowcount
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return statement


def _in_index(path: Path, random: Random) -> str:
    """Remove or change an entry on the root page of an index."""
    connection = sqlite3.connect(path, isolation_level=None)
    index = random.choice(_OF_INDEXES)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)).fetchone()
    connection.close()
    data = bytearray(path.read_bytes())
    start = (root - 1) * _PAGE
    cells = int.from_bytes(data[start + 3 : start + 5], "big")
    if random.random() < 0.5 and cells > 1:
        data[start + 3 : start + 5] = (cells - 1).to_bytes(2, "big")
    else:
        data[start + random.randrange(_PAGE)] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    return f"index {index}"


def damage(path: Path, random: Random) -> str:
    """Damage the file once, at random. Return a description of the damage."""
    kind = random.randrange(10)
    if kind < 3:
        return _in_rows(path, random)
    if kind < 4:
        return _in_index(path, random)
    data = bytearray(path.read_bytes())
    change = random.choice(IN_BYTES)
    change(data, random)
    path.write_bytes(data)
    return change.__name__


Truth = dict[str, Any]


def _read(path: Path, options: str) -> Truth:
    """Return the results of all calls of a reader."""
    results: Truth = {}
    with open_sync_store(f"sqlite:///{path}?mode=ro{options}") as store:
        results["runs"] = store.list_runs(limit=100, include_reserved=True).runs
        results["support"] = store.list_runs("support", limit=100).runs
        names = [*_RUNS, ("no", "such")]
        results["heads"] = store.peek_runs(names)
        for agent, run in names:
            snapshot = store.load_run(agent, run)
            some = store.load_run(agent, run, types=("planner_note", "user_message"))
            results[f"{agent}/{run}"] = (snapshot.version, snapshot.first_seq, snapshot.meta, list(snapshot.log))
            results[f"{agent}/{run} some"] = (some.version, list(some.log))
            for types in (None, ("planner_note", "user_message"), ("planner_note", "tool_call")):
                newest = store.load_run(agent, run, types=types, last=2)
                results[f"{agent}/{run} last of {types}"] = (newest.version, newest.after, list(newest.log))
            ids = ["unknown", *(event.event_id for event in snapshot.log)]
            results[f"{agent}/{run} by id"] = store.find_events(agent, run, ids)
    return results


class Outcome(msgspec.Struct, frozen=True):
    """The effect of one damage.

    Attributes:
        damage: The description of the damage.
        matters: Whether a reader without verification returns wrong results or raises.
        read: The result of a reader with ``verify=on``: ``right``, ``refused``, ``earlier`` or ``wrong``. ``earlier``
            means that a run lost its last events. The rest is consistent, so the reader cannot detect this loss.
        detected: Whether ``verify`` reports an error or cannot open the file.
    """

    damage: str
    matters: bool
    read: str
    detected: bool


def outcome(path: Path, description: str, truth: Truth) -> Outcome:
    """Read a damaged file with and without verification."""
    try:
        matters = _read(path, "") != truth
    except AgentMemoryLogError:
        matters = True
    try:
        results = _read(path, "&verify=on")
        read = "right" if results == truth else "earlier" if _is_earlier(results, truth) else "wrong"
    except AgentMemoryLogError:
        read = "refused"
    return Outcome(description, matters, read, asyncio.run(_is_detected(path)))


def _is_earlier(results: Truth, truth: Truth) -> bool:
    """Return whether each run has the content of an earlier version."""
    for agent, run in _RUNS:
        version, first_seq, meta, log = results[f"{agent}/{run}"]
        *head, full_log = truth[f"{agent}/{run}"]
        if [first_seq, meta] != head[1:] or log != full_log[: len(log)] or version != first_seq - 1 + len(log):
            return False
    return True


async def _is_detected(path: Path) -> bool:
    try:
        async with open_store(f"sqlite:///{path}") as store:
            return not (await verify(store)).ok
    except AgentMemoryLogError:
        return True


def campaign(folder: Path, seed: int, count: int) -> list[Outcome]:
    """Damage ``count`` copies of a store's file, one at a time. Return their outcomes."""
    intact, path = folder / "intact.db", folder / "damaged.db"
    make(intact, Random(seed))
    truth = _read(intact, "&verify=on")
    assert truth == _read(intact, "")
    outcomes: list[Outcome] = []
    for number in range(count):
        for old in folder.glob("damaged.db*"):
            old.unlink()
        shutil.copy(intact, path)
        description = damage(path, Random(f"{seed}/{number}"))
        outcomes.append(outcome(path, f"{number} {description}", truth))
    return outcomes


def counts(outcomes: list[Outcome]) -> Counter[tuple[bool, str, bool]]:
    """Return the number of outcomes of each kind."""
    return Counter((item.matters, item.read, item.detected) for item in outcomes)
