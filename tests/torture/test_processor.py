"""Kills the processor and the server at every step. The end state is the same, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
from pathlib import Path
from typing import Literal

import nats.errors
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import EXAMPLES
from tests.processor.deployment import BUCKET, RESULTS, STREAM, Deployment, Processor, deployed
from tests.processor.kills import kill_at
from tests.processor.nats_server import NatsServer
from tests.processor.paused import STEPS
from tests.waiting import PATIENCE


@pytest.mark.parametrize("victims", ["processor", "server", "both"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_kill_at_a_step_leaves_the_same_end_state(
    tmp_path: Path,
    step: str,
    when: Literal["before", "after"],
    victims: Literal["processor", "server", "both"],
) -> None:
    await kill_at(step, when, victims, tmp_path)


SEND = st.tuples(st.sampled_from(sorted(RESULTS)), st.sampled_from(["l1", "l2", "l3"]))
DISTURB = st.sampled_from(["kill", "stop", "add", "server", "bucket", "poison", "again", "wait"])


class Schedule:
    """A deployment in which messages and disturbances follow each other."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.processors = [deployment.start()]
        self.sent: list[tuple[int, str, str]] = []
        self.poison = 0
        self.lost_pointers = False

    async def follow(self, actions: list[tuple[str, str] | str]) -> None:
        """Do the actions of a schedule, let everything settle, and check it."""
        for action in actions:
            if isinstance(action, tuple):
                await self._send(*action)
            else:
                await getattr(self, f"_{action}")()
        if not self.processors:
            await self._add()
        await self.deployment.settled()
        await self.deployment.check(self.sent, buried=self.poison, lost_pointers=self.lost_pointers)
        for processor in self.processors:
            assert processor.stop() == "finished"
        await self.deployment.check(self.sent, buried=self.poison, lost_pointers=self.lost_pointers)

    async def _send(self, kind: str, loop_id: str) -> None:
        self.sent.append((await self.deployment.send(kind, loop_id), kind, loop_id))

    async def _again(self) -> None:
        """Send the last message again, as a sender does that got no answer. It is late by then."""
        if self.sent:
            await self._send(*self.sent[-1][1:])

    async def _poison(self) -> None:
        await self.deployment.send_bytes("memory.hydrate.request.l1", b"{")
        self.poison += 1

    async def _add(self) -> None:
        if len(self.processors) < 3:
            self.processors.append(self.deployment.start())

    async def _kill(self) -> None:
        if self.processors:
            self.processors.pop(0).kill()
            await self._add()

    async def _stop(self) -> None:
        if self.processors:
            assert self.processors.pop(0).stop() in ("finished", "unfinished")

    async def _server(self) -> None:
        self.deployment.server.kill()
        self.deployment.server.start()

    async def _bucket(self) -> None:
        try:
            self.lost_pointers |= await self.deployment.stream.delete_key_value(BUCKET)
        except (nats.errors.Error, TimeoutError):
            return  # the bucket does not exist yet, or the server is starting

    async def _wait(self) -> None:
        await asyncio.sleep(0.3)


@settings(max_examples=max(1, EXAMPLES // 10))
@given(st.lists(SEND | SEND | DISTURB, min_size=4, max_size=20))
def test_random_schedules_leave_the_same_end_state(actions: list[tuple[str, str] | str]) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with deployed(Path(folder), "l1", "l2", "l3") as deployment:
                await Schedule(deployment).follow(actions)

    asyncio.run(run())


async def test_full_stream_keeps_messages_in_the_outbox(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats", max_file_store=2_000_000) as server:
        async with deployed(tmp_path, "l1", "l2", server=server) as deployment:
            sent = [(await deployment.send(kind, "l1"), kind, "l1") for kind in RESULTS]
            with pytest.raises(nats.errors.Error):  # noqa: PT012  # any of the messages may be the first that is refused
                for size in (100_000, 1_000, 50):
                    for _ in range(1_000):
                        await deployment.stream.publish("agent.junk", b"x" * size, timeout=2)
            first = deployment.start()
            await _has_logged(first, "was not published")
            first.kill()
            deployment.start()
            await deployment.stream.purge_stream(STREAM, subject="agent.junk")
            await deployment.settled()
            await deployment.check(sent)
            sent += [(await deployment.send(kind, "l2"), kind, "l2") for kind in RESULTS]
            await deployment.settled()
            await deployment.check(sent)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the files of another process")
async def test_full_disk_of_the_log_loses_nothing(tmp_path: Path) -> None:
    async with deployed(tmp_path, "l1", "l2") as deployment:
        processor = deployment.start()
        sent = [(await deployment.send("compaction_starting", "l1"), "compaction_starting", "l1")]
        await deployment.settled()
        largest = max(file.stat().st_size for file in tmp_path.glob("log.db*"))
        no_limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(processor.process.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
        sent += [(await deployment.send(kind, loop_id), kind, loop_id) for loop_id in ("l1", "l2") for kind in RESULTS]
        await _has_logged(processor, "comes again")
        resource.prlimit(processor.process.pid, resource.RLIMIT_FSIZE, no_limit)
        await deployment.settled()
        await deployment.check(sent)


async def _has_logged(processor: Processor, words: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while words not in processor.output.read_text():
            assert processor.process.poll() is None, processor.output.read_text()
            await asyncio.sleep(0.05)
