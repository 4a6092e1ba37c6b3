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
    """Make commands fail or wait inside the block.

    A server has only one such fault at a time. A new fault replaces the old one.

    Error codes that mean "not the primary" or "shutting down" (91, 189, 10107, 11600, 13435, ...) make a driver forget
    the server until its next heartbeat. This takes ten seconds, or half a second if the URI has
    ``serverMonitoringMode=poll``.

    Args:
        server: The server that gets the fault.
        commands: The names of the commands. By default, every command is affected.
        times: The number of commands that fail. By default, all fail.
        skip: The number of commands that succeed before the first failure.
        error_code: The server refuses the command with this code and does not execute it.
        error_labels: The labels of the error.
        write_concern_error: The server executes the command. The reply has ``ok: 1`` and this error.
        close_connection: The server closes the connection and does not execute the command.
        block_ms: The server waits this number of milliseconds before it executes the command.
        app_name: Only the connections of the client with this name are affected.
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
