"""The example as a program: what is captured in one process is applied in another, and what is refused stays out."""

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


def test_every_step_is_reported_and_can_be_inspected(amlog: Amlog, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, "--store", amlog.url],
        cwd=tmp_path,
        env=environment(PYTHONWARNINGS="error"),
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for text in (
        "please write to me in English",
        "ok     response_style: concise",
        "!!     declared_tier   key_denied_execution",
        "agent  Incident update:",
        f"!!     stopped: {STOPPED}   declared_tier",
    ):
        assert text in done.stdout
    verified = done.stdout.partition("The results\n")[2].splitlines()
    assert [line[:5] for line in verified[:4]] == ["   ok"] * 4
    shown = amlog.ok("memory", "explain", "language", "--store", amlog.url, "--tenant", "demo", "--user", "42").out
    assert "incident-desk/demo-capture#1  user: Hello, please write to me in English" in shown


def test_a_check_that_fails_is_a_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same process each time, and so no other session: the check on that must say so."""
    sessions = [msgspec.structs.replace(session, process=1) for session in play_all(f"sqlite:///{tmp_path / 'a.db'}")]
    assert [session.name for session in sessions] == list(SESSIONS)
    checks = program.check({session.name: session for session in sessions})
    assert [one.ok for one in checks] == [True, True, False, True]

    def play_all_in_one_process(_url: str) -> Iterator[PlayedSession]:
        return iter(sessions)

    monkeypatch.setattr(program, "play_all", play_all_in_one_process)
    assert program.main(["--store", "sqlite:///unused.db"]) == 1


def test_a_store_that_does_not_outlive_a_process_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["--store", "memory:"]) == 1
    assert "outlives a process" in capsys.readouterr().err


def test_sessions_play_in_processes_that_share_a_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'demo.db'}"
    captured, applied, overreached = play_all(url)
    assert len({captured.process, applied.process, overreached.process}) == 3
    assert {one.key: one.value for one in captured.result.memory_state} == {
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


def test_sessions_need_a_store_that_outlives_a_process() -> None:
    with pytest.raises(InvalidArgument, match="outlives"):
        play_all("memory:")
    with pytest.raises(RuntimeError, match=r"(?s)'capture' failed.*no installed backend"):
        list(play_all("nowhere://x"))
