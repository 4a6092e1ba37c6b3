"""Tests that a signal ends ``amlog`` at any moment, without a traceback or leftover files, and sets the status."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import IO

import pytest

from agent_memory_log import UserMessage, open_sync_store
from tests.amlog import PATIENCE, append, environment
from tests.waiting import until_blocking

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
AMLOG = ("-m", "agent_memory_log.cli")

_SLOW_EXPORT = """
import asyncio, os, signal, sys, threading, time
from agent_memory_log.cli import export

def interrupt():
    time.sleep(0.2)  # the main thread then waits for events
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

async def lines(*_arguments, **_options):
    try:
        yield b"half"
        print(*(name for name in os.listdir() if name.startswith(".")), flush=True)
        if KIND == "interrupted":
            threading.Thread(target=interrupt).start()
        if KIND == "busy":
            time.sleep(3600)
        if KIND == "in a thread":
            await asyncio.to_thread(lambda: (print("waiting", flush=True), time.sleep(3600)))
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
    """Return the working directory, which contains the store ``v.db``."""
    monkeypatch.chdir(tmp_path)
    append("sqlite:///v.db", "a", "r", UserMessage(message="hi"))
    return tmp_path


@contextlib.contextmanager
def python(*arguments: str, stdin: int = subprocess.DEVNULL, **changes: str) -> Generator[subprocess.Popen[bytes]]:
    """Start a Python process, and kill it when the block ends."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**changes),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def unread_bytes(pipe: IO[bytes]) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline()


def stopped(process: subprocess.Popen[bytes], *signals: int) -> tuple[int, bytes, bytes]:
    """Send ``signals`` to a process, and return its status and its further output."""
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
def test_signal_ends_the_process_during_imports(tmp_path: Path, module: str) -> None:
    """A signal may arrive during an import. The modules are the first slow imports of the library and of ``amlog``."""
    (tmp_path / f"{module}.py").write_text('import time\nprint("importing", flush=True)\ntime.sleep(3600)\n')
    for number, status in SIGNALS:
        with python(*AMLOG, "--version", PYTHONPATH=str(tmp_path)) as process:
            assert read_line(process) == b"importing\n"
            assert stopped(process, number) == (status, b"", b"")


@pytest.mark.parametrize(("number", "status"), SIGNALS[1:])
@pytest.mark.usefixtures("folder")
def test_signal_ends_a_running_command(number: int, status: int) -> None:
    with python(*AMLOG, "tail", "r", "--store", "sqlite:///v.db") as process:
        assert b"hi" in read_line(process)
        assert stopped(process, number) == (status, b"", b"")


@pytest.mark.parametrize("command", [("jsonl", "-"), ("openai-chat", "-", "--agent", "a")])
@pytest.mark.usefixtures("folder")
def test_signal_ends_an_import_that_waits_for_input(command: Sequence[str]) -> None:
    with python(*AMLOG, "import", *command, "--store", "sqlite:///v.db", stdin=subprocess.PIPE) as process:
        pipe = process.stdin
        assert pipe is not None
        os.write(pipe.fileno(), b"\n")
        # The process sleeps, and has read the line.
        until_blocking(lambda: not unread_bytes(pipe) and " S " in Path(f"/proc/{process.pid}/stat").read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130


@pytest.mark.parametrize(("number", "status"), SIGNALS)
def test_signal_removes_a_partial_file(folder: Path, number: int, status: int) -> None:
    Path("out.jsonl").write_bytes(b"old")
    with python(*export("waiting")) as process:
        assert read_line(process).startswith(b".amlog-")
        assert stopped(process, number) == (status, b"cleaning up\n", b"")
    assert Path("out.jsonl").read_bytes() == b"old"
    assert {path.name for path in folder.iterdir()} == {"out.jsonl", "v.db"}


@pytest.mark.usefixtures("folder")
def test_signal_that_no_system_call_of_the_main_thread_sees_ends_the_command() -> None:
    """Another thread receives the signal. A main thread that is about to wait does not see a signal either."""
    with python(*export("interrupted")) as process:
        assert read_line(process).startswith(b".amlog-")
        assert stopped(process) == (130, b"cleaning up\n", b"")


@pytest.mark.usefixtures("folder")
def test_signal_does_not_wait_for_a_thread() -> None:
    """A thread may wait a minute for the answer of a model."""
    with python(*export("in a thread")) as process:
        assert read_line(process).startswith(b".amlog-")
        assert read_line(process) == b"waiting\n"
        assert stopped(process, signal.SIGINT) == (130, b"cleaning up\n", b"")


def test_second_signal_ends_the_process_at_once(folder: Path) -> None:
    with python(*export("stuck")) as process:
        read_line(process)
        process.send_signal(signal.SIGTERM)
        assert read_line(process) == b"cleaning up\n"
        assert stopped(process, signal.SIGINT) == (130, b"", b"")
    assert not any(path.name.startswith((".", "out")) for path in folder.iterdir())
    with python(*export("busy")) as process:
        read_line(process)
        # Linux may deliver a signal to another thread. Python handles it only when the sleep ends, so send it again.
        until_blocking(lambda: ended_by(process, signal.SIGHUP))
        assert stopped(process) == (129, b"", b"")
    assert not any(path.name.startswith((".", "out")) for path in folder.iterdir())


@pytest.mark.usefixtures("folder")
def test_signal_ends_a_question() -> None:
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
def test_ignored_signals_stay_ignored() -> None:
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


def test_signal_ends_the_demo_and_its_writer(tmp_path: Path) -> None:
    with python(*AMLOG, "demo", "--store", f"sqlite:///{tmp_path}/d.db", PYTHONUNBUFFERED="1") as process:
        assert read_line(process)
        status, _, err = stopped(process, signal.SIGTERM)  # the end of standard error means that both have ended
    assert (status, err) == (143, b"")


def test_signal_just_before_the_wait_ends_the_wait() -> None:
    """The handler runs before the wait and raises nothing, so only the wakeup descriptor can end the wait."""
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
