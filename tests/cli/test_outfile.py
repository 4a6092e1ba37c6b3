"""Tests that a command never overwrites a store, and writes a file completely or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from agent_memory_log import PlannerNote, UserMessage, open_sync_store
from agent_memory_log.backend_kit import KeepsFiles, StoreUrl
from agent_memory_log.cli.errors import CommandFailed, UsageProblem
from agent_memory_log.cli.outfile import check_output, replaced, writer
from agent_memory_log.cli.stopping import temporary_files
from agent_memory_log.opening import find_backend, store_files
from tests.amlog import PATIENCE, Amlog, Ran, append, environment

AMLOG = f"{sys.executable} -m agent_memory_log.cli"
ENDS = ("", "-wal", "-shm", "-journal")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, which contains the store ``v.db``."""
    monkeypatch.chdir(tmp_path)
    append("sqlite:///v.db", "a", "r", UserMessage(message="keep me"))
    return tmp_path


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    monkeypatch.delenv("AMLOG_DEBUG", raising=False)
    return Amlog(tmp_path, capsys)


def shell(command: str) -> Ran:
    """Run a shell command in the working directory."""
    done = subprocess.run(
        command, shell=True, capture_output=True, check=False, timeout=PATIENCE, text=True, env=environment()
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def assert_whole(path: str = "v.db") -> None:
    with open_sync_store(f"sqlite:///{path}") as store:
        (event,) = store.load_run("a", "r").events
    assert event.data == UserMessage(message="keep me")


def listing(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class TestTheStoreAsOutput:
    def test_export_refuses_to_overwrite_the_store(self, folder: Path) -> None:
        before = listing(folder)
        ran = shell(f"{AMLOG} export --all --store sqlite:///v.db -o v.db")
        expected = "amlog: v.db is a file of the store sqlite:///v.db: give another output file\n"
        assert (ran.status, ran.out, ran.err) == (2, "", expected)
        assert_whole()
        assert listing(folder) == before

    @pytest.mark.parametrize("end", ENDS)
    def test_check_refuses_every_store_file_under_any_name(self, folder: Path, end: str) -> None:
        file = folder / f"v.db{end}"
        (folder / "other").mkdir()
        (folder / "linked").symlink_to(folder)
        (folder / "link").symlink_to(file)  # the link dangles if the file is missing
        spellings = [file, Path(file.name), folder / "other" / ".." / file.name, folder / "linked" / file.name]
        for to in [*spellings, Path("link")]:
            with pytest.raises(UsageProblem, match="is a file of the store"):
                check_output(to, "sqlite:///v.db")
        (folder / "linked.db").symlink_to("v.db")
        with pytest.raises(UsageProblem, match="is a file of the store"):
            check_output(file, "sqlite:///linked.db")
        file.touch()
        os.link(file, "hard")
        with pytest.raises(UsageProblem, match="is a file of the store"):
            check_output(Path("hard"), "sqlite:///v.db")

    def test_check_accepts_other_files(self, folder: Path) -> None:
        for name in ("v.jsonl", "v.db.jsonl", "v.db-wal2", "v"):
            check_output(folder / name, "sqlite:///v.db")

    @pytest.mark.parametrize("to", ["jsonl", "atif", "otel"])
    def test_every_export_format_refuses_the_store(self, folder: Path, amlog: Amlog, to: str) -> None:
        refusal = amlog.error("export", "r", "--to", to, "--store", "sqlite:///v.db", "-o", "v.db-wal", status=2)
        assert "is a file of the store" in refusal
        assert_whole()
        assert "v.db-wal" not in listing(folder)

    @pytest.mark.parametrize("redirection", [">> v.db", "2>> v.db", "-o /dev/fd/7 7>> v.db"])
    @pytest.mark.usefixtures("folder")
    def test_commands_refuse_output_redirected_to_the_store(self, redirection: str) -> None:
        before = Path("v.db").read_bytes()
        ran = shell(f"{AMLOG} export --all --store sqlite:///v.db {redirection}")
        assert ran.status == 2, ran
        assert ran.err.count("\n") == (not redirection.startswith("2"))
        assert Path("v.db").read_bytes() == before
        assert_whole()

    @pytest.mark.usefixtures("folder")
    def test_commands_refuse_output_to_a_truncated_store(self) -> None:
        for command in ("runs", "demo"):
            ran = shell(f"{AMLOG} {command} --store sqlite:///v.db > v.db")
            assert ran.status == 2, ran
            assert "standard output goes into the store sqlite:///v.db" in ran.err
            assert Path("v.db").read_bytes() == b""

    @pytest.mark.usefixtures("folder")
    def test_commands_refuse_output_to_another_database(self, amlog: Amlog) -> None:
        append("sqlite:///other.db", "a", "r", UserMessage(message="keep me"))
        before = Path("other.db").read_bytes()
        refusal = amlog.error("export", "--all", "--store", "sqlite:///v.db", "-o", "other.db", status=2)
        assert refusal == "other.db is an SQLite database: give another output file, or remove this one first"
        ran = shell(f"{AMLOG} export --all --store sqlite:///v.db >> other.db")
        assert (ran.status, "standard output goes into an SQLite database" in ran.err) == (2, True)
        assert Path("other.db").read_bytes() == before

    @pytest.mark.parametrize("end", ENDS)
    def test_copy_refuses_a_file_of_its_source(self, folder: Path, amlog: Amlog, end: str) -> None:
        (folder / "link").symlink_to(folder / f"v.db{end}")
        for target in (f"v.db{end}", "link"):
            refusal = amlog.error("copy", "sqlite:///v.db", f"sqlite:///{target}", status=2)
            assert refusal == "SOURCE_URL and TARGET_URL are the same store: give another TARGET_URL"
        assert_whole()

    def test_backends_list_their_files(self, folder: Path) -> None:
        assert store_files("sqlite:///v.db") == tuple(folder.resolve() / f"v.db{end}" for end in ENDS)
        assert store_files("memory:x") == ()
        assert isinstance(find_backend(StoreUrl.parse("sqlite:///v.db")), KeepsFiles)
        assert not isinstance(find_backend(StoreUrl.parse("memory:")), KeepsFiles)


class TestWriting:
    def test_failed_write_keeps_the_old_file(self, folder: Path) -> None:
        before = listing(folder)
        with suppress(ZeroDivisionError), writer(Path("new")) as write:
            write(b"half")
            assert len(listing(folder)) == len(before) + 1
            raise ZeroDivisionError
        assert listing(folder) == before
        Path("old").write_bytes(b"old")
        with suppress(ZeroDivisionError), replaced(Path("old")) as temporary:
            temporary.write_bytes(b"new")
            raise ZeroDivisionError
        assert Path("old").read_bytes() == b"old"
        assert not temporary_files
        assert listing(folder) == before | {"old"}

    @pytest.mark.usefixtures("folder")
    def test_writer_replaces_the_target_of_a_symlink(self) -> None:
        Path("old").write_bytes(b"old")
        Path("link").symlink_to("old")
        with writer(Path("link")) as write:
            write(b"new")
        assert Path("link").is_symlink()
        assert Path("old").read_bytes() == b"new"

    @pytest.mark.usefixtures("folder")
    def test_writer_keeps_permissions(self) -> None:
        mask = os.umask(0o027)
        try:
            with writer(Path("new")) as write:
                write(b"")
            Path("old").touch()
            Path("old").chmod(0o604)
            with writer(Path("old")) as write:
                write(b"")
        finally:
            os.umask(mask)
        assert [Path(name).stat().st_mode & 0o777 for name in ("new", "old")] == [0o640, 0o604]

    @pytest.mark.usefixtures("folder")
    def test_writer_refuses_a_missing_folder(self) -> None:
        with pytest.raises(CommandFailed, match=r"^nowhere/x: No such file or directory$"), replaced(Path("nowhere/x")):
            pass
        assert not temporary_files

    @pytest.mark.usefixtures("folder")
    def test_writer_appends_to_an_open_stream(self) -> None:
        Path("log").write_bytes(b"before\n")
        assert shell(f"{AMLOG} export --all --store sqlite:///v.db -o /dev/stdout >> log").status == 0
        lines = Path("log").read_bytes().splitlines()
        assert (lines[0], len(lines)) == (b"before", 4)
        piped = shell(f"{AMLOG} export --all --store sqlite:///v.db -o /dev/stdout | cat")
        assert len(piped.out.splitlines()) == 3


def test_exported_file_keeps_all_characters(amlog: Amlog) -> None:
    amlog.append("a", "r", PlannerNote(note="a\u200bb\x9bc\u202e"))
    amlog.ok("export", "--all", "--store", amlog.url, "-o", str(amlog.folder / "x.jsonl"))
    assert "a\u200bb\x9bc\u202e" in (amlog.folder / "x.jsonl").read_text()
