"""Tests of the end line of an export: it shows that a file was cut off, changed or reordered."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from agent_memory_log import PlannerNote, Store, new_event, open_store
from agent_memory_log.errors import AgentMemoryLogError, DecodeError
from agent_memory_log.store import MAX_FIRST_SEQ
from agent_memory_log.transfer.jsonl import check_jsonl, export_store, import_jsonl
from tests.amlog import Amlog
from tests.processes import PATIENCE

HEADER = b'{"format":"agent-memory-log/1","agent":"a","run":"old","version":1,"meta":{}}\n'
EVENT = b'{"type":"planner_note","timestamp":"2026-03-01T00:00:00Z","data":{"note":"1"},"event_id":"x","seq":1}\n'


async def export_of(*runs: str, notes: int = 3) -> list[bytes]:
    """Return the export of runs with ``notes`` events each, with its end line."""
    async with open_store("memory:") as store:
        for run in runs:
            await store.append_events("a", run, *(new_event(PlannerNote(f"{run}{n}")) for n in range(notes)))
        return await exported(store)


async def exported(store: Store) -> list[bytes]:
    return [line async for line in export_store(store)]


def exports(*runs: str) -> list[bytes]:
    """Call ``export_of`` without an event loop."""
    return asyncio.run(export_of(*runs))


async def imported(lines: Iterable[bytes]) -> list[bytes]:
    """Import the lines into an empty store. Return the store's export."""
    async with open_store("memory:") as store:
        await import_jsonl(store, lines)
        return await exported(store)


async def test_check_finds_every_cut_and_every_change() -> None:
    lines = await export_of("r", "s", "t")
    content = b"".join(lines)
    check_jsonl(lines)
    for end in range(1, len(lines)):  # including cuts between two runs
        with pytest.raises(DecodeError, match=f"line {end} without an end line: it was cut off"):
            check_jsonl(lines[:end])
        with pytest.raises(DecodeError, match=f"line {end}.*(cut off|has only)"):
            await imported(lines[:end])
    for at in range(len(lines) - 1):
        for changed in ([*lines[:at], *lines[at + 1 :]], [*lines[: at + 1], *lines[at:]]):
            with pytest.raises(DecodeError, match="lines were lost or added"):
                check_jsonl(changed)
    moved = [*lines[4:8], *lines[:4], *lines[8:]]
    with pytest.raises(DecodeError, match="line 13 has a SHA-256 that does not match"):
        check_jsonl(moved)
    chance = random.Random(12)
    for _ in range(300):
        position = chance.randrange(len(content))
        byte = content[position] ^ (1 << chance.randrange(8))
        damaged = (content[:position] + bytes([byte]) + content[position + 1 :]).splitlines(keepends=True)
        if [line.strip() for line in damaged if line.strip()] == [line.strip() for line in lines]:
            continue  # a newline changed to other white space, which is allowed
        with pytest.raises(AgentMemoryLogError):
            await imported(damaged)


async def test_other_line_endings_and_byte_order_marks_are_accepted() -> None:
    lines = await export_of("r", "s")
    variants: list[list[bytes | str]] = [
        [line.replace(b"\n", b"\r\n") for line in lines],
        [line.decode() for line in lines],
        [b"\xef\xbb\xbf" + lines[0], *lines[1:]],
        ["\ufeff" + lines[0].decode(), *lines[1:]],
        [b"\n", *lines, b"  \n"],
    ]
    for variant in variants:
        check_jsonl(variant)
        async with open_store("memory:") as store:
            assert all(result.verified for result in await import_jsonl(store, variant))
            assert await exported(store) == lines


async def test_concatenated_exports_are_imported() -> None:
    first, second = await export_of("r"), await export_of("s")
    async with open_store("memory:") as store:
        await import_jsonl(store, [*first, *second])
        together = await exported(store)
    assert len(together) == len(first) + len(second) - 1
    for lines in ([*first, *second], [*first, b"\xef\xbb\xbf" + second[0], *second[1:]]):
        check_jsonl(lines)
        assert await imported(lines) == together
    check_jsonl([*first, *first])
    for cut in ([*first, *second[:-1]], [*first[:-1], *second]):
        with pytest.raises(DecodeError):
            check_jsonl(cut)
    # Format 1 has no end lines. Its runs are not verified and do not affect the next export.
    old = [HEADER, EVENT]
    for lines in ([*old, *first], [*first, *old]):
        check_jsonl(lines)
        async with open_store("memory:") as store:
            results = await import_jsonl(store, lines)
            assert {result.run: result.verified for result in results} == {"old": False, "r": True}


