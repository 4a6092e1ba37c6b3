"""Tests that ``amlog expire`` counts, asks, and deletes only expired runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_memory_log import PlannerNote
from tests.amlog import Amlog, run_on_terminal
from tests.sqlite.rows import set_in_run

NOTHING = {"runs": 0, "events": 0, "dry_run": False}


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    """Return a store with runs that expire in 1970, in 2001, in 9999 and never."""
    command = Amlog(tmp_path, capsys)
    monkeypatch.setenv("AMLOG_STORE", command.url)
    monkeypatch.delenv("AMLOG_DEBUG", raising=False)
    note = PlannerNote(note="n")
    command.append("a", "endless", note)
    for run in ("older", "newer", "ends"):
        command.append("a", run, note, note, meta={"expires_at": "9999-12-31T23:59:59Z"})
    for run, end in (("older", 1), ("newer", 1_000_000_000_000_000)):  # avoids a wait in the test
        set_in_run(tmp_path / "runs.db", "expires_at", end, run)
    return command


def _runs(amlog: Amlog) -> list[str]:
    return [run["name"] for run in amlog.ok("runs", "--json").json["runs"]]


def test_expire_deletes_only_expired_runs(amlog: Amlog) -> None:
    assert _runs(amlog) == ["a/ends", "a/endless"]
    assert amlog.ok("expire", "--yes").out == "✔ deleted 2 expired runs with 4 events\n"
    assert _runs(amlog) == ["a/ends", "a/endless"]
    assert "was deleted at version 2" in amlog.error("show", "a/older")
    assert amlog.ok("expire").out == "✔ no run has expired\n", "there is nothing to ask about"
    assert amlog.ok("expire", "--json").json == NOTHING


def test_expire_json_counts_runs_and_events(amlog: Amlog) -> None:
    assert amlog.ok("expire", "--yes", "--json").json == {"runs": 2, "events": 4, "dry_run": False}


def test_dry_run_changes_nothing(amlog: Amlog) -> None:
    for _ in range(2):
        assert amlog.ok("expire", "--dry-run").out == "✔ would delete 2 expired runs with 4 events\n"
        assert amlog.ok("expire", "--dry-run", "--json").json == {"runs": 2, "events": 4, "dry_run": True}
    assert "expired at 2001-09-09T01:46:40Z" in amlog.error("show", "a/newer")


def test_before_limits_the_deleted_runs(amlog: Amlog) -> None:
    assert amlog.ok("expire", "--yes", "--before", "2001-09-09T03:46:39.999999+02:00", "--json").json["runs"] == 1
    assert amlog.ok("expire", "--yes", "--before", "2001-09-09T03:46:40+02:00").out == (
        "✔ deleted 1 expired run with 2 events\n"
    )


@pytest.mark.parametrize(
    "before", ["", "yesterday", "2026-01-01", "2026-01-01T00:00:00", "0000-01-01T00:00:00Z", "\x1b[2J"]
)
def test_expire_refuses_an_invalid_time(amlog: Amlog, before: str) -> None:
    assert "--before" in amlog.error("expire", "--yes", "--before", before, status=2)
    assert amlog.ok("expire", "--dry-run", "--json").json["runs"] == 2


def test_expire_refuses_a_time_in_the_future(amlog: Amlog) -> None:
    assert "future" in amlog.error("expire", "--yes", "--before", "9999-12-31T23:59:59Z")
    assert _runs(amlog) == ["a/ends", "a/endless"]


def test_expire_without_a_terminal_requires_yes(amlog: Amlog) -> None:
    message = amlog.error("expire", status=2)
    assert message.startswith("Delete 2 expired runs with 4 events permanently? There is no terminal")
    assert amlog.ok("expire", "--dry-run", "--json").json["runs"] == 2


@pytest.mark.parametrize(("answer", "status", "left"), [("y\n", 0, 0), ("n\n", 1, 2)])
def test_expire_asks_on_a_terminal(amlog: Amlog, answer: str, status: int, left: int) -> None:
    ran = run_on_terminal("expire", "--store", amlog.url, answer=answer)
    assert ran.status == status
    assert "Delete 2 expired runs with 4 events permanently?" in ran.out
    assert amlog.ok("expire", "--dry-run", "--json").json["runs"] == left
