"""Kills a recording process at random moments and starts it again until it finishes.

The log must equal the log of a process that was never killed. A tool whose result was acknowledged must not run again.
As a program (arguments: KIND URL), this module is that process: a scripted agent with parallel and nested tools, an
error and a retry.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agent_memory_log import Event, ToolCall, ToolResult, open_store, open_sync_store
from agent_memory_log.recording import RecordedCall, RunRecorder, SyncRunRecorder
from tests import processes

ROUNDS = 8
KILLS = 8


def say(text: str) -> None:
    """Print a line without buffering, so that a kill cannot lose it."""
    os.write(1, f"{text}\n".encode())


def work(call: RecordedCall, name: str) -> None:
    """Run a tool, unless its result is already recorded."""
    if call.recorded is None:
        say(f"ran {name}")
        call.result({"tool": name})


def answer(number: int) -> dict[str, Any]:
    """Return a model's answer that calls a tool. The answer differs in each process, like that of a real model."""
    block = {"type": "tool_use", "id": f"toolu_{number}_{os.getpid()}", "name": "orders--find", "input": {"n": number}}
    content = [{"type": "thinking", "thinking": "", "signature": f"{os.getpid()}"}, block]
    return {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m", "content": content}


def record_sync(url: str) -> None:
    with open_sync_store(url) as store, SyncRunRecorder(store, "agent", "run") as recorder:
        say("ready")
        for number in range(ROUNDS):
            recorder.user(f"question {number}", key=f"{number}")
            response = recorder.recorded_response(f"{number}") or recorder.record_response(
                answer(number), key=f"{number}"
            )
            say(f"answered {number}")
            for event in response.tool_calls:
                with recorder.tool_call(event) as call:
                    work(call, f"asked-{number}")
                say(f"done asked-{number}")
            with recorder.tool_call("outer", {"n": number}, key=f"outer-{number}") as call:
                with recorder.tool_call("inner", key=f"inner-{number}") as inner:
                    work(inner, f"inner-{number}")
                say(f"done inner-{number}")
                work(call, f"outer-{number}")
            say(f"done outer-{number}")
            recorder.assistant(f"answer {number}", key=f"{number}")
    say("finished")


def record_async(url: str) -> None:
    async def main() -> None:
        async with open_store(url) as store, RunRecorder(store, "agent", "run") as recorder:
            say("ready")

            async def tool(name: str, *inside: str) -> None:
                async with recorder.tool_call(name, key=name) as call:
                    await asyncio.gather(*(tool(nested) for nested in inside))
                    work(call, name)
                say(f"done {name}")

            async def failing(name: str) -> None:
                async with recorder.tool_call(name, key=name) as call:
                    if call.recorded is None:
                        say(f"ran {name}")
                        raise ValueError(name)

            for number in range(ROUNDS):
                await recorder.user(f"question {number}", key=f"{number}")
                await asyncio.gather(
                    tool(f"a-{number}", f"aa-{number}", f"ab-{number}"),
                    tool(f"b-{number}"),
                    failing(f"c-{number}"),
                    return_exceptions=True,
                )
                await recorder.assistant(f"answer {number}", key=f"{number}")
        say("finished")

    asyncio.run(main())


def start(kind: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.recording.test_recorder_crash", kind, url],
        cwd=processes.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_run_killed_repeatedly_equals_a_run_never_killed(tmp_path: Path, kind: str) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    generator = random.Random(kind)
    lines: list[str] = []
    for _ in range(KILLS):
        process = start(kind, url)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        lines += [process.stdout.readline() for _ in range(generator.randrange(1, 12))]
        process.kill()
        rest, _ = process.communicate(timeout=processes.PATIENCE)
        lines += rest.splitlines(keepends=True)
        _check_acknowledged_results(url, lines)
        _check_no_tool_ran_again(lines)
    lines += processes.finish(start(kind, url)).splitlines(keepends=True)
    assert lines[-1] == "finished\n"
    _check_no_tool_ran_again(lines)

    assert "ran" not in processes.finish(start(kind, url))
    never_killed = f"sqlite:///{tmp_path / 'never-killed.db'}"
    processes.finish(start(kind, never_killed))
    assert sorted(map(_comparable, _log(url))) == sorted(map(_comparable, _log(never_killed)))
    if kind == "sync":
        assert [_comparable(event) for event in _log(url) if event.type != "tool_result"] == [
            _comparable(event) for event in _log(never_killed) if event.type != "tool_result"
        ]


def _log(url: str) -> list[Event]:
    with open_sync_store(url) as store:
        return list(store.load_run("agent", "run").log)


def _comparable(event: Event) -> str:
    """Return an event as text, without times, durations and process ids, which differ between runs."""
    data = event.data
    if isinstance(data, ToolResult):
        data = msgspec.structs.replace(data, duration_ns=0)
    text = f"{event.type} {data.to_map()}"
    for prefix in ("toolu_", "'signature': '"):
        head, mark, rest = text.partition(prefix)
        if mark:
            text = f"{head}{mark}…{rest.lstrip('0123456789_')}"
    return text


def _check_acknowledged_results(url: str, lines: list[str]) -> None:
    """Assert that the log has the result of every tool that was printed as done."""
    log = _log(url)
    stored_results = {event.data.result_json for event in log if isinstance(event.data, ToolResult)}
    for line in lines:
        if line.startswith("done "):
            assert f'{{"tool":"{line[5:-1]}"}}' in stored_results
    call_count = sum(isinstance(event.data, ToolCall) and event.data.tool_name == "orders.find" for event in log)
    assert call_count >= len({line for line in lines if line.startswith("answered")})


def _check_no_tool_ran_again(lines: list[str]) -> None:
    done: set[str] = set()
    for line in lines:
        word, _, name = line.partition(" ")
        if word == "done":
            done.add(name)
        assert not (word == "ran" and name in done)


if __name__ == "__main__":
    {"sync": record_sync, "async": record_async}[sys.argv[1]](sys.argv[2])
