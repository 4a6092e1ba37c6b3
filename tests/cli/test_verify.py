"""Tests that ``amlog verify`` finds planted damage, names its position, and accepts every valid run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from agent_memory_log import (
    Event,
    PlannerNote,
    Redacted,
    RunInfo,
    Snapshot,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.backend_kit import prepare
from agent_memory_log.errors import RunExpired
from agent_memory_log.events.payloads import Redaction
from agent_memory_log.transfer.verifying import Check, Finding, RunReport, Severity, check_run
from agent_memory_log_inmem import MemoryStore
from tests.amlog import Amlog


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    command = Amlog(tmp_path, capsys)
    monkeypatch.setenv("AMLOG_STORE", command.url)
    command.append("a", "r", *(PlannerNote(note=str(number)) for number in range(1, 1201)))
    command.append("b", "fine", PlannerNote(note="n"))
    return command


def damage(amlog: Amlog, statement: str) -> None:
    """Change the events of run ``a/r`` in the file, without the store. ``seq`` in the statement is the event's seq."""
    with sqlite3.connect(amlog.folder / "runs.db") as connection:
        (run,) = connection.execute("SELECT id FROM runs WHERE agent = 'a'").fetchone()
        changed = connection.execute(f"{statement} AND id >> 32 = {run}".replace("seq", "(id & 4294967295)"))
        assert changed.rowcount > 0
    connection.close()


def found_errors(amlog: Amlog, status: int) -> list[tuple[str, int, str]]:
    ran = amlog("verify", "--json")
    assert (ran.status, ran.err) == (status, "")
    assert (ran.json["ok"], ran.json["runs"]) == (status == 0, 2)
    assert all(
        (finding["agent"], finding["run"], finding["severity"]) == ("a", "r", "error")
        for finding in ran.json["findings"]
    )
    assert ran.json["errors"] == len(ran.json["findings"])
    return [(finding["check"], finding["seq"], finding["message"]) for finding in ran.json["findings"]]


class TestPlantedDamage:
    def test_undamaged_store_has_no_findings(self, amlog: Amlog) -> None:
        assert amlog.ok("verify").out == "✔ 2 runs, 1,201 events: 0 errors, 0 warnings, 0 notes\n"
        assert found_errors(amlog, 0) == []

    def test_verify_finds_missing_seqs(self, amlog: Amlog) -> None:
        damage(amlog, "DELETE FROM events WHERE seq IN (5, 600, 601, 602)")
        assert found_errors(amlog, 1) == [
            ("gap", 5, "seq 5 is missing"),
            ("gap", 600, "seqs 600 to 602 are missing"),
        ]
        ran = amlog("verify")
        assert ran.status == 1
        assert ran.out.splitlines() == [
            "error    a/r  #5  seq 5 is missing",
            "error    a/r  #600  seqs 600 to 602 are missing",
            "✘ 2 runs, 1,197 events: 2 errors, 0 warnings, 0 notes",
        ]

    def test_verify_finds_a_missing_first_event(self, amlog: Amlog) -> None:
        damage(amlog, "DELETE FROM events WHERE seq = 1")
        assert found_errors(amlog, 1) == [("gap", 1, "seq 1 is missing")]

    def test_verify_continues_after_unreadable_payloads(self, amlog: Amlog) -> None:
        damage(amlog, "UPDATE events SET data = '{\"note\":' WHERE seq IN (7, 8, 700)")
        damage(amlog, "UPDATE events SET data = '{\"note\":17}' WHERE seq = 1200")
        places = [(check, seq) for check, seq, _ in found_errors(amlog, 1)]
        assert places == [("undecodable", 7), ("undecodable", 8), ("undecodable", 700), ("undecodable", 1200)]
        assert amlog("verify", "--json").json["events"] == 1201
        assert amlog("verify", "b/fine").status == 0
        assert amlog("verify", "a/r").status == 1

    def test_verify_finds_a_gap_before_an_unreadable_event(self, amlog: Amlog) -> None:
        damage(amlog, "DELETE FROM events WHERE seq IN (10, 11)")
        damage(amlog, "UPDATE events SET data = 'x' WHERE seq IN (12, 13)")
        places = [(check, seq) for check, seq, _ in found_errors(amlog, 1)]
        assert places == [("gap", 10), ("undecodable", 12), ("undecodable", 13)]

    def test_verify_escapes_a_hostile_payload(self, amlog: Amlog) -> None:
        damage(amlog, "UPDATE events SET data = char(27) || '[31m' WHERE seq = 3")
        assert "\x1b" not in amlog("verify").out

    def test_verify_checks_one_run_on_request(self, amlog: Amlog) -> None:
        damage(amlog, "DELETE FROM events WHERE seq = 5")
        assert amlog.ok("verify", "fine", "--json").json["runs"] == 1
        assert amlog.error("verify", "nobody/none") == "no run nobody/none: list the runs with amlog runs"

    def test_verify_reports_a_damaged_page(self, amlog: Amlog) -> None:
        path = amlog.folder / "runs.db"
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        content = bytearray(path.read_bytes())
        content[8192 * 4 : 8192 * 12] = b"\xff" * (8192 * 8)
        path.write_bytes(bytes(content))
        ran = amlog("verify")
        assert ran.status == 1
        assert "Traceback" not in ran.err


