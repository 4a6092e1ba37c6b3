"""Sets fail points of the server: commands that fail, wait or lose their connection."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.mongo.server import MongoServer


@contextmanager
def fail_command(
    server: MongoServer,
    *commands: str,
    times: int | None = None,
    skip: int = 0,
    error_code: int | None = None,
    error_labels: Sequence[str] | None = None,
    write_concern_error: Mapping[str, Any] | None = None,
    close_connection: bool = False,
    block_ms: int = 0,
    app_name: str | None = None,
) -> Generator[None]:
    """Inside the block, let ``commands`` (any, if none is named) fail: the next ``times`` after ``skip``, or all.

    With ``error_code`` or ``close_connection`` a command is not carried out; with ``write_concern_error`` it is, and
    the reply says ``ok: 1`` with that error; with ``block_ms`` it is, that much later. ``app_name`` narrows it to the
    connections of one client. A server has one such fault at a time: the last one set is the one in force.

    Codes that mean "not the primary" or "shutting down" (91, 189, 10107, 11600, 13435, ...) make a driver forget the
    server until its next heartbeat, ten seconds later; a URI with ``serverMonitoringMode=poll`` makes it half a second.
    """
    data: dict[str, Any] = {"failCommands": list(commands), "closeConnection": close_connection}
    if error_code is not None:
        data["errorCode"] = error_code
    if error_labels is not None:
        data["errorLabels"] = list(error_labels)
    if write_concern_error is not None:
        data["writeConcernError"] = dict(write_concern_error)
    if block_ms:
        data |= {"blockConnection": True, "blockTimeMS": block_ms}
    if app_name is not None:
        data["appName"] = app_name
    mode: str | dict[str, int] = "alwaysOn"
    if times is not None or skip:
        mode = {"skip": skip} if times is None else {"skip": skip, "times": times}
    _configure(server, mode, data)
    try:
        yield
    finally:
        # A server that was killed in the meantime has no fail point.
        if server.running:
            _configure(server, "off", {})


def _configure(server: MongoServer, mode: str | dict[str, int], data: dict[str, Any]) -> None:
    with server.client() as client:
        client["admin"].command({"configureFailPoint": "failCommand", "mode": mode, "data": data})
