"""Running ``amlog``: in this process for speed, as a process for what only that has, and on a terminal of its own."""

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
"""Seconds after which a process that should have ended is a failure."""

COLOUR = re.compile(r"\x1b\[[0-9;]*m")

_CODE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


class Ran(NamedTuple):
    """How a command ended and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output as a JSON document."""
        return msgspec.json.decode(self.out)

    @property
    def json_lines(self) -> list[Any]:
        """The output as JSON lines."""
        return [msgspec.json.decode(line) for line in self.out.splitlines()]


class Amlog:
    """The command line in this process, on one store."""

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
        """Run a command that must succeed without a word on standard error."""
        ran = self(*arguments)
        assert (ran.status, ran.err) == (0, ""), ran
        return ran

    def error(self, *arguments: str, status: int = 1) -> str:
        """Run a command that must fail with one line; that line."""
        ran = self(*arguments)
        assert ran.status == status, ran
        assert ran.err.startswith("amlog: "), ran
        assert ran.err.count("\n") == 1, ran
        return ran.err.removeprefix("amlog: ").rstrip("\n")

    def append(
        self, agent: str, run: str, *payloads: EventData | Event, meta: dict[str, JsonValue] | None = None
    ) -> None:
        """Put events into the store."""
        append(self.url, agent, run, *payloads, meta=meta)

    def file(self, name: str, content: bytes | str) -> str:
        """Write a file; its path."""
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    def load_samples(self) -> None:
        """Fill the store with the shipped samples."""
        self.ok("import", "jsonl", self.file("demo.jsonl", b"".join(sample_lines("demo.jsonl"))))
        support = self.file("support.jsonl", b"".join(sample_lines("support.jsonl")))
        self.ok("import", "openai-chat", support, "--agent", "support")


def append(
    url: str, agent: str, run: str, *payloads: EventData | Event, meta: dict[str, JsonValue] | None = None
) -> None:
    """Put events into the store at ``url``."""
    events = [one if isinstance(one, Event) else new_event(one) for one in payloads]
    with open_sync_store(url) as store:
        store.append_events(agent, run, *events, meta=meta, reserved=True)


def environment(**changes: str) -> dict[str, str]:
    """The environment for a process, without what would change how output looks."""
    dropped = {"AMLOG_STORE", "AMLOG_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM"}
    return {key: value for key, value in os.environ.items() if key not in dropped} | changes


def start(*arguments: str, **changes: str) -> subprocess.Popen[bytes]:
    """Start ``amlog`` as a process with its output in pipes."""
    return subprocess.Popen(
        [sys.executable, "-m", "agent_memory_log.cli", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**changes),
    )


def run(*arguments: str, stdin: bytes = b"", **changes: str) -> Ran:
    """Run ``amlog`` as a process to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "agent_memory_log.cli", *arguments],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        env=environment(**changes),
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def run_on_terminal(*arguments: str, columns: int = 100, answer: str = "", **changes: str) -> Ran:
    """Run ``amlog`` on a terminal, which is all of its streams; everything it wrote is in ``out``."""
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
    with contextlib.suppress(OSError):  # this is how Linux reports that nobody holds the other side any more
        while block := os.read(controller, 65536):
            written += block
    os.close(controller)
    return Ran(process.wait(PATIENCE), written.decode(), "")


def without_codes(text: str) -> str:
    """What a person reads of a terminal's output."""
    return _CODE.sub("", text)


def first_words(text: str) -> Sequence[str]:
    """The first word of each line."""
    return [line.split()[0] if line.split() else "" for line in text.splitlines()]
