"""``amlog memory demo``: what is captured in one process is applied in another, and what is refused stays out."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_memory_log.cli.memory import demo as module
from agent_memory_log.memory.pattern.demo import Scene
from agent_memory_log.memory.pattern.demo_session import SESSIONS
from tests.amlog import Amlog, run, run_on_terminal, without_codes

STOPPED = "invalid_answer:memory_keys_out_of_context"


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Amlog:
    return Amlog(tmp_path, capsys)


def test_every_check_holds_and_the_sessions_are_told(amlog: Amlog) -> None:
    found = amlog.ok("memory", "demo", "--store", amlog.url, "--json").json
    assert found["ok"] is True
    assert [check["ok"] for check in found["checks"]] == [True] * 4
    assert [session["name"] for session in found["sessions"]] == list(SESSIONS)
    assert len({session["process"] for session in found["sessions"]}) == 3
    applied = found["sessions"][1]["result"]
    assert applied["outcome"] == "memory_applied"
    assert applied["used_memory_keys"] == ["language", "response_style", "update_channel"]
    assert found["sessions"][2]["result"]["stop_reason"] == STOPPED


def test_off_a_terminal_only_the_result_is_written(tmp_path: Path) -> None:
    ran = run("memory", "demo", TMPDIR=str(tmp_path))
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert [line[0] for line in lines] == ["✔"] * 4
    assert "declared_tier: key_denied_execution" in lines[1]


def test_on_a_terminal_every_step_is_told_and_can_be_looked_at(amlog: Amlog) -> None:
    out = without_codes(run_on_terminal("memory", "demo", "--store", amlog.url, columns=160).out)
    for text in (
        "please write to me in English",
        "✔ response_style: concise",
        "✘ declared_tier   key_denied_execution",
        "agent  Incident update:",
        f"✘ stopped: {STOPPED}   declared_tier",
        "What was verified",
    ):
        assert text in out
    shown = amlog.ok("memory", "explain", "language", "--store", amlog.url, "--tenant", "demo", "--user", "42").out
    assert "incident-desk/demo-capture#1  user: Hello, please write to me in English" in shown


def test_a_store_that_does_not_outlive_a_process_is_refused(amlog: Amlog) -> None:
    assert "outlives a process" in amlog.error("memory", "demo", "--store", "memory:", status=2)


def test_a_check_that_fails_is_a_status(amlog: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same process each time, and so no other session: the check on that must say so."""
    play = module._play

    def in_one_process(url: str) -> list[Scene]:
        return [Scene(scene.name, scene.script, 1, scene.result) for scene in play(url)]

    monkeypatch.setattr(module, "_play", in_one_process)
    ran = amlog("memory", "demo", "--store", amlog.url, "--json")
    assert ran.status == 1
    assert [check["ok"] for check in ran.json["checks"]] == [True, True, False, True]