class _Altered(MemoryStore):
    """A store that returns altered runs."""

    def __init__(self, alter: Callable[[list[Event]], list[Event]]) -> None:
        super().__init__()
        self._alter = alter

    async def load_run(
        self,
        agent: str,
        run: str,
        *,
        after: int = 0,
        types: Iterable[str] | None = None,
        limit: int | None = None,
        last: int | None = None,
    ) -> Snapshot:
        stored = await super().load_run(agent, run, after=after, types=types, limit=limit, last=last)
        log = self._alter(list(stored.log))
        return Snapshot(agent, run, log, version=stored.version, last_seq=stored.last_seq, after=after)


async def check(store: MemoryStore) -> list[Finding]:
    page = await store.list_runs(include_reserved=True)
    return [finding for info in page.runs for finding in (await check_run(store, info, lambda: None)).findings]


def brief(findings: list[Finding]) -> list[tuple[Severity, Check, int]]:
    return [(finding.severity, finding.check, finding.seq) for finding in findings]


def once(work: Callable[[], object]) -> Callable[[], None]:
    """Return a callable that calls ``work`` only the first time."""
    works = [work]

    def call() -> None:
        if works:
            works.pop()()

    return call


ALTERED: list[tuple[Callable[[list[Event]], list[Event]], list[Check]]] = [
    (lambda log: [log[0], log[2], log[1]], [Check.GAP, Check.ORDER]),
    (lambda log: [log[0], log[1], msgspec.structs.replace(log[2], event_id=log[0].event_id)], [Check.EVENT_ID]),
    (lambda log: [log[0], log[1], msgspec.structs.replace(log[2], event_id="")], [Check.EVENT_ID]),
    (lambda log: [log[0], log[1], msgspec.structs.replace(log[2], type="tool_call")], [Check.TYPE]),
    (lambda log: [log[0], log[1], msgspec.structs.replace(log[2], labels=cast("Any", [1]))], [Check.UNDECODABLE]),
    (lambda log: log[:2], [Check.GAP]),
]


