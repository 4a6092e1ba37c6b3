"""Starts the MongoDB servers of the benchmark, or uses the server in ``AMLOG_TEST_MONGO_URI``.

The tests use the newest SecantusDB, which is written in Python. Its time would hide that of the client, so the
benchmark uses the last release whose wheel also has the server as a compiled program. ``make bench`` installs it in a
folder of its own. This module imports no driver, so that it can report a missing one.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.scratch import scratch

GIVEN_URI = os.environ.get("AMLOG_TEST_MONGO_URI", "")

_FOLDER = Path(sys.prefix) / "rust-server"
_PROGRAM = _FOLDER / "bin" / "secantusd-rs"
_HOST = "127.0.0.1"
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)
_GLANCE = 0.02
"""The seconds between two attempts to connect to a server that is starting."""

_PATIENCE = 60
"""The seconds after which a server that does not accept a connection is an error."""


def lacking() -> str:
    """Return the missing package and how to install it, or an empty text if nothing is missing."""
    if importlib.util.find_spec("pymongo") is None:
        return "there is no pymongo: install agent-memory-log[mongo]"
    if not GIVEN_URI and not _PROGRAM.exists():
        return f"there is no {_PROGRAM.name}: make bench installs it; or name a server in AMLOG_TEST_MONGO_URI"
    return ""


def described() -> str:
    """Return a description of the server."""
    if GIVEN_URI:
        return "the server that AMLOG_TEST_MONGO_URI names"
    (server,) = importlib.metadata.distributions(name="SecantusDB", path=[str(_FOLDER)])
    return f"the compiled server of SecantusDB {server.version}, on the same machine"


@contextmanager
def new_server(parent: Path) -> Generator[str]:
    """Yield the URI of a new server, or that of ``AMLOG_TEST_MONGO_URI``.

    A new server has its data in a folder below ``parent``. The server and the folder are removed afterwards.
    """
    if GIVEN_URI:
        yield GIVEN_URI
        return
    with scratch(parent) as folder:
        port = _free_port()
        # Without an empty settings file, the server would read others, such as one in the home directory.
        settings = folder / "secantusd.toml"
        settings.touch()
        with (folder / "server.log").open("w") as log:
            process = subprocess.Popen(
                [
                    *(str(_PROGRAM), "--config", str(settings), "--storage-path", str(folder / "data")),
                    *("--host", _HOST, "--port", str(port), "--sync-on-commit"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                # The server ends even if the benchmark is killed. The function takes no lock: it is safe after a fork.
                preexec_fn=_die_with_the_benchmark if sys.platform == "linux" else None,  # noqa: PLW1509  # see above
            )
        try:
            deadline = time.monotonic() + _PATIENCE
            while not _accepts(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the MongoDB server did not start:\n{(folder / 'server.log').read_text()}")
                time.sleep(_GLANCE)
            yield f"mongodb://{_HOST}:{port}/"
        finally:
            process.kill()
            process.wait()


@contextmanager
def servers(parent: Path) -> Generator[tuple[str, str]]:
    """Yield the URIs of two servers, one for each side. A server in ``AMLOG_TEST_MONGO_URI`` serves both sides."""
    with new_server(parent) as measured, new_server(parent) as baseline:
        yield measured, baseline


def _die_with_the_benchmark() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as reservation:
        reservation.bind((_HOST, 0))
        port = reservation.getsockname()[1]
    assert isinstance(port, int)
    return port


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((_HOST, port), timeout=_PATIENCE).close()
    except OSError:
        return False
    return True
