"""Tests of ``amlog copy``: its output, its refusals, hidden passwords, and copies that were killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import PlannerNote, UserMessage, new_event, open_sync_store
from agent_memory_log.cli.copy import _summary, _write_summary
from agent_memory_log.cli.output import Output
from agent_memory_log.transfer.copying import CopiedRun
from tests.amlog import PATIENCE, Amlog, append, run, run_on_terminal, start, without_codes
from tests.waiting import until_blocking


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    command = Amlog(tmp_path, capsys)
    monkeypatch.delenv("AMLOG_STORE", raising=False)
    monkeypatch.delenv("AMLOG_DEBUG", raising=False)
    return command


@pytest.fixture
def samples(amlog: Amlog, monkeypatch: pytest.MonkeyPatch) -> Amlog:
    monkeypatch.setenv("AMLOG_STORE", amlog.url)
    amlog.load_samples()
    monkeypatch.delenv("AMLOG_STORE")
    return amlog


def target_of(amlog: Amlog) -> str:
    return f"sqlite:///{amlog.folder / 'target.db'}"


def exported(amlog: Amlog, url: str) -> str:
    return amlog.ok("export", "--all", "--reserved", "--store", url).out


class TestCopying:
    def test_copy_transfers_all_runs_and_then_reports_nothing_new(self, samples: Amlog) -> None:
        samples.append("@memory", "own", PlannerNote(note="n"))
        target = target_of(samples)
        assert (
            samples.ok("copy", samples.url, target).out
            == "✔ copied 127 events of 7 runs   1 run of the library's own agents\n"
        )
        assert exported(samples, target) == exported(samples, samples.url)
        listed = [samples.ok("runs", "--all", "--store", url, "--json").json["runs"] for url in (samples.url, target)]
        first, second = ([run_map["name"] for run_map in runs] for runs in listed)
        assert first == second
        again = samples.ok("copy", samples.url, target).out
        assert again == "✔ nothing new: 7 runs with 127 events already stored\n"

    def test_copy_adds_new_events_and_new_redactions(self, samples: Amlog) -> None:
        name, target = "ops-agent/2026-03-06-slow-checkout", target_of(samples)
        samples.ok("copy", samples.url, target)
        samples.ok("redact", name, "2", "4-6", "--yes", "--store", samples.url, "--reason", "asked")
        samples.append("ops-agent", "2026-03-06-slow-checkout", PlannerNote(note="late"))
        ran = samples.ok("copy", samples.url, target)
        assert ran.out == "✔ copied 2 events of 6 runs   126 already stored   4 redacted\n"
        shown_events = [samples.ok("show", name, "--store", url, "--json").json_lines for url in (samples.url, target)]
        assert shown_events[0][:45] == shown_events[1][:45]
        assert shown_events[1][45]["data"] == {"seqs": [2, 4, 5, 6], "reason": "asked"}

    def test_copy_transfers_only_selected_runs(self, samples: Amlog) -> None:
        target = target_of(samples)
        ran = samples.ok("copy", samples.url, target, "2026-03-06-slow-checkout")
        assert ran.out == "✔ copied 45 events of ops-agent/2026-03-06-slow-checkout\n"
        assert samples.ok("copy", samples.url, target, "--agent", "support").out == "✔ copied 81 events of 5 runs\n"
        assert exported(samples, target) == exported(samples, samples.url)
        assert "either names of runs or --agent" in samples.error(
            "copy", samples.url, target, "x", "--agent", "a", status=2
        )

    def test_copy_json_has_totals_and_runs(self, amlog: Amlog) -> None:
        amlog.append("a", "one", PlannerNote(note="1"), PlannerNote(note="2"))
        amlog.append("b/c", "two", PlannerNote(note="n"))
        append(target_of(amlog), "a", "one", PlannerNote(note="other"))
        ran = amlog("copy", amlog.url, target_of(amlog), "--json")
        assert (ran.status, ran.err) == (1, "")
        report: dict[str, Any] = ran.json
        first, second = report.pop("runs")
        assert report == {
            "ok": False,
            "events": 3,
            "copied": 1,
            "already_there": 0,
            "redacted": 0,
            "failed": 1,
            "gone": 0,
            "reserved": 0,
        }
        assert (first["name"], first["seq"], first["digest"], first["gone"]) == ("a/one", 1, "", False)
        assert "the target holds another event" in first["problem"]
        assert len(second.pop("digest")) == 64
        assert second == {
            "name": "b%2Fc/two",
            "agent": "b/c",
            "run": "two",
            "version": 1,
            "events": 1,
            "copied": 1,
            "already_there": 0,
            "redacted": 0,
            "problem": "",
            "seq": 0,
            "gone": False,
        }

    def test_copy_reports_failed_runs_and_copies_the_others(self, amlog: Amlog) -> None:
        target = target_of(amlog)
        same = new_event(PlannerNote(note="n"))
        for name in ("one", "two", "three"):
            amlog.append("a", name, same)
        append(target, "a", "one", PlannerNote(note="other"))
        append(target, "a", "two", same, meta={"k": 1})
        ran = amlog("copy", amlog.url, target)
        assert (ran.status, ran.err) == (1, "")
        first, two, summary = ran.out.splitlines()
        assert first.startswith("error    a/one  #1  the target holds another event: a planner_note with the id ")
        assert two.startswith("error    a/two  the target's run has another meta")
        assert summary == "✘ copied 1 event of 3 runs   2 runs failed"

    def test_deleted_runs_of_the_source_are_no_failure(self, capsys: pytest.CaptureFixture[str]) -> None:
        deleted = CopiedRun("a", "r", copied=2, problem="was deleted", vanished=True)
        summary = _summary([deleted, CopiedRun("a", "s", version=1, events=1, already_stored=1)])
        assert (summary.ok, summary.vanished, summary.failed) == (True, 1, 0)
        _write_summary(Output(), [deleted], _summary([deleted]))
        assert capsys.readouterr().out == "✔ copied 2 events of 0 runs   1 run disappeared from the source\n"


class TestRefusals:
    def test_copy_of_a_missing_source_creates_nothing(self, amlog: Amlog) -> None:
        missing = amlog.folder / "missing.db"
        assert "no such file" in amlog.error("copy", f"sqlite:///{missing}", target_of(amlog))
        assert list(amlog.folder.iterdir()) == []

    def test_copy_refuses_a_source_without_runs(self, amlog: Amlog) -> None:
        with open_sync_store(amlog.url):
            pass
        target = target_of(amlog)
        assert amlog.error("copy", amlog.url, target) == "nothing to copy: the source has no runs"
        amlog.append("a", "r", PlannerNote(note="n"))
        assert "no runs of the agent 'b'" in amlog.error("copy", amlog.url, target, "--agent", "b")
        assert "no run 'x'" in amlog.error("copy", amlog.url, target, "x")
        assert not (amlog.folder / "target.db").exists()

    def test_copy_refuses_the_same_store_twice(self, amlog: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
        amlog.append("a", "r", PlannerNote(note="n"))
        path = amlog.folder / "runs.db"
        (amlog.folder / "linked.db").symlink_to(path)
        os.link(path, amlog.folder / "hard.db")
        monkeypatch.chdir(amlog.folder)
        for other in (
            amlog.url,
            f"{amlog.url}?durability=os",
            "sqlite:///runs.db",
            "sqlite:///./x/../runs.db",
            "sqlite:///linked.db",
            "sqlite:///hard.db",
        ):
            (amlog.folder / "x").mkdir(exist_ok=True)
            assert (
                amlog.error("copy", amlog.url, other, status=2)
                == "SOURCE_URL and TARGET_URL are the same store: give another TARGET_URL"
            )
        assert "same store" in amlog.error(
            "copy", "mongodb://one:pw@Host:1/db?x=1&y=2", "mongodb://two:pw@host:1/db?y=2&x=1", status=2
        )

    def test_copy_accepts_an_empty_target_file(self, amlog: Amlog) -> None:
        amlog.append("a", "r", PlannerNote(note="n"))
        (amlog.folder / "target.db").write_bytes(b"")
        assert amlog.ok("copy", amlog.url, target_of(amlog)).out == "✔ copied 1 event of a/r\n"


PASSWORDS = ("s3cret", "p#ss", "p@ss:w", "p/s?s", "p%40ss", "'\"\\", "on")


class TestCredentials:
    @pytest.mark.parametrize("password", PASSWORDS)
    def test_errors_show_no_credentials(self, samples: Amlog, password: str) -> None:
        url = f"nodb://someone:{password}@host/db?token=t0ken"
        for arguments in ((url, target_of(samples)), (samples.url, url), (samples.url, target_of(samples), url)):
            ran = samples("copy", *arguments)
            assert ran.status in (1, 2)
            output = ran.out + ran.err
            assert f":{password}" not in output
            assert "someone" not in output
            assert "t0ken" not in output
            assert "nodb" in output

    @pytest.mark.parametrize("password", ["s3cret", "s#cret"])
    def test_tracebacks_show_no_credentials(self, samples: Amlog, password: str) -> None:
        url = f"memory://someone:{password}@host/db?max_event_bytes=no"
        ran = run("copy", samples.url, url, "--debug")
        assert "Traceback" in ran.err
        assert password not in ran.err + ran.out
        assert "someone" not in ran.err + ran.out


@pytest.fixture
def urls(tmp_path: Path) -> tuple[str, str]:
    """Return the URL of a store with 24 runs and 9,600 events, and the URL of a store that does not exist yet."""
    source = f"sqlite:///{tmp_path / 'source.db'}"
    with open_sync_store(f"{source}?durability=os") as store:
        for number in range(24):
            notes = [new_event(UserMessage(message=f"{number} {at} " + "x" * 500)) for at in range(400)]
            store.append_events(
                "@own" if number % 5 == 4 else "a", f"r{number}", *notes, meta={"n": number}, reserved=True
            )
            store.redact_events("@own" if number % 5 == 4 else "a", f"r{number}", [7, 8], reason="asked")
    return source, f"sqlite:///{tmp_path / 'target.db'}"


def stored_count(url: str) -> int:
    """Return the number of events in a store, or 0 if the store does not exist yet."""
    if not Path(url.removeprefix("sqlite:///")).exists():
        return 0
    with open_sync_store(url) as store:
        return sum(info.event_count for info in store.list_runs(limit=500, include_reserved=True).runs)


class _Lock:
    """A lock on a database file, so that no other connection can write."""

    def __init__(self, url: str) -> None:
        self._connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=PATIENCE)

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, *_: object) -> None:
        self._connection.execute("ROLLBACK")
        self._connection.close()


class TestProcesses:
    def kill_in_the_middle(self, urls: tuple[str, str], signal_number: int, more: int) -> subprocess.Popen[bytes]:
        """Start a copy, wait until it has stored ``more`` events, and send a signal while it waits for the lock."""
        enough = stored_count(urls[1]) + more
        process = start("copy", *urls)
        until_blocking(lambda: stored_count(urls[1]) >= enough or process.poll() is not None)
        with _Lock(urls[1]):
            process.send_signal(signal_number)
        return process

    def test_copy_completes_after_several_kills(self, urls: tuple[str, str]) -> None:
        for more in (1, 1, 2000, 3000):
            process = self.kill_in_the_middle(urls, signal.SIGKILL, more)
            process.communicate(timeout=PATIENCE)
            assert process.returncode == -signal.SIGKILL
            assert 0 < stored_count(urls[1]) < stored_count(urls[0])
        already_stored = stored_count(urls[1])
        ran = run("copy", *urls, "--json")
        assert (ran.status, ran.err) == (0, "")
        assert (ran.json["events"], ran.json["already_there"]) == (9624, already_stored)
        assert ran.json["copied"] == 9624 - already_stored
        assert len({run_map["digest"] for run_map in ran.json["runs"]}) == 24
        exports = [run("export", "--all", "--reserved", "--store", url) for url in urls]
        assert exports[0].out == exports[1].out
        names = [
            [run_map["name"] for run_map in run("runs", "--all", "--json", "--store", url).json["runs"]] for url in urls
        ]
        assert names[0] == names[1]
        assert run("verify", "--store", urls[1]).out == "✔ 24 runs, 9,624 events: 0 errors, 0 warnings, 0 notes\n"
        assert run("copy", *urls).out == "✔ nothing new: 24 runs with 9,624 events already stored\n"

    def test_copy_continues_after_an_interrupt(self, urls: tuple[str, str]) -> None:
        process = self.kill_in_the_middle(urls, signal.SIGINT, 1)
        assert process.communicate(timeout=PATIENCE) == (b"", b"")
        assert process.returncode == 130
        assert run("copy", *urls).status == 0

    def test_copy_shows_progress_only_on_a_terminal(self, urls: tuple[str, str]) -> None:
        assert run("copy", *urls).err == ""
        Path(urls[1].removeprefix("sqlite:///")).unlink()
        ran = run_on_terminal("copy", *urls)
        assert ran.status == 0
        assert "copying 24 runs" in ran.out
        assert "\x1b[2K" in ran.out
        assert without_codes(ran.out).endswith(
            "✔ copied 9,624 events of 24 runs   4 runs of the library's own agents\n"
        )
