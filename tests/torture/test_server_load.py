"""Kills a server, its clients and their connections at random moments under load. Nothing acknowledged is lost.

``AMLOG_TORTURE=1 AMLOG_LOAD_SECONDS=300 pytest -s tests/torture/test_server_load.py`` runs it for five minutes and
shows its progress. The output has the seed of the schedule. ``AMLOG_LOAD_SEED`` repeats a schedule, but not the speed
of the machine.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import msgspec

from agent_memory_log import PlannerNote, SyncStore, decode_event, open_store, open_sync_store
from agent_memory_log.memory import Preference, Principal, SyncMemoryClient
from agent_memory_log.memory.records.arguments import Right
from agent_memory_log.service.access.tokens import create_token
from agent_memory_log.service.grants import Grant
from tests import amlog
from tests.mongo.ports import port_of, reserve_port
from tests.processes import PATIENCE, ROOT
from tests.programs import numbered
from tests.service.cutting_proxy import CuttingProxy
from tests.service.serving import ServerProcess
from tests.torture.load_clients import (
    AGENT,
    SHARED_RUNS,
    Acknowledged,
    Entry,
    Seen,
    acknowledged_writes,
    batch_size,
    entries_of,
    memory_value,
)
from tests.waiting import until_blocking

SECONDS = float(os.environ.get("AMLOG_LOAD_SECONDS", "60"))
SEED = os.environ.get("AMLOG_LOAD_SEED") or secrets.token_hex(4)

FOLLOWED_RUNS = (*SHARED_RUNS, *reversed(SHARED_RUNS))
"""The runs of the followers."""

READ: frozenset[Right] = frozenset({"read"})
WRITE: frozenset[Right] = frozenset({"write"})

CUT_AFTER_BYTES = 20_000
"""The proxy cuts most connections after a random number of bytes up to this one, in each direction."""

SECONDS_BETWEEN_REPORTS = 5


async def _created_token(url: str, grant: Grant) -> str:
    async with open_store(url) as store:
        token, _ = await create_token(store, grant, days=1)
    return token


class Client:
    """A client with its token, its journal and its process."""

    def __init__(self, folder: Path, grant: Grant, token: str, program: str, *arguments: str) -> None:
        self.grant = grant
        self.name = grant.name
        self.journal = folder / f"{self.name}.journal"
        self._output = folder / f"{self.name}.output"
        self._arguments = (program, *arguments, str(self.journal))
        self._token = token
        self.process = self._started()

    @property
    def entries(self) -> list[Entry]:
        return entries_of(self.journal)

    def lines(self) -> int:
        """Return the number of complete entries."""
        return self.journal.read_bytes().count(b"\n") if self.journal.exists() else 0

    def has_more_lines(self, count: int) -> bool:
        """Return whether there are more than ``count`` complete entries."""
        return self.lines() > count

    def restart(self) -> None:
        """Kill the process and start another one with the same journal."""
        self.check()
        self.process.kill()
        self.process.wait(PATIENCE)
        self.process = self._started()

    def check(self) -> None:
        """Check that the process has not failed."""
        assert self.process.poll() in (None, 0), f"{self.name}: {self._output.read_text()}"

    def _started(self) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.torture.load_clients", *self._arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=amlog.environment(AMLOG_TOKEN=self._token),
            )


class Campaign:
    """A server, a proxy before it, and clients. Every second client uses the proxy."""

    def __init__(self, folder: Path, port: int, proxy: CuttingProxy) -> None:
        self.folder = folder
        self.store = f"sqlite:///{folder / 'runs.db'}"
        self.audit = folder / "audit"
        self.chance = random.Random(SEED)
        self.counts: Counter[str] = Counter()
        self.proxy = proxy
        self._port = port
        self._starts = 0
        self._urls = cycle([f"http://127.0.0.1:{port}", f"http://127.0.0.1:{proxy.port}"])
        # A server demands tokens if it finds one at its start.
        asyncio.run(_created_token(self.store, Grant("unused", READ, None, (AGENT,))))
        self.server = self._started_server()
        self.writers = [
            self._client("write", f"w{number}", Grant(f"w{number}", WRITE, None, (AGENT,))) for number in range(4)
        ]
        self.followers = [
            self._client("follow", run, Grant(f"f{number}", READ, None, (AGENT,)))
            for number, run in enumerate(FOLLOWED_RUNS)
        ]
        self.rememberers = [
            self._client("remember", f"m{number}", Grant(f"m{number}", READ | WRITE, Principal("acme", {"user": user})))
            for number, user in enumerate(["1", "1", "2"])
        ]

    @property
    def clients(self) -> list[Client]:
        return [*self.writers, *self.followers, *self.rememberers]

    def _client(self, program: str, name: str, grant: Grant) -> Client:
        token = asyncio.run(_created_token(self.store, grant))
        url = next(self._urls)
        return Client(self.folder, grant, token, program, name, f"{url}?timeout=120")

    def _started_server(self) -> ServerProcess:
        self._starts += 1
        log = self.folder / f"server-{self._starts}.log"
        return ServerProcess(self.store, log, "--port", str(self._port), "--audit", str(self.audit))

    def disturbances(self) -> Iterator[Callable[[], None]]:
        """Yield the disturbances in random order, without end."""
        kinds = (self._kill_server, self._kill_server, self._stop_server, self._kill_clients, self._cut)
        while True:
            yield from self.chance.sample(kinds, len(kinds))

    def _kill_server(self) -> None:
        """Kill the server, sometimes while it stops."""
        if self.chance.random() < 0.3:
            self.server.process.terminate()
            time.sleep(self.chance.uniform(0, 0.1))
        self.server.process.kill()
        self._start_again(-signal.SIGKILL, 0)
        self.counts["kills of the server"] += 1

    def _stop_server(self) -> None:
        self.server.process.terminate()
        self._start_again(0)
        self.counts["stops of the server"] += 1

    def _start_again(self, *statuses: int) -> None:
        with self.server:
            assert self.server.process.wait(PATIENCE) in statuses
        time.sleep(self.chance.choice([0, self.chance.uniform(0, 1)]))
        self.server = self._started_server()

    def _kill_clients(self) -> None:
        for client in self.chance.sample(self.clients, self.chance.randint(1, 3)):
            client.restart()
            self.counts["kills of clients"] += 1

    def _cut(self) -> None:
        self.proxy.cut_all()
        self.counts["cuts of all connections"] += 1

    def finish(self) -> None:
        """Let the writers end, wait until each follower has seen its run, and stop the server."""
        (self.folder / "stop").touch()
        for client in (*self.writers, *self.rememberers):
            client.process.wait(PATIENCE)
            client.check()
        with open_sync_store(self.store) as store:
            for follower, run in zip(self.followers, FOLLOWED_RUNS, strict=True):
                (head,) = store.peek_runs([(AGENT, run)])
                assert head is not None
                while (seen := follower.lines()) < head.version:
                    follower.check()
                    # A follower asks for each event, so it may be far behind.
                    until_blocking(partial(follower.has_more_lines, seen))
        self.close()
        assert self.server.process.returncode == 0

    def close(self) -> None:
        """End all processes."""
        for client in self.clients:
            client.process.kill()
            client.process.wait(PATIENCE)
        with self.server:
            if self.server.process.poll() is None:
                self.server.process.terminate()
                self.server.process.wait(PATIENCE)

    def report(self) -> str:
        """Return the numbers of writes and disturbances so far."""
        entries = Counter(type(entry).__name__ for client in self.clients for entry in client.entries)
        memories = sum(isinstance(entry, Acknowledged) for client in self.rememberers for entry in client.entries)
        counts = self.counts + Counter(
            {
                "acknowledged appends": entries["Acknowledged"] - memories,
                "acknowledged memories": memories,
                "followed events": entries["Seen"],
                "cut connections": self.proxy.cuts,
            }
        )
        return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items()))


@contextmanager
def campaign(folder: Path) -> Generator[Campaign]:
    """Start a campaign, and end its processes."""
    with reserve_port() as reservation:
        port = port_of(reservation)
        sizes = {"request_bytes": CUT_AFTER_BYTES, "answer_bytes": CUT_AFTER_BYTES}
        with CuttingProxy(port, seed=int.from_bytes(SEED.encode()), **sizes) as proxy:
            running = Campaign(folder, port, proxy)
            try:
                yield running
            finally:
                running.close()


def say(text: str) -> None:
    """Show the progress of the campaign with ``pytest -s``, and in the report of a failure."""
    print(text, flush=True)  # noqa: T201  # a campaign of minutes must show that it continues


def test_kills_under_load_lose_and_double_nothing(tmp_path: Path) -> None:
    say(f"\n{SECONDS:g} seconds, AMLOG_LOAD_SEED={SEED}")
    with campaign(tmp_path) as running:
        start = reported = time.monotonic()
        disturbances = running.disturbances()
        while time.monotonic() < start + SECONDS:
            time.sleep(running.chance.uniform(0.1, 2))
            next(disturbances)()
            for client in running.clients:
                client.check()
            if time.monotonic() > reported + SECONDS_BETWEEN_REPORTS:
                reported = time.monotonic()
                say(f"{reported - start:4.0f} s: {running.report()}")
        running.finish()
        say(f"  end: {running.report()}")
        verified = amlog.run("verify", "--store", running.store)
        assert verified.status == 0, verified
        with open_sync_store(running.store) as store:
            check_runs(running, store)
            check_memories(running, store)
        check_audit(running)
        check_logs(running)


def check_runs(running: Campaign, store: SyncStore) -> None:
    """Check that the store has exactly the acknowledged events, with their seqs, and that followers saw them once."""
    expected: dict[str, dict[int, tuple[str, str]]] = {}
    for writer in running.writers:
        writes = list(acknowledged_writes(writer.entries))
        assert len(writer.entries) == 2 * len(writes), f"{writer.name} has writes without an acknowledgement"
        for sent, acknowledged in writes:
            batch = numbered(writer.name, sent.number, batch_size(sent.number))
            for event, seq in zip(batch, acknowledged.seqs, strict=True):
                events = expected.setdefault(sent.name, {})
                assert seq not in events, f"{sent.name} seq {seq} was acknowledged twice"
                events[seq] = event.event_id, decode_event(event, PlannerNote).note
    stored: dict[str, dict[int, tuple[str, str]]] = {}
    cursor = None
    while True:
        page = store.list_runs(AGENT, limit=1_000, cursor=cursor)
        for info in page.runs:
            log = store.load_run(AGENT, info.run).log
            assert [event.seq for event in log] == list(range(1, len(log) + 1))
            stored[info.run] = {event.seq: (event.event_id, decode_event(event, PlannerNote).note) for event in log}
        if (cursor := page.cursor) is None:
            break
    assert stored.keys() == expected.keys()
    for run, events in stored.items():
        assert events == expected[run], run
    for follower, run in zip(running.followers, FOLLOWED_RUNS, strict=True):
        assert follower.entries == [Seen(seq, event_id) for seq, (event_id, _) in stored[run].items()]


def check_memories(running: Campaign, store: SyncStore) -> None:
    """Check that each key has its last acknowledged value, and that its history has all values in order."""
    memory = SyncMemoryClient(store)
    for client in running.rememberers:
        values: dict[str, list[str]] = {}
        for sent, _ in acknowledged_writes(client.entries):
            values.setdefault(sent.name, []).append(memory_value(client.name, sent.number))
        assert values, client.name
        assert client.grant.principal is not None
        me = memory.of(client.grant.principal)
        for key, expected in values.items():
            history = [version.record.data for version in me.history(key)]
            assert [data.value for data in history if isinstance(data, Preference)] == expected
            record = me.get(key=key)
            assert record is not None
            assert record.data == history[-1]


def check_audit(running: Campaign) -> None:
    """Check that each line is JSON, and that each acknowledged write has its line."""
    data = running.audit.read_bytes()
    assert data.endswith(b"\n")
    lines: list[dict[str, Any]] = [msgspec.json.decode(line) for line in data.splitlines()]
    audited: Counter[tuple[str, str]] = Counter(
        (line["caller"], line.get("run") or line["key"]) for line in lines if line["outcome"] == "ok"
    )
    acknowledged = Counter(
        (client.name, sent.name)
        for client in (*running.writers, *running.rememberers)
        for sent, _ in acknowledged_writes(client.entries)
    )
    assert not acknowledged - audited


def check_logs(running: Campaign) -> None:
    """Check that no server met an unexpected error."""
    for log in running.folder.glob("server-*.log"):
        lines = [msgspec.json.decode(line) for line in log.read_bytes().split(b"\n")[:-1]]
        assert not [line for line in lines if line["level"] not in ("debug", "info")], log
