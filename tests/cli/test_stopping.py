"""A signal ends ``amlog`` at any moment without a traceback, with a status of its own, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest

from agent_memory_log import UserMessage, open_sync_store
from tests.amlog import PATIENCE, append, environment
from tests.waiting import until_blocking

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
AMLOG = ("-m", "agent_memory_log.cli")

_SLOW_EXPORT = """
import asyncio, os, sys, time
from agent_memory_log.cli import export

async def lines(*_arguments, **_options):
    try:
        yield b"half"
        print(*(name for name in os.listdir() if name.startswith(".")), flush=True)
        if KIND == "busy":
            time.sleep(3600)
        await asyncio.sleep(3600)
    finally:
        print("cleaning up", flush=True)
        if KIND == "stuck":
            await asyncio.sleep(3600)

export.export_store = lines
from agent_memory_log.cli.program import main
sys.exit(main())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a store, ``v.db``."""
    monkeypatch.chdir(tmp_path)
    append("sqlite:///v.db", "a", "r", UserMessage(message="hi"))
    return tmp_path


@contextlib.contextmanager
def python(*arguments: str, **changes: str) -> Generator[subprocess.Popen[bytes]]:
    """A Python process, killed when the block ends."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**changes),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def stopped(process: subprocess.Popen[bytes], *signals: int) -> tuple[int, bytes, bytes]:
    """The status of a process after ``signals``, and what it wrote since."""
    for number in signals:
        process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out, err


def ended_by(process: subprocess.Popen[bytes], number: int) -> bool:
    process.send_signal(number)
    return process.poll() is not None


def export(kind: str, output: Sequence[str] = ("-o", "out.jsonl")) -> tuple[str, ...]:
    return ("-c", f"KIND = {kind!r}{_SLOW_EXPORT}", "export", "--all", "--store", "sqlite:///v.db", *output)


@pytest.mark.parametrize("module", ["msgspec", "typer"])
def test_during_imports(tmp_path: Path, module: str) -> None:
    """The first import of the library's own, and the command line's."""
    (tmp_path / f"{module}.py").write_text('import time\nprint("importing", flush=True)\ntime.sleep(3600)\n')
    for number, status in SIGNALS:
        with python(*AMLOG, "--version", PYTHONPATH=str(tmp_path)) as process:
            assert read_line(process) == b"importing\n"
            assert stopped(process, number) == (status, b"", b"")


@pytest.mark.parametrize(("number", "status"), SIGNALS[1:])
@pytest.mark.usefixtures("folder")
def test_during_a_command(number: int, status: int) -> None:
    with python(*AMLOG, "tail", "r", "--store", "sqlite:///v.db") as process:
        assert b"hi" in read_line(process)
        assert stopped(process, number) == (status, b"", b"")


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_a_half_written_file_goes_away(folder: Path, number: int, status: int) -> None:
    Path("out.jsonl").write_bytes(b"old")
    with python(*export("waiting")) as process:
        assert read_line(process).startswith(b".amlog-")
        assert stopped(process, number) == (status, b"cleaning up\n", b"")
    assert Path("out.jsonl").read_bytes() == b"old"
    assert {path.name for path in folder.iterdir()} == {"out.jsonl", "v.db"}


def test_a_second_signal_waits_for_nothing(folder: Path) -> None:
    with python(*export("stuck")) as process:
        read_line(process)
        process.send_signal(signal.SIGTERM)
        assert read_line(process) == b"cleaning up\n"
        assert stopped(process, signal.SIGINT) == (130, b"", b"")
    assert not any(path.name.startswith((".", "out")) for path in folder.iterdir())
    with python(*export("busy")) as process:
        read_line(process)
        # Linux may hand a signal to a thread while another one is under way, and Python sees it when the sleep ends.
        until_blocking(lambda: ended_by(process, signal.SIGHUP))
        assert stopped(process) == (129, b"", b"")
    assert not any(path.name.startswith((".", "out")) for path in folder.iterdir())


@pytest.mark.usefixtures("folder")
def test_a_question() -> None:
    controller, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, *AMLOG, "delete", "r", "--store", "sqlite:///v.db"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment(TERM="xterm-256color"),
        start_new_session=True,
    ) as process:
        os.close(terminal)
        written = b""
        while b"[y/N]" not in written:
            written += os.read(controller, 65536)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(PATIENCE) == 130
        finally:
            process.kill()
        with contextlib.suppress(OSError):
            written += os.read(controller, 65536)
        os.close(controller)
    assert written.rstrip().endswith(b"amlog: cancelled; nothing was changed")
    with open_sync_store("sqlite:///v.db") as store:
        assert len(store.load_run("a", "r").events) == 1


@pytest.mark.usefixtures("folder")
def test_what_the_starter_ignores_stays_ignored() -> None:
    program = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    with python("-c", program, *AMLOG, "tail", "r", "--store", "sqlite:///v.db") as process:
        assert b"hi" in read_line(process)
        process.send_signal(signal.SIGHUP)
        append("sqlite:///v.db", "a", "r", UserMessage(message="still here"))
        assert b"still here" in read_line(process)
        assert stopped(process, signal.SIGTERM) == (143, b"", b"")


def test_the_demo_and_its_writer(tmp_path: Path) -> None:
    with python(*AMLOG, "demo", "--store", f"sqlite:///{tmp_path}/d.db", PYTHONUNBUFFERED="1") as process:
        assert read_line(process)
        status, _, err = stopped(process, signal.SIGTERM)  # both have ended: the writer has the same standard error
    assert (status, err) == (143, b"")


def test_a_signal_just_before_the_wait_for_an_answer_ends_it() -> None:
    """The handler has run, and raised nothing, before the wait begins: only what it left behind can end it."""
    program = (
        "import os, select, signal; from agent_memory_log.cli import stopping;"
        "signal.signal(signal.SIGINT, lambda *_: None); wait = select.select;"
        "select.select = lambda *lists: (os.kill(os.getpid(), signal.SIGINT), wait(*lists))[1];"
        "stopping.wait_for_input(); print('ended')"
    )
    silent, _keeps_open = os.pipe()
    ran = subprocess.run(
        [sys.executable, "-c", program], stdin=silent, capture_output=True, timeout=PATIENCE, check=True, text=True
    )
    assert ran.stdout == "ended\n"
