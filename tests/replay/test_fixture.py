"""The pytest fixture: a recorded run as a regression test, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_memory_log import open_sync_store
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.opening import open_store
from agent_memory_log.recording import SyncRunRecorder
from agent_memory_log.replay import Replayer, load_recording
from agent_memory_log.transfer.jsonl import export_run, export_store
from tests.processes import PATIENCE

ANSWER = {
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "tool_use", "id": "t1", "name": "orders--find", "input": {"id": 7}}],
}

HEAD = """
import pytest
from agent_memory_log.replay import value_of

def agent(replayer, order=7):
    block = replayer.model_turn().message["content"][0]
    return value_of(replayer.tool_result(block["name"], {"id": order}, tool_call_id=block["id"]))
"""


@pytest.fixture
async def recorded(tmp_path: Path) -> Path:
    """A folder with a store of two runs, a file of one of them and a file of both."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with open_sync_store(url) as store:
        for run in ("one", "two"):
            with SyncRunRecorder(store, "agent", run) as recorder:
                recorder.user("Where is my order?")
                (event,) = recorder.record_response(ANSWER).tool_calls
                with recorder.tool_call(event) as call:
                    call.result({"state": run})
    async with open_store(url) as source:
        lines = [line async for line in export_store(source)]
        one = [line async for line in export_run(source, "agent", "one")]
    (tmp_path / "both.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "one.jsonl").write_bytes(b"".join(one))
    return tmp_path


def run_tests(folder: Path, body: str) -> tuple[dict[str, int], str]:
    """What came of the tests in ``body``, and all that was printed."""
    (folder / "test_agent.py").write_text(HEAD + body)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-W",
            "error",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:asyncio",
            "test_agent.py",
        ],
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout, done.stderr
    *_, summary = done.stdout.strip().splitlines()
    words = summary.split(" in ")[0].replace(",", "").split()
    return {word.rstrip("s"): int(number) for number, word in zip(words[::2], words[1::2], strict=True)}, done.stdout


def test_a_run_is_replayed_from_a_file_or_a_store(recorded: Path) -> None:
    (recorded / "inner").mkdir()
    (recorded / "inner" / "one:t.jsonl").write_bytes((recorded / "one.jsonl").read_bytes())
    outcome, out = run_tests(
        recorded,
        f"""
def test_file(replay):
    assert agent(replay("one.jsonl")) == {{"state": "one"}}

def test_one_of_several(replay):
    assert agent(replay("both.jsonl", run="two", provider="anthropic")) == {{"state": "two"}}

def test_store(replay):
    assert agent(replay("sqlite:///{recorded}/runs.db", agent="agent", run="one")) == {{"state": "one"}}

def test_two(replay):
    assert agent(replay("one.jsonl")) != agent(replay("both.jsonl", agent="agent", run="two"))

def test_lenient(replay):
    replayer = replay("one.jsonl", match="order")
    assert replayer.tool_result("x").tool_call_id == "t1"

def test_in_a_running_loop(replay):
    import asyncio

    async def main():
        async with replay("one.jsonl") as replayer:
            assert agent(replayer) == {{"state": "one"}}

    asyncio.run(main())

def test_a_path_with_a_colon_is_relative_to_the_test_too(replay, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert agent(replay("inner/one:t.jsonl")) == {{"state": "one"}}

def test_unused(request):
    pass
""",
    )
    assert outcome == {"passed": 8}, out


def test_unused_step_fails_the_test_at_its_end(recorded: Path) -> None:
    outcome, out = run_tests(
        recorded,
        """
def test_nothing_used(replay):
    replay("one.jsonl")

def test_a_divergence_that_the_agent_caught(replay):
    with pytest.raises(Exception):
        agent(replay("one.jsonl"), order=8)
""",
    )
    assert outcome == {"passed": 2, "error": 2}, out
    assert 'orders.find {"id":7} (event 2)' in out
    assert "id: recorded 7, now 8" in out


def test_a_test_that_failed_is_not_failed_again(recorded: Path) -> None:
    outcome, out = run_tests(
        recorded,
        """
def test_diverges(replay):
    agent(replay("one.jsonl"), order=8)

def test_fails(replay):
    replay("one.jsonl")
    assert False
""",
    )
    assert outcome == {"failed": 2}, out
    assert "id: recorded 7, now 8" in out


def test_the_plugin_imports_nothing_before_it_is_used(recorded: Path) -> None:
    outcome, out = run_tests(
        recorded,
        """
import subprocess, sys

def test_imports():
    code = (
        "import sys, agent_memory_log.pytest_plugin; "
        "print([name for name in sys.modules if name.startswith(('agent_memory_log.replay', "
        "'agent_memory_log.transcript', 'agent_memory_log.recording'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
""",
    )
    assert outcome == {"passed": 1}, out


def test_ambiguous_run_is_refused(recorded: Path) -> None:
    both = recorded / "both.jsonl"
    with pytest.raises(InvalidArgument, match=r"both.jsonl: pass agent and run .* the runs are: agent/one, agent/two"):
        load_recording(both)
    with pytest.raises(InvalidArgument, match="pass agent and run"):
        load_recording(both, run="three")
    with pytest.raises(InvalidArgument, match="pass agent and run"):
        load_recording(f"sqlite:///{recorded}/runs.db", run="one")
    with pytest.raises(InvalidArgument, match="has no events of agent/three"):
        load_recording(f"sqlite:///{recorded}/runs.db", agent="agent", run="three")
    with pytest.raises(FileNotFoundError):
        load_recording(recorded / "none.jsonl")
    (recorded / "empty.jsonl").write_bytes(b"")
    with pytest.raises(InvalidArgument, match="the runs are: none"):
        load_recording(recorded / "empty.jsonl")


async def test_a_recording_is_read_whole_also_inside_a_running_loop(recorded: Path) -> None:
    read = load_recording(recorded / "both.jsonl", run="two")
    with open_sync_store(f"sqlite:///{recorded}/runs.db") as store:
        assert list(read.log) == list(store.load_run("agent", "two").log)
    assert Replayer(read).model_turn().message["content"] == ANSWER["content"]
