"""The end line of a JSONL export: by its counts and digest an import sees that no line is missing or changed.

``{"end":"agent-memory-log/2","runs":2,"events":31,"sha256":"…"}`` stands behind the lines it speaks of: those from the
first header of this format on, or since the end line before. The digest is that of these lines without white space
around them, each followed by a newline, so that other line ends change nothing. From format 2 on, a header promises an
end line: without one, the file was cut off.
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
"""The newest format this release reads, and the one it writes."""

OPEN_FORMAT_NUMBER = 1
"""The format without end lines, for what is written by hand or never leaves the process."""

_HEADER = re.compile(rb'\{\s*"format"\s*:\s*"' + FORMAT.encode() + rb'/(\d{1,9})"')
_END = re.compile(rb'\{\s*"end"\s*:')


class LineDigest:
    """The lines of an export since its beginning: their number and their digest."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._sha256 = hashlib.sha256()
        self._runs = 0
        self._lines = 0
        self._promised = False

    def add(self, text: bytes | str, format_number: int | None) -> None:
        """Take in a line that is no end line: the header of a run with its ``format_number``, None for another line.

        A line without text changes nothing.
        """
        line = line_bytes(text)
        if not line:
            return
        if format_number == FORMAT_NUMBER and not self._promised:
            self._begin()  # what came before is of the format that has no end line
            self._promised = True
        self._sha256.update(line + b"\n")
        self._lines += 1
        self._runs += format_number is not None

    @property
    def has_lines(self) -> bool:
        """Whether there is a line since the beginning."""
        return self._lines > 0

    def end_line(self) -> bytes:
        """The end line for the lines so far, with its newline."""
        return encode_json({"end": f"{FORMAT}/{FORMAT_NUMBER}", **self._counts(), "sha256": self._digest()}) + b"\n"

    def check_end(self, end_line: Mapping[str, JsonValue], number: int) -> None:
        """Check the end line on line ``number`` and begin anew. Raises ``DecodeError``."""
        if end_line["end"] != f"{FORMAT}/{FORMAT_NUMBER}":
            raise DecodeError(
                f"line {number}: end must be {FORMAT}/{FORMAT_NUMBER}, found {describe(end_line['end'])}: export again"
            )
        counts = {name: end_line.get(name) for name in ("runs", "events")}
        if counts != self._counts():
            raise DecodeError(
                f"line {number} ends an export of {counts['runs']} runs and {counts['events']} events, but behind the "
                f"export's beginning are {self._runs} and {self._lines - self._runs}: lines were lost or added; export "
                "again"
            )
        if end_line.get("sha256") != self._digest():
            raise DecodeError(
                f"line {number} has the SHA-256 of what was exported, and the {self._lines} lines before it have "
                f"another: they were changed; export again, or write {FORMAT}/{OPEN_FORMAT_NUMBER} in each header and "
                "leave the end line out"
            )
        self._begin()

    def check_finished(self, number: int) -> None:
        """Check that line ``number`` may be the file's last. Raises ``DecodeError`` where an end line was promised."""
        if self._promised:
            raise DecodeError(
                f"the file ends after line {number}, without the end line of its export: it was cut off; export again"
            )

    def _counts(self) -> dict[str, JsonValue]:
        return {"runs": self._runs, "events": self._lines - self._runs}

    def _digest(self) -> str:
        return self._sha256.hexdigest()


def is_end_line(line: Mapping[str, JsonValue]) -> bool:
    """Whether a decoded line is an end line."""
    return "end" in line and not line.keys() & {"type", "Type", "format"}


def format_of(line: bytes) -> int | None:
    """The format number in the header of a run, as exports write it; None for any other line."""
    match = _HEADER.match(line)
    return int(match[1]) if match else None


def begins_end_line(line: bytes) -> bool:
    """Whether a line that was not decoded is an end line, or a damaged one."""
    return _END.match(line) is not None
