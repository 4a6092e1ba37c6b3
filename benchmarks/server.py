"""The rows of the table that measure ``amlog serve``, beside a bare endpoint that inserts the same rows."""

from __future__ import annotations

import asyncio
import http.client
import json
import statistics
import subprocess
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

import msgspec

from agent_memory_log import Event, open_sync_store
from agent_memory_log.service.store_operations import AppendEvents
from agent_memory_log.service.wire import encode_operation
from benchmarks import workload
from benchmarks.measure import Progress, Ratio, compare, timed
from benchmarks.scratch import scratch
from benchmarks.table import Figure, Row

_CLIENTS = 64
_REQUESTS = 1_920

_PATH = "/v1/runs/append_events"


def rows(fast: Path) -> list[Row]:
    """Return every comparison."""
    bare = "a bare Starlette endpoint"
    return [
        Row("Server, an append", bare, 3.0, lambda n, p: append(fast, 1, n, p)),
        Row(
            "Server, appends of 64 clients",
            bare,
            0.7,
            lambda n, p: append(fast, _CLIENTS, n, p).of_throughput(),
            throughput=True,
        ),
    ]


def figures(fast: Path) -> list[Figure]:
    """Return every plain number."""
    return [Figure("Server, from an append to its follower", "ms at the median", 50, lambda: follow(fast))]


def append(parent: Path, clients: int, rounds: int, progress: Progress) -> Ratio:
    """Append single events on kept-alive connections, and check that none is lost.

    Both servers run in processes of their own during the whole measurement.
    """
    with scratch(parent) as folder, _amlog(folder) as url, _floor(folder) as floor_url:
        ratio = compare(lambda: _append_all(url, clients), lambda: _append_all(floor_url, clients), rounds, progress)
        with open_sync_store(f"sqlite:///{folder / 'ours.db'}") as store:
            assert store.list_runs().runs[0].event_count == _REQUESTS * (rounds + 1)
    return ratio


def _append_all(url: str, clients: int) -> float:
    requests = [_request(url, event) for event in workload.events(_REQUESTS)]

    async def append_some(numbers: range) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        for number in numbers:
            writer.write(requests[number])
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
        writer.close()

    async def append_all() -> None:
        await asyncio.gather(*(append_some(range(first, _REQUESTS, clients)) for first in range(clients)))

    return timed(lambda: asyncio.run(append_all()), _REQUESTS)


def _request(url: str, event: Event) -> bytes:
    body = msgspec.json.encode(encode_operation(AppendEvents("agent", "run", (event,))))
    host = urlsplit(url).netloc
    head = f"POST {_PATH} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


def follow(parent: Path) -> float:
    """Return the median time from the request of an append to the arrival of the run's new head, in milliseconds."""
    events = workload.events(200)
    with scratch(parent) as folder, _amlog(folder) as url:
        address = ("127.0.0.1", urlsplit(url).port or 0)
        follower, writer = http.client.HTTPConnection(*address), http.client.HTTPConnection(*address)
        headers = {"content-type": "application/json"}
        follower.request("POST", "/v1/runs/follow", json.dumps({"agent": "agent", "run": "run"}), headers)
        heads = follower.getresponse()
        times: list[float] = []
        _next_version(heads)
        for version, event in enumerate(events, 1):
            body = msgspec.json.encode(encode_operation(AppendEvents("agent", "run", (event,))))
            start = perf_counter()
            writer.request("POST", _PATH, body, headers)
            while _next_version(heads) < version:
                pass
            times.append((perf_counter() - start) * 1_000)
            writer.getresponse().read()
        follower.close()
        writer.close()
    return statistics.median(times)


def _next_version(heads: http.client.HTTPResponse) -> int:
    while not (line := heads.readline()).startswith(b"data: "):
        pass
    version: int = json.loads(line.removeprefix(b"data: "))["version"]
    return version


def _amlog(folder: Path) -> AbstractContextManager[str]:
    options = ["--store", f"sqlite:///{folder / 'ours.db'}", "--port", "0", "--rate", "1000000"]
    return _process(["agent_memory_log.cli", "serve", *options])


def _floor(folder: Path) -> AbstractContextManager[str]:
    return _process(["benchmarks.server_floor", str(folder / "floor.db")])


@contextmanager
def _process(arguments: list[str]) -> Generator[str]:
    """Run a server while the block runs, and yield its URL."""
    with subprocess.Popen(
        [sys.executable, "-m", *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()
