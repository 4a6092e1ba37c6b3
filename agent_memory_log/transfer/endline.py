"""Writes and checks the end line of a JSONL export, so that an import finds missing and changed lines.

An end line is ``{"end":"agent-memory-log/2","runs":2,"events":31,"sha256":"…"}``. It covers the lines since the
previous end line. Lines before the first header of format 2 are left out, because format 1 has no end lines. The digest
covers each line without surrounding white space and with one newline, so other line endings do not change it. From
format 2, every export has an end line. Without it, the file is incomplete.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from agent_memory_log.errors import DecodeError
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.transfer.importing import line_bytes

FORMAT = "agent-memory-log"
FORMAT_NUMBER = 2
"""The format that this release writes, and the newest one that it reads."""

OPEN_FORMAT_NUMBER = 1
"""The format without end lines, for files written by hand and for lines that the library itself imports at once."""

_HEADER = re.compile(rb'\{\s*"format"\s*:\s*"' + FORMAT.encode() + rb'/(\d{1,9})"')
_END = re.compile(rb'\{\s*"end"\s*:')


class LineDigest:
    """The number and the digest of an export's lines since the previous end line."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._sha256 = hashlib.sha256()
        self._runs = 0
        self._lines = 0
        self._needs_end_line = False

    def add(self, text: bytes | str, format_number: int | None) -> None:
        """Add a line that is not an end line. An empty line is ignored.

        ``format_number`` is the number in the header of a run, and None for any other line.
        """
        line = line_bytes(text)
        if not line:
            return
        if format_number == FORMAT_NUMBER and not self._needs_end_line:
            self._begin()  # the lines before have a format without an end line
            self._needs_end_line = True
        self._sha256.update(line + b"\n")
        self._lines += 1
        self._runs += format_number is not None

    @property
    def has_lines(self) -> bool:
        """Return whether there are lines since the previous end line."""
        return self._lines > 0

    def end_line(self) -> bytes:
        """Return the end line for the lines so far, with its newline."""
        return encode_json({"end": f"{FORMAT}/{FORMAT_NUMBER}", **self._counts(), "sha256": self._digest()}) + b"\n"

    def check_end(self, end_line: Mapping[str, JsonValue], number: int) -> None:
        """Check the end line on line ``number``, then start over for the next export. Raises ``DecodeError``."""
        if end_line["end"] != f"{FORMAT}/{FORMAT_NUMBER}":
            raise DecodeError(
                f"line {number}: end must be {FORMAT}/{FORMAT_NUMBER}, got {describe(end_line['end'])}: export again"
            )
        counts = {name: end_line.get(name) for name in ("runs", "events")}
        if counts != self._counts():
            raise DecodeError(
                f"line {number} ends an export of {counts['runs']} runs and {counts['events']} events, but the file "
                f"has {self._runs} runs and {self._lines - self._runs} events: lines were lost or added; export again"
            )
        if end_line.get("sha256") != self._digest():
            raise DecodeError(
                f"line {number} has a SHA-256 that does not match the {self._lines} lines before it: they were "
                f"changed; export again, or write {FORMAT}/{OPEN_FORMAT_NUMBER} in each header and remove the end line"
            )
        self._begin()

    def check_finished(self, number: int) -> None:
        """Check that the file may end after line ``number``. Raises ``DecodeError`` if the end line is missing."""
        if self._needs_end_line:
            raise DecodeError(f"the file ends after line {number} without an end line: it was cut off; export again")

    def _counts(self) -> dict[str, JsonValue]:
        return {"runs": self._runs, "events": self._lines - self._runs}

    def _digest(self) -> str:
        return self._sha256.hexdigest()


def is_end_line(line: Mapping[str, JsonValue]) -> bool:
    """Return whether a decoded line is an end line."""
    return "end" in line and not line.keys() & {"type", "Type", "format"}


def format_of(line: bytes) -> int | None:
    """Return the format number of a header as exports write it, and None for any other line."""
    match = _HEADER.match(line)
    return int(match[1]) if match else None


def begins_end_line(line: bytes) -> bool:
    """Return whether a line begins like an end line. The line need not be valid JSON."""
    return _END.match(line) is not None
