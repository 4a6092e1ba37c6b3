"""Tests of damaged SQLite files with plain reads, with ``verify=on`` and with ``check``."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_memory_log import PlannerNote, Redacted, UserMessage, new_event, open_store, open_sync_store
from agent_memory_log.errors import DecodeError, EventsMissing, InvalidArgument, StoreCorrupt
from agent_memory_log.store import Flaw
from agent_memory_log.transfer.verifying import Check, verify
from agent_memory_log_sqlite import SyncSqliteStore
from tests.corruption import campaign, counts
from tests.processes import ROOT


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Create a file with a run of nine events and a run of one event."""
    path = tmp_path / "runs.db"
    with open_sync_store(f"sqlite:///{path}") as store:
        for seq in range(1, 10):
            store.append_events("a", "r", new_event(UserMessage(message=f"said {seq}"), event_id=str(seq)))
        store.append_events("a", "other", new_event(PlannerNote(note="n")))
    return path


def change(path: Path, statement: str) -> None:
    """Change rows directly in the file."""
    connection = sqlite3.connect(path)
    assert connection.execute(statement).rowcount > 0
    connection.commit()
    connection.close()


def flaws(path: Path, *scope: str) -> list[tuple[str | None, int | None, str]]:
    with open_sync_store(f"sqlite:///{path}") as store:
        return [(flaw.run_id, flaw.seq, flaw.message) for flaw in store.check(*scope)]


def test_forty_damaged_files_are_never_read_as_correct(tmp_path: Path) -> None:
    outcomes = campaign(tmp_path, 7, 40)
    wrong = [item for item in outcomes if item.read == "wrong" or (item.matters and not item.detected)]
    assert not wrong, counts(outcomes)


class TestPlainReads:
    """Tests of damage that every read notices with any settings."""

    @pytest.mark.parametrize(
        ("missing", "first", "last"), [("1", 1, 1), ("4", 4, 4), ("4, 5, 6", 4, 6), ("2, 7", 2, 2)], ids=str
    )
    def test_every_read_notices_missing_events(self, path: Path, missing: str, first: int, last: int) -> None:
        change(path, f"DELETE FROM events WHERE run = 1 AND id & 4294967295 IN ({missing})")
        with open_sync_store(f"sqlite:///{path}") as store:
            reads: list[Callable[[], object]] = [
                lambda: store.load_run("a", "r"),
                lambda: store.load_run("a", "r", limit=8),
                lambda: list(zip(range(9), store.follow("a", "r"), strict=False)),
            ]
            for read in reads:
                with pytest.raises(EventsMissing, match=r"a/r has lost event") as caught:
                    read()
                assert (caught.value.first_seq, caught.value.last_seq) == (first, last)
            assert len(store.load_run("a", "r", after=7).log) == 2
            assert len(store.load_run("a", "other").log) == 1

    @pytest.mark.parametrize(
        "statement",
        [
            "UPDATE runs SET base_seq = 3 WHERE run = 'r'",
            "UPDATE runs SET meta = '{}' WHERE run = 'r'",
            "UPDATE runs SET redactions = 1 WHERE run = 'r'",
            "UPDATE runs SET expires_at = 1 WHERE run = 'r'",
            "UPDATE runs SET sum = NULL WHERE run = 'r'",
            "DELETE FROM events WHERE run = 1",
        ],
    )
    def test_every_read_notices_a_damaged_run_row(self, path: Path, statement: str) -> None:
        change(path, statement)
        with open_sync_store(f"sqlite:///{path}") as store:
            reads: list[Callable[[], object]] = [
                lambda: store.load_run("a", "r"),
                lambda: store.append_events("a", "r", new_event(PlannerNote(note="n"))),
                lambda: store.delete_run("a", "r"),
            ]
            for read in reads:
                with pytest.raises(StoreCorrupt, match="a/r: the run's"):
                    read()

    def test_every_read_notices_a_schema_that_is_not_text(self, path: Path) -> None:
        content = path.read_bytes()
        for old, new in (
            (b"CREATE TABLE events", b"CREATE TABLE \xff\xfeents"),
            (b"labels    TEXT", b"lcbels    TEXT"),
        ):
            path.write_bytes(content.replace(old, new))
            with pytest.raises(StoreCorrupt, match="damaged"), open_sync_store(f"sqlite:///{path}") as store:
                store.load_run("a", "r")


CONTENTS = [
    "data = replace(data, 'said', 'sold')",
    "labels = '{}'",
    "verbatim = 'x'",
    "timestamp = timestamp + 1",
    "event_id = 'x'",
    "type = 'system_message'",
    "sum = sum + 1",
    "sum = NULL",
    "data = CAST(data AS BLOB), sum = sum + 1",
]


@pytest.mark.parametrize("column", CONTENTS)
def test_verify_on_compares_the_content_of_events(path: Path, column: str) -> None:
    change(path, f"UPDATE events SET {column} WHERE run = 1 AND id & 4294967295 = 4")
    ((run, seq, message),) = flaws(path)
    assert (run, seq) == ("r", 4)
    assert "checksum" in message
    assert flaws(path, "a", "other") == []
    with open_sync_store(f"sqlite:///{path}?verify=on") as store:
        for types in (None, ["user_message"], ["planner_note"]):
            with pytest.raises(DecodeError, match=r"a/r: event 4 cannot be read: it .* checksum"):
                store.load_run("a", "r", types=types)
        with pytest.raises(DecodeError, match="event 4"):
            list(zip(range(9), store.follow("a", "r"), strict=False))
        assert store.load_run("a", "r", types=()).version == 9
        assert len(store.load_run("a", "r", after=4, limit=2).log) == 2


