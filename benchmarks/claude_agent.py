"""The rows of the table that compare Claude's sessions with the files of JSON lines that Claude Code writes.

The SDK has no class for SQLite. Both sides store the entries that Claude Code gives to the SDK.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from pathlib import Path
from typing import Any

from claude_agent_sdk import SessionKey

from agent_memory_log.integrations.claude_agent import MemoryLogSessionStore
from benchmarks.measure import Progress, Ratio, compare, timed
from benchmarks.scratch import scratch
from benchmarks.table import Figure, Row

_TURNS = 50
_LONG = 250
_AGAINST = "its file of JSON lines"
_KEY: SessionKey = {"project_key": "-home-kim-shop", "session_id": "5d1c0ff2-9c3e-4a54-8f0e-0c7a1f7f8c11"}

Entry = Any


def rows(fast: Path) -> list[Row]:
    """Return every comparison."""
    name = "Claude Agent"
    return [
        Row(f"{name}, append the 4 entries of a turn", _AGAINST, None, lambda n, p: _appends(fast, n, p)),
        Row(f"{name}, load 1,000 entries", _AGAINST, None, lambda n, p: _loads(fast, n, p)),
    ]


def figures(disk: Path) -> list[Figure]:
    """Return every plain number."""
    return [
        Figure("Claude Agent, bytes on disk", f"of {_AGAINST}", 1.0, lambda: _bytes_on_disk(disk)),
        Figure("Claude Agent, 2 processes on a session", "entries lost", 0, lambda: _lost(disk)),
    ]


def _turn(number: int, name: str = "") -> list[Entry]:
    """Return the entries of a turn with one call, with the fields that Claude Code writes."""
    call_id = f"toolu_{number:024d}"
    text = f"Your order {number} left the warehouse this morning and arrives on Friday. Can I do anything else for you?"
    status = f'{{"order":{number},"status":"sent"}}'
    use = {"type": "tool_use", "id": call_id, "name": "mcp__shop__find_order", "input": {"order": number}}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": [{"type": "text", "text": status}]}
    contents = [f"Where is my order {number}?", [use], [result], [{"type": "text", "text": text}]]
    return [_entry(4 * number + place, content, name) for place, content in enumerate(contents)]


def _entry(number: int, content: object, name: str) -> Entry:
    role = "assistant" if number % 2 else "user"
    message: dict[str, object] = {"role": role, "content": content}
    if role == "assistant":
        usage = {"input_tokens": 4, "cache_read_input_tokens": 12_000 + number, "output_tokens": 31}
        message |= {"id": f"msg_{number:024d}", "type": "message", "model": "claude-sonnet-5-5", "usage": usage}
        message |= {"stop_reason": "end_turn", "stop_sequence": None}
    return {
        "parentUuid": f"{name}7c9e6679-7425-40de-944b-{number - 1:012x}" if number else None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/home/kim/shop",
        "sessionId": _KEY["session_id"],
        "version": "2.1.40",
        "gitBranch": "main",
        "type": role,
        "message": message,
        "uuid": f"{name}7c9e6679-7425-40de-944b-{number:012x}",
        "timestamp": f"2026-11-20T09:{number // 60 % 60:02d}:{number % 60:02d}.123Z",
    }


def _store(folder: Path) -> MemoryLogSessionStore:
    return MemoryLogSessionStore(f"sqlite:///{folder / 'ours.db'}")


def _append_lines(path: Path, turns: list[list[Entry]]) -> None:
    for entries in turns:
        with path.open("a") as file:
            file.writelines(json.dumps(entry, separators=(",", ":"), ensure_ascii=False) + "\n" for entry in entries)


def _read_lines(path: Path) -> list[Entry]:
    with path.open() as file:
        return [json.loads(line) for line in file]


async def _append(store: MemoryLogSessionStore, turns: list[list[Entry]]) -> None:
    for entries in turns:
        await store.append(_KEY, entries)


def _appends(parent: Path, rounds: int, progress: Progress) -> Ratio:
    turns = [_turn(number) for number in range(_TURNS)]

    def log_side() -> float:
        with scratch(parent) as folder, asyncio.Runner() as runner, _store(folder) as store:
            return timed(lambda: runner.run(_append(store, turns)), _TURNS)

    def framework_side() -> float:
        with scratch(parent) as folder:
            return timed(lambda: _append_lines(folder / "session.jsonl", turns), _TURNS)

    return compare(log_side, framework_side, rounds, progress)


def _fill(folder: Path, runner: asyncio.Runner, store: MemoryLogSessionStore) -> Path:
    """Store the same long session on both sides, and return the path of the file."""
    path = folder / "session.jsonl"
    for number in range(_LONG):
        runner.run(_append(store, [_turn(number)]))
        _append_lines(path, [_turn(number)])
    return path


def _loads(parent: Path, rounds: int, progress: Progress) -> Ratio:
    with scratch(parent) as folder, asyncio.Runner() as runner, _store(folder) as store:
        path = _fill(folder, runner, store)
        assert runner.run(store.load(_KEY)) == _read_lines(path)
        return compare(
            lambda: timed(lambda: runner.run(store.load(_KEY)), 1),
            lambda: timed(lambda: _read_lines(path), 1),
            rounds,
            progress,
        )


def _bytes_on_disk(parent: Path) -> float:
    """Return the size of our file with 1,000 entries, as a part of the size of the file of JSON lines."""
    with scratch(parent) as folder, asyncio.Runner() as runner:
        with _store(folder) as store:
            path = _fill(folder, runner, store)
        return sum(file.stat().st_size for file in folder.glob("ours.db*")) / path.stat().st_size


def _append_in_process(folder: Path, name: str) -> None:
    with _store(folder) as store:
        asyncio.run(_append(store, [_turn(number, name) for number in range(_TURNS)]))


def _lost(disk: Path) -> float:
    with scratch(disk) as folder:
        spawn = multiprocessing.get_context("spawn")
        processes = [spawn.Process(target=_append_in_process, args=(folder, name)) for name in "ab"]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        with _store(folder) as store:
            stored = asyncio.run(store.load(_KEY)) or []
        return len(processes) * _TURNS * 4 - len({entry.get("uuid") for entry in stored})
