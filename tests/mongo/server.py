"""MongoDB servers for tests: a process that a test can kill, freeze and start again, or an existing server.

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
from signal import Signals
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.mongo.certificates import Certificates
from tests.mongo.ports import HOST, port_of, reserve_port
from tests.waiting import PATIENCE

USER = "root"
PASSWORD = "p@ss/w:rd %41"
"""A password with characters that a URL must escape."""

_PROGRAM = Path(sys.executable).with_name("secantusd-py")
_KEEPER = Path(__file__).with_name("keeper.py")
_GLANCE = 0.02
"""The number of seconds between two attempts to connect to a starting server."""


class MongoServer:
    """A replica set with one node, for a ``with`` block, which starts it.

    Args:
        folder: The folder of the data, the log and the settings.
        auth: Whether clients must log in. The user ``USER`` is created before the first start.
        certificates: The certificates for TLS. With them, the server accepts only TLS connections.
        standalone: Whether the server is not a replica set. It then has no change streams.
        test_commands: Whether ``fail_command`` is allowed.
        sync_on_commit: Whether the server writes to disk before it acknowledges a write, like MongoDB with
            ``w: "majority"``. If it is False, a killed server loses acknowledged writes that did not have ``j: true``.
        oplog_entries: The number of newest changes from which a change stream can resume.
    """

    def __init__(
        self,
        folder: Path,
        *,
        auth: bool = False,
        certificates: Certificates | None = None,
        standalone: bool = False,
        test_commands: bool = False,
        sync_on_commit: bool = True,
        oplog_entries: int = 100_000,
    ) -> None:
        self._folder = folder
        self._auth = auth
        self._certificates = certificates
        self._has_user = False
        self._keeper: subprocess.Popen[bytes] | None = None
        self._reservation = reserve_port()
        self.port = port_of(self._reservation)
        self._command: list[str] = [str(_PROGRAM)]
        # The settings turn the TTL monitor off, which would delete expired documents in the middle of a test. Without
        # the file, the server looks for settings in other folders, such as the home directory.
        self._command += ["--config", str(folder / "secantusd.toml"), "--storage-path", str(folder / "data")]
        self._command += ["--host", HOST, "--port", str(self.port)]
        # The default of 1 GB is full after thousands of tests, and the server then waits for room without an end.
        self._command += ["--oplog-max-entries", str(oplog_entries), "--cache-size", "3G"]
        self._command += ["--standalone"] * standalone
        self._command += ["--enable-test-commands"] * test_commands
        self._command += ["--sync-on-commit"] * sync_on_commit
        if certificates is not None:
            self._command += ["--tls-cert-file", str(certificates.certificate), "--tls-key-file", str(certificates.key)]

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
        shutil.rmtree(self._folder / "data")

    @property
    def running(self) -> bool:
        """Return whether the server was started, was not stopped, and did not crash."""
        return self._keeper is not None and self._keeper.poll() is None

    @property
    def log(self) -> str:
        """Return the text of the server's log."""
        return (self._folder / "server.log").read_text()

    def start(self) -> None:
        """Start the server with its earlier port and data, and wait until it responds."""
        assert not self.running, "it is running already"
        self._wait_for_the_end()
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "secantusd.toml").write_text("[storage]\nttl_sweep_seconds = 0\n")
        if self._auth and not self._has_user:
            self._launch()
            with self.client() as client:
                client["admin"].command("createUser", USER, pwd=PASSWORD, roles=["root"])
            # The user is stored already. A clean stop would wait for clients and for a slow disk.
            self.kill()
            self._has_user = True
        self._launch(*["--auth"] * self._auth)

    def stop(self) -> None:
        """Stop the server cleanly. This may take two seconds while clients are connected."""
        self.signal("SIGTERM")
        self._wait_for_the_end()

    def kill(self) -> None:
        """Kill the server at once, even if it is frozen. Do nothing if it does not run."""
        with contextlib.suppress(BrokenPipeError):
            self._send("SIGKILL")
        self._wait_for_the_end()

    def freeze(self) -> None:
        """Freeze the server until ``thaw``. The kernel still accepts connections for it."""
        self.signal("SIGSTOP")

    def thaw(self) -> None:
        """Let a frozen server continue."""
        self.signal("SIGCONT")

    def signal(self, name: str) -> None:
        """Send the server the signal with this name."""
        assert self.running, f"it is not running:\n{self.log}"
        self._send(name)

    def uri(self, database: str = "", *, port: int | None = None, **options: str | int) -> str:
        """Return the URI of the server or of a proxy.

        Args:
            database: The name of the database in the URI.
            port: The port of a proxy. The URI then asks for a direct connection, because the driver would otherwise
                learn the server's own port and connect to it.
            options: More options of the URI, such as ``w="majority"``.
        """
        if port is not None:
            options = {"directConnection": True, **options}
        user = ""
        if self._has_user:
            user = f"{quote(USER, safe='')}:{quote(PASSWORD, safe='')}@"
            options = {"authSource": "admin", **options}
        if self._certificates is not None:
            options = {"tls": True, "tlsCAFile": str(self._certificates.authority), **options}
        return with_database(f"mongodb://{user}{HOST}:{port or self.port}/", database, **options)

    def client(self, **options: str | int) -> MongoClient[dict[str, Any]]:
        """Return a client of the driver, logged in as ``USER`` if the server has users."""
        # To close a client takes this long if the server is dead. The default is half a minute.
        return MongoClient(with_database(self.uri(serverSelectionTimeoutMS=10_000), "", **options))

    def create_user(self, name: str, password: str, *roles: str, database: str = "admin") -> None:
        """Create a user of ``database`` with roles such as ``read`` and ``readWrite``."""
        with self.client() as client:
            client[database].command("createUser", name, pwd=password, roles=list(roles))

    def delete_expired(self) -> int:
        """Run the server's TTL monitor now. Return the number of removed documents."""
        with self.client() as client:
            reply = client["admin"].command("secantusAdmin.pruneTtl")
        return int(reply["pruned"])

    def _launch(self, *more: str) -> None:
        assert _PROGRAM.exists(), f"{_PROGRAM} is missing: install the development dependencies"
        with (self._folder / "server.log").open("a") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER), *self._command, *more],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd=self._folder,
                # A terminal's Ctrl-C must reach only the tests, which then stop their servers.
                start_new_session=True,
            )
        try:
            self._wait_for_an_answer(self._keeper)
        except BaseException:
            self.kill()
            raise

    def _wait_for_an_answer(self, keeper: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not _accepts(self.port):
            with contextlib.suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"the server ended with exit code {keeper.wait(_GLANCE)}:\n{self.log}")
            assert time.monotonic() < deadline, f"the server does not answer:\n{self.log}"
        try:
            with self.client() as client:
                client["admin"].command("ping")
        except PyMongoError as error:
            raise AssertionError(f"the server accepts connections, and does not answer:\n{self.log}") from error

    def _send(self, name: str) -> None:
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            assert self._keeper.stdout is not None
            self._keeper.stdin.write(f"{Signals[name].name}\n".encode())
            # The keeper replies after it sent the signal. If the server ends, the keeper ends without a reply.
            self._keeper.stdout.readline()

    def _wait_for_the_end(self) -> None:
        if self._keeper is None:
            return
        try:
            self._keeper.wait(PATIENCE)
        finally:
            # When its input ends, the keeper kills the server.
            assert self._keeper.stdin is not None
            assert self._keeper.stdout is not None
            self._keeper.stdin.close()
            self._keeper.stdout.close()
            self._keeper.wait(PATIENCE)
            self._keeper = None


class GivenServer:
    """An existing server at ``uri``. Tests only create databases in it."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def uri(self, database: str = "", **options: str | int) -> str:
        """Return the URI with ``database`` and with the additional ``options``."""
        return with_database(self._uri, database, **options)

    def client(self, **options: str | int) -> MongoClient[dict[str, Any]]:
        """Return a client of the driver."""
        return MongoClient(with_database(self._uri, "", **options))


def with_database(uri: str, database: str, **options: str | int) -> str:
    """Return ``uri`` with another database and more options. The former database becomes ``authSource``."""
    scheme, hosts, path, query, _ = urlsplit(uri)
    merged: dict[str, str | int] = dict(parse_qsl(query))
    if path.strip("/") and "@" in hosts:
        merged.setdefault("authSource", path.strip("/"))
    merged |= options
    written = {name: str(value).lower() if isinstance(value, bool) else value for name, value in merged.items()}
    return urlunsplit((scheme, hosts, f"/{quote(database, safe='')}", urlencode(written, quote_via=quote), ""))


def _accepts(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=PATIENCE).close()
    except OSError:
        return False
    return True