async def test_empty_export_has_no_end_line() -> None:
    assert await export_of() == []
    check_jsonl([])


async def test_invalid_end_line_is_refused() -> None:
    lines = await export_of("r")
    for wrong in (b'{"end":"agent-memory-log/2"}', b'{"end":7,"runs":1,"events":3,"sha256":null}', b'{"end":'):
        for check in (check_jsonl, None):
            with pytest.raises(DecodeError, match="line 5"):
                check([*lines[:-1], wrong]) if check else await imported([*lines[:-1], wrong])


async def test_newer_format_is_refused() -> None:
    lines = [line.replace(b"log/2", b"log/3") for line in await export_of("r")]
    check_jsonl(lines[:3])
    with pytest.raises(AgentMemoryLogError, match="upgrade agent-memory-log"):
        await imported(lines)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
async def test_other_encoding_is_refused(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(b"".join(await export_of("r")).decode().encode(encoding))
    with file.open("rb") as lines, pytest.raises(DecodeError, match="line 1 is UTF-16 or UTF-32, but must be UTF-8"):
        await imported(lines)


@pytest.mark.parametrize("seq", [MAX_FIRST_SEQ + 1, 2**32 - 1, 2**53])
async def test_line_with_a_too_large_seq_is_refused(seq: int) -> None:
    lines = [HEADER.replace(b":1,", b":9007199254740991,"), EVENT.replace(b'"seq":1', b'"seq":%d' % seq)]
    async with open_store("memory:") as store:
        with pytest.raises(DecodeError, match=f"line 2: the run begins at seq {seq}; the largest .* is 2147483648"):
            await import_jsonl(store, lines)
        assert (await store.load_run("a", "old")).version == 0


class TestCommand:
    def test_damaged_file_stores_nothing(self, amlog: Amlog) -> None:
        lines = exports("r", "s")
        for damaged in (lines[:4], lines[:-1], [*lines[:2], *lines[3:]]):
            message = amlog.error("import", "jsonl", amlog.file("x.jsonl", b"".join(damaged)))
            assert "line " in message
            assert not (amlog.folder / "runs.db").exists()

    def test_file_without_an_end_line_is_imported_with_a_note(self, amlog: Amlog) -> None:
        file = amlog.file("x.jsonl", HEADER + EVENT)
        ran = amlog("import", "jsonl", file)
        assert (ran.status, ran.err) == (
            0,
            f"{file} has no end line: cannot check that the file is complete and unchanged\n",
        )
        assert amlog.ok("import", "jsonl", amlog.file("y.jsonl", b"".join(exports("r")))).err == ""

    def test_byte_order_mark_is_ignored(self, amlog: Amlog) -> None:
        lines = b"".join(exports("r"))
        assert amlog.ok("import", "jsonl", amlog.file("x.jsonl", b"\xef\xbb\xbf" + lines), "--json").json["read"] == 3
        chats = b'\xef\xbb\xbf{"run":"c","messages":[{"role":"user","content":"x"}]}\n'
        assert (
            amlog.ok("import", "openai-chat", amlog.file("c.jsonl", chats), "--agent", "a", "--json").json["read"] == 1
        )
        step = {"step_id": 1, "source": "user", "message": "Hi"}
        document = {"schema_version": "ATIF-v1.8", "agent": {"name": "b", "version": "1"}, "steps": [step]}
        atif = amlog.file("t.json", b"\xef\xbb\xbf" + msgspec.json.encode(document))
        assert amlog.ok("import", "atif", atif, "--json").json["read"] == 1
        utf16 = amlog.file("u.json", msgspec.json.encode(document).decode().encode("utf-16"))
        assert amlog.error("import", "atif", utf16).startswith(f"{utf16} is UTF-16 or UTF-32, but must be UTF-8")

    @pytest.mark.parametrize("cut", [False, True])
    def test_standard_input_is_checked_before_the_import(self, amlog: Amlog, cut: bool) -> None:
        lines = exports("r", "s")
        process = subprocess.run(
            [sys.executable, "-m", "agent_memory_log.cli", "import", "jsonl", "-", "--store", amlog.url],
            input=b"".join(lines[:4] if cut else lines),
            check=False,
            capture_output=True,
            timeout=PATIENCE,
        )
        assert (process.returncode != 0, b"it was cut off" in process.stderr) == (cut, cut)
        assert (amlog.folder / "runs.db").exists() is not cut


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    command = Amlog(tmp_path, capsys)
    monkeypatch.setenv("AMLOG_STORE", command.url)
    monkeypatch.delenv("AMLOG_DEBUG", raising=False)
    return command
