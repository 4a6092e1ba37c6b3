"""Runs ``amlog`` for tests: in this process for speed, as a separate process, or on its own terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from agent_memory_log import Event, EventData, JsonValue, new_event, open_sync_store
from agent_memory_log.cli.main import main
from agent_memory_log.samples import sample_lines

PATIENCE = 60
"""The number of seconds after which a process that still runs fails the test."""

COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_CODE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


class Ran(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return the output as a JSON document."""
        return msgspec.json.decode(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """Return the output as JSON lines."""
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


class Amlog:
    """The command line in this process, with one store."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'runs.db'}"
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ran:
        """Run a command that may fail."""
        status = main(arguments)
        captured = self._capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    def ok(self, *arguments: str) -> Ran:
        """Run a command that must succeed and write nothing to standard error."""
        ran = self(*arguments)
        assert (ran.status, ran.err) == (0, ""), ran
        return ran

    def error(self, *arguments: str, status: int = 1) -> str:
        """Run a command that must fail with one line of error. Return the line without ``amlog: ``."""
        ran = self(*arguments)
        assert ran.status == status, ran
        assert ran.err.startswith("amlog: "), ran
        assert ran.err.count("\n") == 1, ran
        return ran.err.removeprefix("amlog: ").rstrip("\n")

    def append(
        self, agent: str, run: str, *payloads: EventData | Event, meta: dict[str, JsonValue] | None = None
    ) -> None:
        """Append events to the store."""
        append(self.url, agent, run, *payloads, meta=meta)

    def file(self, name: str, content: bytes | str) -> str:
        """Write a file. Return its path."""
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def load_samples(self) -> None:
        """Import the samples of the package."""
        self.ok("import", "jsonl", self.file("demo.jsonl", b"".join(sample_lines("demo.jsonl"))))
        support = self.file("support.jsonl", b"".join(sample_lines("support.jsonl")))
        self.ok("import", "openai-chat", support, "--agent", "support")


def append(
    url: str,
    agent: str,
    run: str,
    *payloads: EventData | Event,
    meta: dict[str, JsonValue] | None = None,
    reserved: bool = True,
) -> None:
    """Append events to the store at ``url``."""
    events = [payload if isinstance(payload, Event) else new_event(payload) for payload in payloads]
    with open_sync_store(url) as store:
        store.append_events(agent, run, *events, meta=meta, reserved=reserved)


def environment(**changes: str) -> dict[str, str]:
    """Return the environment for a process, without the variables that change the layout of the output."""
    dropped = {"AMLOG_STORE", "AMLOG_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM"}
    return {key: value for key, value in os.environ.items() if key not in dropped} | changes


def start(*arguments: str, **changes: str) -> subprocess.Popen[bytes]:
    """Start ``amlog`` as a process whose output goes to pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "agent_memory_log.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**changes),
    )


def run(*arguments: str, stdin: bytes = b"", **changes: str) -> Ran:
    """Run ``amlog`` as a process until it ends."""
    process = subprocess.run(
        [sys.executable, "-m", "agent_memory_log.cli", *arguments],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        env=environment(**changes),
    )
    return Ran(process.returncode, process.stdout.decode(), process.stderr.decode())


def run_on_terminal(*arguments: str, columns: int = 100, answer: str = "", **changes: str) -> Ran:
    """Run ``amlog`` with all of its streams on a terminal. Return its output and errors together in ``out``."""
    controller, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (50, columns))
    process = subprocess.Popen(
        [sys.executable, "-m", "agent_memory_log.cli", *arguments],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment(**{"TERM": "xterm-256color", **changes}),
    )
    os.close(terminal)
    os.write(controller, answer.encode())
    written = b""
    with contextlib.suppress(OSError):  # Linux raises this when the process has closed the terminal
        while block := os.read(controller, 65536):
            written += block
    os.close(controller)
    return Ran(process.wait(PATIENCE), written.decode(), "")


def without_codes(text: str) -> str:
    """Return the output of a terminal without control codes and carriage returns."""
    return _CODE.sub("", text)


def first_words(text: str) -> Sequence[str]:
    """Return the first word of each line."""
    return [line.split()[0] if line.split() else "" for line in text.splitlines()]