def test_a_run_missing_from_an_index_is_not_read_as_empty(path: Path) -> None:
    content = path.read_bytes()
    connection = sqlite3.connect(path)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'sqlite_autoindex_runs_1'").fetchone()
    connection.close()
    start = (root - 1) * 4096
    path.write_bytes(content[: start + 3] + b"\0\0" + content[start + 5 :])  # an index page without entries
    with open_sync_store(f"sqlite:///{path}?verify=on") as store:
        with pytest.raises(StoreCorrupt, match="not in its index"):
            store.load_run("a", "r")
        assert store.load_run("a", "never was").version == 0
    assert any("integrity check" in message for _, _, message in flaws(path))


def test_check_notices_a_lost_run(path: Path) -> None:
    change(path, "DELETE FROM runs WHERE run = 'r'")
    with open_sync_store(f"sqlite:///{path}?verify=on") as store:
        reads: list[Callable[[], object]] = [lambda: store.load_run("a", "r"), store.list_runs]
        for read in reads:
            with pytest.raises(StoreCorrupt, match="holds 1 of 2 rows"):
                read()
    assert [message for _, _, message in flaws(path)] == [
        "the table of runs holds 1 of 2 rows",
        "9 events belong to no run",
    ]


@pytest.mark.parametrize("reason", ["", "asked for"])
def test_a_redaction_leaves_no_digest_of_the_erased_content(path: Path, reason: str) -> None:
    def checksums() -> list[int]:
        connection = sqlite3.connect(path)
        rows = connection.execute("SELECT sum FROM events WHERE run = 1 ORDER BY id").fetchall()
        connection.close()
        return [number for (number,) in rows]

    before = checksums()
    with open_sync_store(f"sqlite:///{path}?verify=on") as store:
        store.redact_events("a", "r", [4], reason=reason)
        assert isinstance(store.load_run("a", "r").log[3].data, Redacted)
    assert [seq for seq, (old, new) in enumerate(zip(before, checksums(), strict=False), 1) if old != new] == [4]
    assert before[3] not in checksums()
    assert flaws(path) == []


async def test_verify_reports_each_flaw_once(path: Path) -> None:
    change(path, "UPDATE events SET data = '{' WHERE run = 1 AND id & 4294967295 = 3")
    change(path, "UPDATE events SET data = replace(data, 'said', 'sold') WHERE run = 1 AND id & 4294967295 = 5")
    change(path, "DELETE FROM events WHERE run = 1 AND id & 4294967295 IN (7, 8)")
    async with open_store(f"sqlite:///{path}") as store:
        result = await verify(store)
        assert [(finding.check, finding.seq) for finding in result.findings] == [
            (Check.UNDECODABLE, 3),
            (Check.DAMAGE, 5),
            (Check.GAP, 7),
        ]
        assert [flaw.seq async for flaw in store.check("a", "r")] == [3, 5, 7]
        with pytest.raises(InvalidArgument, match="agent"):
            await anext(aiter(store.check(None, "r")))
        assert (await verify(store, "a", "other")).ok


async def test_verify_reports_the_error_that_prevents_it(path: Path) -> None:
    change(path, "UPDATE runs SET meta = 'x' WHERE run = 'r'")
    async with open_store(f"sqlite:///{path}") as store:
        result = await verify(store)
    assert not result.ok
    assert [(finding.check, finding.run) for finding in result.findings] == [(Check.DAMAGE, None), (Check.DAMAGE, "r")]


def test_check_counts_rows_without_a_checksum(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    path.write_bytes((Path(__file__).parents[1] / "golden" / "schema-2.db").read_bytes())
    with open_sync_store(f"sqlite:///{path}") as store:
        (flaw,) = store.check()
        assert flaw == Flaw(None, None, None, flaw.message, is_damage=False)
        assert flaw.message.startswith("10 events of 3 runs")
        store.append_events("support", "run-1", new_event(PlannerNote(note="n")))
    change(path, "UPDATE events SET sum = NULL WHERE sum IS NOT NULL")
    (lost,) = [message for run, _, message in flaws(path) if run]
    assert lost == "it has lost its checksum"


def test_a_store_accepts_appends_during_a_check(path: Path) -> None:
    change(path, "UPDATE events SET timestamp = 1 WHERE run = 1")
    with open_sync_store(f"sqlite:///{path}") as store:
        seqs: list[int | None] = []
        for flaw in store.check():
            store.append_events("a", "other", new_event(PlannerNote(note="n")))
            seqs.append(flaw.seq)
        assert seqs == list(range(1, 10))
        store.delete_run("a", "r")
        assert list(store.check()) == []


@pytest.mark.parametrize("scope", [(), ("a",), ("a", "other")])
def test_check_reports_no_flaw_for_concurrent_writes(path: Path, scope: tuple[str, ...]) -> None:
    with open_sync_store(f"sqlite:///{path}") as store, open_sync_store(f"sqlite:///{path}") as writer:
        assert isinstance(store, SyncSqliteStore)

        new_runs = iter("0123456789")

        def write(statement: str) -> None:
            if statement.startswith("SELECT"):
                for run in ("other", *next(new_runs, "")):
                    writer.append_events("a", run, new_event(PlannerNote(note="n")))

        store._read_connection.set_trace_callback(write)
        assert list(store.check(*scope)) == []
        store._read_connection.set_trace_callback(None)


def test_program_of_the_damage_page_runs(path: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/damage.md").read_text(), re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], cwd=path.parent, check=True, capture_output=True, text=True)
    assert done.stdout == "True []\n"
