"""Random damage to an SQLite store: a small file, what is done to it, and what its readers and ``verify`` then say."""

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
    """A store of ten runs, with redactions, deletions, expiries and every column in use."""
    with open_sync_store(f"sqlite:///{path}?durability=os") as store:
        for number, (agent, run) in enumerate(_RUNS):
            meta = {"session": run, "expires_at": "9999-01-01T00:00:00Z"} if number % 3 == 0 else None
            for place in range(random.randrange(20, 60)):
                store.append_events(
                    agent,
                    run,
                    new_event(
                        _payload(random, place),
                        timestamp=_START + timedelta(seconds=place),
                        labels={"place": str(place)} if place % 4 == 0 else {},
                        event_id=f"{run}-{place}",
                    ),
                    meta=meta,
                    reserved=True,
                )
        store.redact_events("support", "run-1", [2, 3, 9], reason="asked for")
        store.delete_run("support", "run-2")
        store.append_events("support", "run-2", new_event(PlannerNote(note="begun again")))
        store.delete_run("support", "run-3")


def _payload(random: Random, place: int) -> EventData:
    text = " ".join(random.choices(("order", "invoice", "tomorrow", "why", "naïve", "日本", "0123456789"), k=12))
    return (
        UserMessage(message=text, structured={"n": place}),
        ToolCall(f"c{place}", "find", payload_json=f'{{"q": "{text}"}}'),
        ToolResult(f"c{place - 1}", "find", result_json=f'["{text}"]'),
        AssistantMessage(message=text),
        PlannerNote(note=text),
    )[place % 5]


def _flip(data: bytearray, random: Random) -> None:
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _flip_in_front(data: bytearray, random: Random) -> None:
    """Where the file's header, its schema and the pages' own headers are."""
    page = random.randrange(len(data) // _PAGE) * _PAGE
    data[page + random.randrange(100 if page else 2000)] ^= 1 << random.randrange(8)


def _set_byte(data: bytearray, random: Random) -> None:
    data[random.randrange(len(data))] = random.randrange(256)


def _zero(data: bytearray, random: Random) -> None:
    length = random.choice((1, 8, 64, 512, _PAGE))
    start = random.randrange(len(data))
    data[start : start + length] = bytes(len(data[start : start + length]))


def _swap_pages(data: bytearray, random: Random) -> None:
    one, two = (number * _PAGE for number in random.sample(range(len(data) // _PAGE), 2))
    first, second = bytes(data[one : one + _PAGE]), bytes(data[two : two + _PAGE])
    data[one : one + _PAGE], data[two : two + _PAGE] = second, first


def _copy_page(data: bytearray, random: Random) -> None:
    one, two = (number * _PAGE for number in random.sample(range(len(data) // _PAGE), 2))
    data[one : one + _PAGE] = data[two : two + _PAGE]


def _cut(data: bytearray, random: Random) -> None:
    """Anywhere, or at a page; but not to nothing, which is a new store."""
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
    """Take an entry from an index, or change one: on a page that belongs to it."""
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
    """Do one random damage to the file; what was done."""
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
    """Everything that a reader can ask."""
    said: Truth = {}
    with open_sync_store(f"sqlite:///{path}?mode=ro{options}") as store:
        said["runs"] = store.list_runs(limit=100, include_reserved=True).runs
        said["support"] = store.list_runs("support", limit=100).runs
        names = [*_RUNS, ("no", "such")]
        said["heads"] = store.peek_runs(names)
        for agent, run in names:
            snapshot = store.load_run(agent, run)
            some = store.load_run(agent, run, types=("planner_note", "user_message"))
            said[f"{agent}/{run}"] = (snapshot.version, snapshot.first_seq, snapshot.meta, list(snapshot.log))
            said[f"{agent}/{run} some"] = (some.version, list(some.log))
    return said


class Outcome(msgspec.Struct, frozen=True):
    """What one damage came to.

    - ``matters``: a reader without checking gets something else than the truth, or an error.
    - ``read``: what a reader with ``verify=on`` gets: ``right``, ``refused``, ``earlier`` or ``wrong``. ``earlier`` is
      the one limit: a run as it was some events ago, which nothing in the file contradicts.
    - ``found``: whether ``verify`` fails, or cannot open the file.
    """

    done: str
    matters: bool
    read: str
    found: bool


def outcome(path: Path, done: str, truth: Truth) -> Outcome:
    """Read a damaged file in each way."""
    try:
        matters = _read(path, "") != truth
    except AgentMemoryLogError:
        matters = True
    try:
        said = _read(path, "&verify=on")
        read = "right" if said == truth else "earlier" if _is_earlier(said, truth) else "wrong"
    except AgentMemoryLogError:
        read = "refused"
    return Outcome(done, matters, read, asyncio.run(_is_found(path)))


def _is_earlier(said: Truth, truth: Truth) -> bool:
    """Whether each run is what it was at some time before."""
    for agent, run in _RUNS:
        version, first_seq, meta, log = said[f"{agent}/{run}"]
        *head, whole = truth[f"{agent}/{run}"]
        if [first_seq, meta] != head[1:] or log != whole[: len(log)] or version != first_seq - 1 + len(log):
            return False
    return True


async def _is_found(path: Path) -> bool:
    try:
        async with open_store(f"sqlite:///{path}") as store:
            return not (await verify(store)).ok
    except AgentMemoryLogError:
        return True


def campaign(folder: Path, seed: int, count: int) -> list[Outcome]:
    """Damage a file ``count`` times, each time anew."""
    whole, path = folder / "whole.db", folder / "damaged.db"
    make(whole, Random(seed))  # as above
    truth = _read(whole, "&verify=on")
    assert truth == _read(whole, "")
    outcomes: list[Outcome] = []
    for number in range(count):
        for old in folder.glob("damaged.db*"):
            old.unlink()
        shutil.copy(whole, path)
        done = damage(path, Random(f"{seed}/{number}"))
        outcomes.append(outcome(path, f"{number} {done}", truth))
    return outcomes


def counts(outcomes: list[Outcome]) -> Counter[tuple[bool, str, bool]]:
    """How many there are of each."""
    return Counter((one.matters, one.read, one.found) for one in outcomes)
