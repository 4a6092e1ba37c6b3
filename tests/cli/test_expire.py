"""``amlog expire``: it counts, asks, deletes what has expired and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_memory_log import PlannerNote
from tests.amlog import Amlog, run_on_terminal
from tests.sqlite.rows import set_in_run

NOTHING = {"runs": 0, "events": 0, "dry_run": False}


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    """A store with a run that ended in 1970, one that ended in 2001, one that will end and one without an end."""
    command = Amlog(tmp_path, capsys)
    monkeypatch.setenv("AMLOG_STORE", command.url)
    monkeypatch.delenv("AMLOG_DEBUG", raising=False)
    note = PlannerNote(note="n")
    command.append("a", "endless", note)
    for run in ("older", "newer", "ends"):
        command.append("a", run, note, note, meta={"expires_at": "9999-12-31T23:59:59Z"})
    for run, end in (("older", 1), ("newer", 1_000_000_000_000_000)):  # nobody has to wait for it
        set_in_run(tmp_path / "runs.db", "expires_at", end, run)
    return command


def _runs(amlog: Amlog) -> list[str]:
    return [one["name"] for one in amlog.ok("runs", "--json").json["runs"]]


def test_what_has_expired_goes_and_the_rest_stays(amlog: Amlog) -> None:
    assert _runs(amlog) == ["a/ends", "a/endless"]
    assert amlog.ok("expire", "--yes").out == "✔ deleted 2 expired runs with 4 events\n"
    assert _runs(amlog) == ["a/ends", "a/endless"]
    assert "was deleted at version 2" in amlog.error("show", "a/older")
    assert amlog.ok("expire").out == "✔ no run has expired\n", "there is nothing to ask about"
    assert amlog.ok("expire", "--json").json == NOTHING


def test_as_json(amlog: Amlog) -> None:
    assert amlog.ok("expire", "--yes", "--json").json == {"runs": 2, "events": 4, "dry_run": False}


def test_a_dry_run_changes_nothing(amlog: Amlog) -> None:
    for _ in range(2):
        assert amlog.ok("expire", "--dry-run").out == "✔ would delete 2 expired runs with 4 events\n"
        assert amlog.ok("expire", "--dry-run", "--json").json == {"runs": 2, "events": 4, "dry_run": True}
    assert "expired at 2001-09-09T01:46:40Z" in amlog.error("show", "a/newer")


def test_only_what_ended_by_an_instant(amlog: Amlog) -> None:
    assert amlog.ok("expire", "--yes", "--before", "2001-09-09T03:46:39.999999+02:00", "--json").json["runs"] == 1
    assert amlog.ok("expire", "--yes", "--before", "2001-09-09T03:46:40+02:00").out == (
        "✔ deleted 1 expired run with 2 events\n"
    )


@pytest.mark.parametrize(
    "before", ["", "yesterday", "2026-01-01", "2026-01-01T00:00:00", "0000-01-01T00:00:00Z", "\x1b[2J"]
)
def test_what_is_no_time(amlog: Amlog, before: str) -> None:
    assert "--before" in amlog.error("expire", "--yes", "--before", before, status=2)
    assert amlog.ok("expire", "--dry-run", "--json").json["runs"] == 2


def test_a_time_in_the_future(amlog: Amlog) -> None:
    assert "future" in amlog.error("expire", "--yes", "--before", "9999-12-31T23:59:59Z")
    assert _runs(amlog) == ["a/ends", "a/endless"]


def test_off_a_terminal_yes_must_be_given(amlog: Amlog) -> None:
    message = amlog.error("expire", status=2)
    assert message.startswith("Delete 2 expired runs with 4 events permanently? There is no terminal")
    assert amlog.ok("expire", "--dry-run", "--json").json["runs"] == 2


@pytest.mark.parametrize(("answer", "status", "left"), [("y\n", 0, 0), ("n\n", 1, 2)])
def test_on_a_terminal_it_asks(amlog: Amlog, answer: str, status: int, left: int) -> None:
    ran = run_on_terminal("expire", "--store", amlog.url, answer=answer)
    assert ran.status == status
    assert "Delete 2 expired runs with 4 events permanently?" in ran.out
    assert amlog.ok("expire", "--dry-run", "--json").json["runs"] == left