class TestEachCheck:
    @pytest.mark.parametrize(("alter", "expected"), ALTERED)
    async def test_check_finds_an_altered_log(
        self, alter: Callable[[list[Event]], list[Event]], expected: list[Check]
    ) -> None:
        store = _Altered(lambda log: alter(log) if log else log)
        await store.append_events("a", "r", *(new_event(PlannerNote(note=note)) for note in "abc"))
        findings = await check(store)
        assert [finding.check for finding in findings] == expected
        assert all(finding.severity is Severity.ERROR for finding in findings)

    async def test_check_finds_content_after_a_redaction(self) -> None:
        async with open_store("memory:") as store:
            assert isinstance(store, MemoryStore)
            await store.append_events("a", "r", new_event(UserMessage(message="still here")))
            # No store accepts such a marker. Only damage or a third party's store can cause it.
            store._data._runs["a", "r"].append([prepare(new_event(Redaction(seqs=(1, 40), reason="asked")))])
            assert brief(await check(store)) == [
                (Severity.ERROR, Check.NOT_REDACTED, 2),
                (Severity.WARNING, Check.NO_MARKER, 2),
            ]

    async def test_check_warns_about_a_missing_redaction_marker(self) -> None:
        async with open_store("memory:") as store:
            assert isinstance(store, MemoryStore)
            await store.append_events("a", "r", new_event(Redacted(original_type="user_message")))
            assert brief(await check(store)) == [(Severity.WARNING, Check.NO_MARKER, 1)]

    async def test_correct_redaction_has_no_findings(self) -> None:
        async with open_store("memory:") as store:
            assert isinstance(store, MemoryStore)
            await store.append_events("a", "r", *(new_event(UserMessage(message=message)) for message in "abc"))
            await store.redact_events("a", "r", [1, 2])
            await store.redact_events("a", "r", [3, 4])
            assert await check(store) == []

    async def test_check_finds_orphan_results_and_open_calls(self) -> None:
        async with open_store("memory:") as store:
            assert isinstance(store, MemoryStore)
            call, result = ToolCall("1", "t"), ToolResult("1", "t")
            for payload in (result, call, result, result, call, call, result):
                await store.append_events("a", "r", new_event(payload))
            assert brief(await check(store)) == [
                (Severity.WARNING, Check.ORPHAN_RESULT, 1),
                (Severity.WARNING, Check.ORPHAN_RESULT, 4),
                (Severity.NOTE, Check.OPEN_CALL, 5),
            ]

    async def test_result_of_a_redacted_call_is_a_note(self) -> None:
        async with open_store("memory:") as store:
            assert isinstance(store, MemoryStore)
            await store.append_events("a", "r", new_event(ToolCall("1", "t")), new_event(ToolResult("1", "t")))
            await store.redact_events("a", "r", [1])
            assert brief(await check(store)) == [(Severity.NOTE, Check.ORPHAN_RESULT, 2)]

    async def test_run_may_continue_after_a_deletion(self) -> None:
        async with open_store("memory:") as store:
            assert isinstance(store, MemoryStore)
            await store.append_events("a", "r", *(new_event(PlannerNote(note=note)) for note in "abc"))
            await store.delete_run("a", "r")
            assert await check(store) == []
            await store.append_events("a", "r", new_event(PlannerNote(note="d")))
            assert await check(store) == []

    async def test_concurrent_append_is_not_a_finding(self) -> None:
        async with open_store("memory:") as store:
            assert isinstance(store, MemoryStore)
            await store.append_events("a", "r", new_event(PlannerNote(note="a")))
            stale = RunInfo("a", "r", 1, datetime.now(UTC), datetime.now(UTC), 1, {})
            await store.append_events("a", "r", new_event(PlannerNote(note="b")))
            report = await check_run(store, stale, lambda: None)
            assert (report.events, report.findings) == (2, [])

    async def test_concurrent_redaction_or_deletion_is_not_a_finding(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path / 'runs.db'}"
        async with open_store(url) as store:
            with open_sync_store(url) as writer:
                writer.append_events("a", "r", *(new_event(PlannerNote(note=str(n))) for n in range(501)))
                (info,) = (await store.list_runs()).runs
                report = await check_run(store, info, once(lambda: writer.redact_events("a", "r", [501])))
                assert (report.events, report.findings) == (501, [])
                report = await check_run(store, info, once(lambda: writer.delete_run("a", "r")))
                assert report == RunReport(0, 0, [])

    async def test_run_may_expire_during_the_check(self) -> None:
        def expire(log: list[Event]) -> list[Event]:
            if log:
                raise RunExpired("a/r has expired")
            return log

        store = _Altered(expire)
        await store.append_events("a", "r", new_event(PlannerNote(note="a")))
        assert await check(store) == []


def test_verify_checks_reserved_runs(amlog: Amlog) -> None:
    amlog.append("@memory", "r", PlannerNote(note="n"))
    assert amlog.ok("verify", "--json").json["runs"] == 3


def test_empty_store_has_no_findings(tmp_path: Path, amlog: Amlog) -> None:
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    with open_sync_store(url):
        pass
    found_there: dict[str, Any] = amlog.ok("verify", "--store", url, "--json").json
    assert (found_there["ok"], found_there["runs"]) == (True, 0)
