"""A NATS server with JetStream on disk for tests: a process that a test can kill, freeze and start again.

The program of the server comes with the development dependencies. Tests use it only over its socket.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.mongo.ports import HOST, port_of, reserve_port
from tests.waiting import PATIENCE

_PROGRAM = Path(sys.executable).with_name("nats-server")
_KEEPER = Path(__file__).parents[1] / "mongo" / "keeper.py"
_GLANCE = 0.02


class NatsServer:
    """A server for a ``with`` block, which starts it.

    Args:
        folder: The folder of the data, the log and the settings.
        max_file_store: The most bytes of all streams.
        settings: More lines of its configuration.
    """

    def __init__(self, folder: Path, *, max_file_store: int = 1_000_000_000, settings: str = "") -> None:
        self._folder = folder
        self._keeper: subprocess.Popen[bytes] | None = None
        self._reservation = reserve_port()
        self.port = port_of(self._reservation)
        self.url = f"nats://{HOST}:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "nats.conf").write_text(
            f"""
            host: "{HOST}"
            port: {self.port}
            jetstream {{ store_dir: "{folder / "data"}", max_file_store: {max_file_store}, max_memory_store: 0 }}
            {settings}
            """
        )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._reservation.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._reservation.close()
        shutil.rmtree(self._folder / "data", ignore_errors=True)

    @property
    def log(self) -> str:
        """Return the text of the server's log."""
        return (self._folder / "server.log").read_text()

    def start(self) -> None:
        """Start the server with its earlier port and data, and wait until it accepts connections."""
        assert self._keeper is None, "it is running already"
        assert _PROGRAM.exists(), f"{_PROGRAM} is missing: install the development dependencies"
        with (self._folder / "server.log").open("a") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER), str(_PROGRAM), "-c", str(self._folder / "nats.conf")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd=self._folder,
                # A terminal's Ctrl-C must reach only the tests, which then stop their servers.
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE
        while not _accepts(self.port):
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"the server ended with exit code {self._keeper.wait(_GLANCE)}:\n{self.log}")
            assert time.monotonic() < deadline, f"the server does not answer:\n{self.log}"

    def kill(self) -> None:
        """Kill the server at once, and wait for its end. Do nothing if it does not run."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        keeper.stdin.close()  # when its input ends, the keeper kills the server
        keeper.wait(PATIENCE)
        keeper.stdout.close()


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=PATIENCE).close()
    except OSError:
        return False
    return True
