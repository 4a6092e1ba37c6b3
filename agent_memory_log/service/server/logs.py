"""Logs as lines of JSON. They have no contents of requests, and every value is escaped ASCII."""

from __future__ import annotations

import contextlib
import json
import logging
import traceback
from datetime import UTC, datetime
from typing import BinaryIO

from agent_memory_log.events.event import format_timestamp
from agent_memory_log.events.jsonvalue import encode_json

LOGGER = logging.getLogger("agent_memory_log.server")
"""The logger of the server. Set its level and handlers as those of any other logger."""


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: ``time``, ``level``, ``message``, and the record's ``fields``.

    Of an exception it shows the classes and the lines of code, but not the message, which could have contents.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": format_timestamp(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = _chain_of(record.exc_info[1])
        encoded = encode_json(line)
        # ASCII only, so no value can imitate a line or control a terminal. json alone can do that, but slower.
        return encoded.decode() if encoded.isascii() else json.dumps(line)


class LineHandler(logging.Handler):
    """Writes each record as a line, with fewer steps than ``logging.StreamHandler``: there is one for each request.

    Args:
        stream: A binary stream. Only the event loop's thread and rare warnings of other threads write to it.
    """

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream
        self.setFormatter(JsonLines())

    def handle(self, record: logging.LogRecord) -> bool:
        """Write a record. A stream takes a whole line, so it needs no lock."""
        self.emit(record)
        return True

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record. If the stream is gone, the record is lost, and the server still runs."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(self.format(record).encode() + b"\n")
            self._stream.flush()


def _chain_of(error: BaseException | None) -> list[dict[str, object]]:
    chain: list[dict[str, object]] = []
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        at = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        chain.append({"class": f"{type(error).__module__}.{type(error).__qualname__}", "at": at})
        error = error.__cause__ or error.__context__
    return chain
