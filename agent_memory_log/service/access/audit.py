"""The audit of a server: one line for each operation that changes the store.

A line has names and never content. It has the values of the fields in ``NAMES``. For another field with several values,
it has their number. So a new field of an operation stays out until a maintainer adds it to ``NAMES``.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from agent_memory_log.errors import AgentMemoryLogError, StoreUnavailable
from agent_memory_log.events.event import format_timestamp
from agent_memory_log.memory.records.arguments import Operation
from agent_memory_log.service.grants import Grant
from agent_memory_log.service.table import NAMES as OPERATION_NAMES

NAMES = frozenset({"agent", "run", "runs", "seqs", "id", "key", "kind", "scope", "scopes"})
"""The fields of operations that name runs, events, records and scopes."""

_LONGEST = 200
"""The most characters of a value. A longer value is cut."""

_MOST = 20
"""The most values of one field. The line has the number of all."""

_logger = logging.getLogger("agent_memory_log.audit")


class Audit:
    """Writes a line of JSON for each operation that writes or erases, before the server answers.

    Args:
        path: The file to append to. It is created for its owner only, and opened for each line, so that another program
            may rotate it. Default: the log ``agent_memory_log.audit``, as the record's ``fields``.

    Raises:
        StoreUnavailable: The file cannot be written.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        if path is not None:
            _append(path, b"")

    @contextmanager
    def recorded(self, grant: Grant, operation: Operation[Any], request_id: str) -> Generator[None]:
        """Record the operation that the ``with`` block carries out, with its outcome. See ``record``."""
        outcome = "failed"
        try:
            yield
            outcome = "ok"
        except AgentMemoryLogError as error:
            outcome = error.code
            raise
        finally:
            self.record(grant, operation, outcome, request_id)

    def record(self, grant: Grant, operation: Operation[Any], outcome: str, request_id: str) -> None:
        """Record an operation, unless it only reads.

        Args:
            grant: The rights of the caller.
            operation: The operation.
            outcome: ``ok``, the code of the error, or ``failed`` for any other end.
            request_id: The id of the request.

        Raises:
            StoreUnavailable: The file cannot be written.
        """
        if not operation.writes:
            return
        principal = grant.principal
        fields: dict[str, object] = {
            "time": format_timestamp(datetime.now(UTC)),
            "request": _bounded(request_id),
            "caller": _bounded(grant.name),
            "tenant": None if principal is None else _bounded(principal.tenant),
            "scopes": {} if principal is None else _bounded(principal.scopes),
            "operation": OPERATION_NAMES[type(operation)],
            **_names_in(operation),
            "outcome": _bounded(outcome),
        }
        if self._path is None:
            _logger.info("audit", extra={"fields": fields})
        else:
            _append(self._path, _line(fields))


def _append(path: Path, line: bytes) -> None:
    try:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(file).st_size
            if size and os.pread(file, 1, size - 1) != b"\n":  # a full disk or a kill cut off the last line
                line = b"\n" + line
            written = os.write(file, line)  # in one piece, so that the lines of several processes do not mix
        finally:
            os.close(file)
    except OSError as error:
        raise StoreUnavailable(f"the audit cannot be written: {error}") from error
    if written < len(line):
        raise StoreUnavailable(f"the audit cannot be written: the disk of {path} is full")


def _names_in(operation: Operation[Any]) -> dict[str, object]:
    """Return the values of the fields that name something, and the number of values of other fields with several."""
    names: dict[str, object] = {}
    for field in operation.__struct_fields__:
        value: object = getattr(operation, field)
        if value is None or value == ():
            continue
        if field in NAMES:
            names[field] = _bounded(value)
        if isinstance(value, tuple):
            names[f"{field}_count"] = len(cast("tuple[object, ...]", value))
    return names


def _bounded(value: object) -> object:
    """Return a value as JSON, with a limit for the characters of each text and for the number of values."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else value[:_LONGEST] + "…"
    if isinstance(value, Mapping):
        items = list(cast("Mapping[str, object]", value).items())[:_MOST]
        return {str(_bounded(key)): _bounded(item) for key, item in items}
    if isinstance(value, tuple):
        return [_bounded(item) for item in cast("tuple[object, ...]", value)[:_MOST]]
    return value


def _line(fields: Mapping[str, object]) -> bytes:
    """Return the fields as one line of ASCII. Every other character is escaped, so that no value can forge a line."""
    return json.dumps(fields).encode() + b"\n"
