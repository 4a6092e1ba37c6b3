"""Runs the example ``capture_and_apply`` as a program: one process captures memory, and another applies it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agent_memory_log.errors import InvalidArgument
from examples.capture_and_apply import __main__ as program
from examples.capture_and_apply.sessions import SESSIONS, PlayedSession, play_all
from tests.amlog import Amlog, environment
from tests.processes import PATIENCE, ROOT

STOPPED = "invalid_answer:memory_keys_out_of_context"
PROGRAM = ROOT / "examples" / "capture_and_apply"


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Amlog:
    return Amlog(tmp_path, capsys)


def test_program_prints_each_step_and_memory_can_be_explained(amlog: Amlog, tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, PROGRAM, "--store", amlog.url],
        cwd=tmp_path,
        env=environment(PYTHONWARNINGS="error"),
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (completed.returncode, completed.stderr) == (0, "")
    for text in (
        "please write to me in English",
        "ok     response_style: concise",
        "!!     declared_tier   key_denied_execution",
        "agent  Incident update:",
        f"!!     stopped: {STOPPED}   declared_tier",
    ):
        assert text in completed.stdout
    verified = completed.stdout.partition("The results\n")[2].splitlines()
    assert [line[:5] for line in verified[:4]] == ["   ok"] * 4
    explanation = amlog.ok(
        "memory", "explain", "language", "--store", amlog.url, "--tenant", "demo", "--user", "42"
    ).out
    assert "incident-desk/demo-capture#1  user: Hello, please write to me in English" in explanation


def test_failed_check_gives_exit_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All sessions have the same process id, so the check for separate processes must fail."""
    sessions = [msgspec.structs.replace(session, process=1) for session in play_all(f"sqlite:///{tmp_path / 'a.db'}")]
    assert [session.name for session in sessions] == list(SESSIONS)
    checks = program.check({session.name: session for session in sessions})
    assert [check.ok for check in checks] == [True, True, False, True]

    def play_all_in_one_process(_url: str) -> Iterator[PlayedSession]:
        return iter(sessions)

    monkeypatch.setattr(program, "play_all", play_all_in_one_process)
    assert program.main(["--store", "sqlite:///unused.db"]) == 1


def test_program_refuses_an_in_memory_store(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--store", "memory:"]) == 1
    assert "outlives a process" in capsys.readouterr().err


def test_sessions_run_in_separate_processes_on_one_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'demo.db'}"
    captured, applied, overreached = play_all(url)
    assert len({captured.process, applied.process, overreached.process}) == 3
    assert {memory.key: memory.value for memory in captured.result.memory_state} == {
        "language": "english",
        "response_style": "concise",
        "update_channel": "email",
    }
    outcomes = captured.result.trace[-1].detail["outcomes"]
    assert isinstance(outcomes, list)
    assert outcomes[-1] == {
        "key": "declared_tier",
        "scope": "user",
        "action": "blocked",
        "reason": "key_denied_execution",
    }
    assert applied.result.outcome == "memory_applied"
    assert applied.result.used_memory_keys == ("language", "response_style", "update_channel")
    assert applied.result.trace[-1].detail["verified"] == dict.fromkeys(applied.result.used_memory_keys, True)
    assert "payment" in applied.result.answer
    assert overreached.result.stop_reason == "invalid_answer:memory_keys_out_of_context"
    assert overreached.result.invalid_used_memory_keys == ("declared_tier",)


def test_sessions_refuse_an_in_memory_store_and_report_failures() -> None:
    with pytest.raises(InvalidArgument, match="outlives"):
        play_all("memory:")
    with pytest.raises(RuntimeError, match=r"(?s)'capture' failed.*no installed backend"):
        list(play_all("nowhere://x"))
