"""Tests of the pytest fixture ``replay``. Each test runs regression tests in a separate pytest process."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from agent_memory_log import open_sync_store
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.opening import open_store
from agent_memory_log.recording import SyncRunRecorder
from agent_memory_log.replay import Replayer, load_recording
from agent_memory_log.transfer.jsonl import export_run, export_store
from tests.processes import PATIENCE, PYTEST

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
    """Return a folder with a store of two runs, a file of one run and a file of both."""
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
        lines_of_one = [line async for line in export_run(source, "agent", "one")]
    (tmp_path / "both.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "one.jsonl").write_bytes(b"".join(lines_of_one))
    return tmp_path


def run_tests(folder: Path, body: str, *options: str) -> tuple[dict[str, int], str]:
    """Run the tests in ``body``. Return the number of tests with each outcome, and the output."""
    (folder / "test_agent.py").write_text(HEAD + body)
    completed = subprocess.run(
        [*PYTEST, "-W", "error", *options, "test_agent.py"],
        cwd=folder,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert completed.stdout, completed.stderr
    *_, summary = completed.stdout.strip().splitlines()
    words = summary.split(" in ")[0].replace(",", "").split()
    outcomes = {word.rstrip("s"): int(number) for number, word in zip(words[::2], words[1::2], strict=True)}
    return outcomes, completed.stdout


def test_run_is_replayed_from_a_file_or_a_store(recorded: Path) -> None:
    (recorded / "inner").mkdir()
    (recorded / "inner" / "one:t.jsonl").write_bytes((recorded / "one.jsonl").read_bytes())
    outcome, out = run_tests(
        recorded,
        f"""
def test_recording_in_a_file(replay):
    assert agent(replay("one.jsonl")) == {{"state": "one"}}

def test_run_of_a_file_with_two_runs(replay):
    assert agent(replay("both.jsonl", run="two", provider="anthropic")) == {{"state": "two"}}

def test_recording_in_a_store(replay):
    assert agent(replay("sqlite:///{recorded}/runs.db", agent="agent", run="one")) == {{"state": "one"}}

def test_two_recordings_in_one_test(replay):
    assert agent(replay("one.jsonl")) != agent(replay("both.jsonl", agent="agent", run="two"))

def test_lenient_match(replay):
    replayer = replay("one.jsonl", match="order")
    assert replayer.tool_result("x").tool_call_id == "t1"

def test_replay_in_a_running_loop(replay):
    import asyncio

    async def main():
        async with replay("one.jsonl") as replayer:
            assert agent(replayer) == {{"state": "one"}}

    asyncio.run(main())

def test_path_with_a_colon_is_relative_to_the_test(replay, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert agent(replay("inner/one:t.jsonl")) == {{"state": "one"}}

def test_without_the_fixture(request):
    pass
""",
    )
    assert outcome == {"passed": 8}, out


def test_unused_step_fails_the_test_at_its_end(recorded: Path) -> None:
    outcome, out = run_tests(
        recorded,
        """
def test_unused_recording(replay):
    replay("one.jsonl")

def test_divergence_caught_by_the_agent(replay):
    with pytest.raises(Exception):
        agent(replay("one.jsonl"), order=8)
""",
    )
    assert outcome == {"passed": 2, "error": 2}, out
    assert 'orders.find {"id":7} (event 2)' in out
    assert "id: recorded 7, now 8" in out


def test_failed_test_gets_no_second_error(recorded: Path) -> None:
    outcome, out = run_tests(
        recorded,
        """
def test_divergence(replay):
    agent(replay("one.jsonl"), order=8)

def test_failure(replay):
    replay("one.jsonl")
    assert False
""",
    )
    assert outcome == {"failed": 2}, out
    assert "id: recorded 7, now 8" in out


def test_plugin_imports_no_modules_before_its_first_use(recorded: Path) -> None:
    outcome, out = run_tests(
        recorded,
        """
import subprocess, sys

def test_imported_modules():
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


async def test_load_recording_works_inside_a_running_loop(recorded: Path) -> None:
    recording = load_recording(recorded / "both.jsonl", run="two")
    with open_sync_store(f"sqlite:///{recorded}/runs.db") as store:
        assert list(recording.log) == list(store.load_run("agent", "two").log)
    assert Replayer(recording).model_turn().message["content"] == ANSWER["content"]


# Recording.

LIVE = f"""
ANSWER = {ANSWER!r}

def live(recorder, state="live"):
    recorder.user("Where is my order?")
    (event,) = recorder.record_response(ANSWER).tool_calls
    with recorder.tool_call(event) as call:
        call.result({{"state": state}})

async def live_async(recorder):
    await recorder.user("Where is my order?")
    (event,) = (await recorder.record_response(ANSWER)).tool_calls
    async with recorder.tool_call(event) as call:
        call.result({{"state": "live"}})

def never(recorder):
    raise AssertionError("The agent ran live.")
"""


def test_missing_recording_says_what_to_do(recorded: Path) -> None:
    outcome, out = run_tests(
        recorded,
        LIVE
        + """
def test_without_record(replay):
    replay("none.jsonl")

def test_with_record(replay):
    replay("none.jsonl", record=never)
""",
    )
    assert outcome == {"failed": 2}, out
    assert "none.jsonl: write it with `amlog export AGENT/RUN -o none.jsonl`" in out
    assert "none.jsonl: run pytest --amlog-record=missing to record it" in out
    assert "Traceback" not in out


def test_missing_recording_is_recorded_and_replayed(recorded: Path) -> None:
    body = (
        LIVE
        + """
def test_sync(replay):
    assert agent(replay("inner/sync.jsonl", record=live)) == {"state": "live"}

def test_async(replay):
    assert agent(replay("async.jsonl", agent="support", record=live_async)) == {"state": "live"}

def test_async_in_a_running_loop(replay):
    import asyncio

    async def main():
        assert agent(replay("loop.jsonl", record=live_async)) == {"state": "live"}

    asyncio.run(main())

def test_same_recording_twice(replay):
    replayers = [replay("twice.jsonl", record=live), replay("twice.jsonl", record=live)]
    assert [agent(replayer) for replayer in replayers] == [{"state": "live"}] * 2

def test_existing_recording(replay):
    assert agent(replay("one.jsonl", record=never)) == {"state": "one"}
"""
    )
    outcome, out = run_tests(recorded, body, "--amlog-record=missing")
    assert outcome == {"passed": 5}, out
    names = {
        (run.agent, run.run) for run in map(load_recording, [recorded / "inner/sync.jsonl", recorded / "async.jsonl"])
    }
    assert names == {("agent", "sync"), ("support", "async")}
    outcome, out = run_tests(
        recorded, body.replace("record=live_async", "record=never").replace("record=live", "record=never")
    )
    assert outcome == {"passed": 5}, out
    assert not list(recorded.glob("**/.amlog-*"))


def test_recordings_are_replaced_on_request_if_the_test_passes(recorded: Path) -> None:
    earlier = (recorded / "one.jsonl").read_bytes()
    (recorded / "other.jsonl").write_bytes(earlier)
    both = (recorded / "both.jsonl").read_bytes()
    outcome, out = run_tests(
        recorded,
        LIVE
        + """
def test_failed_assertion(replay):
    assert agent(replay("one.jsonl", record=live)) == {"state": "other"}

def test_failed_live_run(replay):
    agent(replay("one.jsonl", record=never))

def test_unused_recording(replay):
    replay("one.jsonl", record=live)

def test_skipped(replay):
    agent(replay("one.jsonl", record=live))
    pytest.skip("after the recording")

def test_nothing_recorded(replay):
    replay("one.jsonl", record=lambda recorder: None)

def test_file_of_two_runs(replay):
    replay("both.jsonl", record=never)

def test_file_of_another_run(replay):
    replay("one.jsonl", run="two", record=never)

def test_without_record(replay):
    assert agent(replay("one.jsonl")) == {"state": "one"}

def test_passes(replay):
    assert agent(replay("other.jsonl", record=live)) == {"state": "live"}
""",
        "--amlog-record=all",
    )
    assert outcome == {"failed": 5, "passed": 3, "skipped": 1, "error": 1}, out
    assert "recorded no events" in out
    assert "the runs are: agent/one, agent/two" in out
    assert "one.jsonl holds the run agent/one, which the recording of agent/two would replace" in out
    assert (recorded / "one.jsonl").read_bytes() == earlier
    assert (recorded / "both.jsonl").read_bytes() == both
    other = load_recording(recorded / "other.jsonl")
    assert (other.agent, other.run) == ("agent", "one")
    assert (recorded / "other.jsonl").read_bytes() != earlier
