"""A NATS server, a log, loops, and processors as processes. ``check`` is the oracle of their tests.

The published messages are those of the outboxes, each once for a receiver that deduplicates by id. No message is
acknowledged without its effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import ConsumerConfig, KeyValueConfig, StreamConfig

from agent_memory_log import InjectedContext, SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.memory import Principal, SyncMemoryClient
from agent_memory_log.processor import Loop, LoopCheckpoint, SyncLoopMemory
from agent_memory_log.processor.transport.ledger import DeadLetter, Ledger, MessageHandled, OutgoingMessage
from tests.amlog import environment
from tests.processes import PATIENCE, ROOT
from tests.processor.nats_server import NatsServer

STREAM = "AGENT"
SUBJECTS = ("agent.>", "memory.>", "graph.>")
LEDGERS = "@processor/AGENT"
AGENT = "coder"
BUCKET = "AGENT_MEMORY_CHECKPOINTS"
CONSUMERS = ("memory-compaction", "memory-hydrate")
OUTPUTS = ("agent.context.injected.>", "graph.mutation.>", "memory.checkpoint.created.>")
RESULTS = {
    "compaction_starting": ["checkpoint_events"],
    "compaction_complete": ["injected_context"],
    "gc_complete": [],
    "pre_task": ["injected_context"],
    "post_compaction": ["injected_context"],
}
"""The ports of the messages that each message brings about, besides changes of the graph."""


class Processor:
    """A processor as a process.

    Args:
        output: The file for what it logs.
        arguments: The module to run, and its arguments.
        greeting: The line that it prints at its start.
    """

    def __init__(self, output: Path, arguments: Sequence[str], greeting: str) -> None:
        self.output = output
        with self.output.open("wb") as output_file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output_file,
                text=True,
                env=environment(),
                start_new_session=True,
            )
        assert self.process.stdout is not None
        self.answers = self.process.stdout
        assert self.read() == greeting

    def read(self) -> str:
        """Return the next line of the process."""
        line = self.answers.readline().strip()
        assert line, self.output.read_text()
        return line

    def go_on(self) -> None:
        """Let the process continue after its step."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Kill the process at once."""
        self.process.kill()
        self._close()

    def stop(self) -> str:
        """Stop the process with SIGTERM. Returns whether it was ``finished`` in time."""
        self.process.send_signal(signal.SIGTERM)
        answer = self.read()
        self._close()
        return answer

    def end(self) -> None:
        """End the process with SIGTERM, and wait until it has finished."""
        self.process.send_signal(signal.SIGTERM)
        self._close()
        assert self.process.returncode == 0, self.output.read_text()

    def _close(self) -> None:
        self.process.wait(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class Deployment:
    """A server with the stream and the log of some loops.

    Args:
        folder: The folder of all files.
        server: The server, which runs.
        settings: More settings of the processors.
    """

    def __init__(self, folder: Path, server: NatsServer, **settings: object) -> None:
        self.folder = folder
        self.server = server
        self.store = f"sqlite:///{folder / 'log.db'}"
        self.config = folder / "processor.json"
        self.sent = 0
        self.processors: list[Processor] = []
        loops = [{"loop_id": "l*", "agent": AGENT, "scopes": {"user": "{loop_id}"}}]
        self.settings: dict[str, Any] = {"servers": [server.url], "loops": loops, "ack_seconds": 1, **settings}
        self.config.write_text(json.dumps(self.settings))

    async def connect(self) -> None:
        """Connect the test to the server, and make the stream."""
        self.client = Client()
        await self.client.connect(
            self.server.url,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.05,  # type: ignore[arg-type]  # it takes seconds of any number
            error_cb=_ignore,
        )
        self.stream = JetStreamContext(self.client)
        await self.make_stream()

    async def make_stream(self) -> None:
        """Make the stream for all subjects."""
        config = StreamConfig(name=STREAM, subjects=list(SUBJECTS))
        await self.stream.add_stream(config)  # pyright: ignore[reportUnknownMemberType]  # nats-py types it partly

    async def make_bucket(self) -> None:
        """Make the bucket of the states of entities."""
        config = KeyValueConfig(bucket="ENTITY_STATES")
        await self.stream.create_key_value(config)  # pyright: ignore[reportUnknownMemberType]  # nats-py types it partly

    async def change_entity(self, loop_id: str) -> None:
        """Change an entity that the memory of a loop knows."""
        with open_sync_store(self.store) as store:
            memory = SyncMemoryClient(store).of(Principal("default", {"user": loop_id}))
            memory.remember(key="database", value="big", entities=["postgres"])
        await self.make_bucket()
        await (await self.stream.key_value("ENTITY_STATES")).put("postgres", b"restarted")

    async def knows_entity(self, loop_id: str) -> None:
        """Wait until a loop got one context about the entity, and check that the change is acknowledged."""
        async with asyncio.timeout(PATIENCE):
            while not await self.is_acknowledged("KV_ENTITY_STATES", "memory-entities"):  # noqa: ASYNC110  # the server sets no event
                await asyncio.sleep(0.05)
        await self.settled()
        with open_sync_store(self.store) as store:
            events = [event.data for event in store.load_run(LEDGERS, f"loop/{loop_id}").log]
        handled = [data.kind for data in events if isinstance(data, MessageHandled) and data.port == "entity_states"]
        assert handled == ["postgres"]

    async def serve_only(self, *subjects: str) -> None:
        """Let the stream store only some subjects."""
        config = StreamConfig(name=STREAM, subjects=list(subjects))
        await self.stream.update_stream(config)  # pyright: ignore[reportUnknownMemberType]  # nats-py types it partly

    def fill(self, *loop_ids: str) -> None:
        """Give loops a run with a statement of the user."""
        with open_sync_store(self.store) as store:
            for loop_id in loop_ids:
                event = new_event(UserMessage(message=f"language is {loop_id}-python"), event_id="first")
                store.append_events(AGENT, loop_id, event)

    def start(self, step: str = "none") -> Processor:
        """Start a processor that stops at a step of ``tests.processor.paused``."""
        return self._started(("tests.processor.paused", str(self.config), self.store, step), "running")

    def start_command(self) -> Processor:
        """Start ``amlog processor run``."""
        arguments = ("processor", "run", "--config", str(self.config), "--store", self.store)
        return self._started(("agent_memory_log.cli", *arguments), f"takes messages of the stream {STREAM}")

    def _started(self, arguments: Sequence[str], greeting: str) -> Processor:
        output = self.folder / f"processor-{len(self.processors)}.log"
        processor = Processor(output, arguments, greeting)
        self.processors.append(processor)
        return processor

    def close(self) -> None:
        """Kill the processors that still run."""
        for processor in self.processors:
            if processor.process.poll() is None:
                processor.kill()

    async def send(self, kind: str, loop_id: str, **fields: object) -> int:
        """Send a message as another component does, and return its sequence. A server that is down is waited for."""
        if kind in ("pre_task", "post_compaction"):
            subject, message = f"memory.hydrate.request.{loop_id}", {"type": kind, "loop_id": loop_id}
        else:
            subject = f"agent.context.compaction.{loop_id}"
            message = {"type": kind, "loop_id": loop_id}
            fields = {"iteration": 1, **fields}
        return await self.send_bytes(subject, json.dumps({**message, **fields}).encode())

    async def send_bytes(self, subject: str, data: bytes) -> int:
        """Send any bytes. A server that is down is waited for."""
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(nats.errors.Error, TimeoutError):
                    self.sent = (await self.stream.publish(subject, data, timeout=1)).seq
                    return self.sent
                await asyncio.sleep(0.05)

    async def settled(self) -> None:
        """Wait until each message is acknowledged, and until nothing is left in the outboxes."""
        deadline = time.monotonic() + PATIENCE
        while not await self._is_settled():
            assert time.monotonic() < deadline, "".join(each.output.read_text()[-3000:] for each in self.processors)
            await asyncio.sleep(0.05)

    async def is_acknowledged(self, stream: str = STREAM, *consumers: str) -> bool:
        """Return whether each message is acknowledged by its consumer, by default by those of the inputs.

        A consumer counts a message as pending a little after the server has stored it.
        """
        try:
            infos = [await self.stream.consumer_info(stream, name, timeout=1) for name in consumers or CONSUMERS]
        except (nats.errors.Error, TimeoutError):
            return False
        reached = max(info.delivered.stream_seq for info in infos if info.delivered is not None)
        is_counted = bool(consumers) or reached >= self.sent
        return is_counted and not any(info.num_pending or info.num_ack_pending for info in infos)

    async def _is_settled(self) -> bool:
        if not await self.is_acknowledged():
            return False
        with open_sync_store(self.store) as store:
            return not any(ledger.unpublished or ledger.pending for ledger in ledgers(store).values())

    async def stored(self, *subjects: str) -> list[tuple[str, str, bytes]]:
        """Return the id, subject and data of each stored message of some subjects."""
        return [
            ((message.headers or {}).get("Nats-Msg-Id", ""), message.subject, message.data)
            for message in await self._stored(*subjects)
        ]

    async def notes(self, subject: str) -> list[str]:
        """Return the note of each stored message of a subject."""
        return [(message.headers or {}).get("Amlog-Note", "") for message in await self._stored(subject)]

    async def _stored(self, *subjects: str) -> list[Msg]:
        messages: list[Msg] = []
        for subject in subjects:
            config = ConsumerConfig(inactive_threshold=60.0)
            subscription = await self.stream.pull_subscribe(subject, stream=STREAM, config=config)
            while (await subscription.consumer_info()).num_pending:
                for message in await subscription.fetch(100, 5):
                    await message.ack()
                    messages.append(message)
            await subscription.unsubscribe()
        return messages

    async def check(
        self,
        sent: Iterable[tuple[int, str, str]],
        *,
        buried: int = 0,
        lost_pointers: bool = False,
        key: str = "language",
    ) -> None:
        """Check the end state.

        Args:
            sent: The sequence, the kind and the loop of each message for a mapped loop.
            buried: The number of dead letters.
            lost_pointers: Whether the bucket was deleted meanwhile.
            key: The key of the memory that each extraction from a loop finds.
        """
        received: dict[str, tuple[str, bytes]] = {}
        deadline = time.monotonic() + PATIENCE
        while True:  # the graph of a loop is published after its extraction is settled
            for message_id, subject, data in await self.stored(*OUTPUTS):
                assert message_id
                assert received.setdefault(message_id, (subject, data)) == (subject, data), "two messages have one id"
            with open_sync_store(self.store) as store:
                outgoing = dict(outbox(store))
            if received.keys() == outgoing.keys() or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.05)
        with open_sync_store(self.store) as store:
            assert received.keys() == outgoing.keys()
            for message_id, message in outgoing.items():
                subject, data = received[message_id]
                assert subject == message.subject
                if message.record:
                    (triple,) = json.loads(data)["triples"]
                    assert triple["context"] == message.record
                elif message.context is None:
                    assert data.decode() == message.message
                else:
                    place = message.context
                    (event,) = store.find_events(place.agent, place.run, [place.event_id])
                    assert event is not None
                    assert isinstance(event.data, InjectedContext)
                    assert json.loads(data)["context"] == event.data.text
            letters = store.load_run(LEDGERS, "dead-letters").log
            assert sum(isinstance(event.data, DeadLetter) for event in letters) == buried
            self._check_effects(store, list(sent), outgoing, key)
        for message in outgoing.values():
            if message.bucket and not lost_pointers:
                pointers = await self.stream.key_value(message.bucket)
                assert (await pointers.get(message.key)).value == message.value.encode()

    async def check_checkpoints(self) -> int:
        """Check that each published checkpoint has its pointer, and that each pointer can be restored.

        This holds at each moment, so what a processor stores first is read last. Returns the number of pointers.
        """
        published = [
            json.loads(data)["checkpoint_id"] for _, _, data in await self.stored("memory.checkpoint.created.>")
        ]
        pointers: dict[str, bytes | None] = {}
        with contextlib.suppress(nats.js.errors.BucketNotFoundError, nats.js.errors.NoKeysError):
            bucket = await self.stream.key_value(BUCKET)
            pointers = {key: (await bucket.get(key)).value for key in await bucket.keys()}  # pyright: ignore[reportUnknownMemberType]  # nats-py types it partly
        assert pointers.keys() >= set(published)
        with open_sync_store(self.store) as store:
            memory = SyncLoopMemory(store, SyncMemoryClient(store))
            loops = [
                Loop(AGENT, each.run, Principal("default", {"user": each.run})) for each in store.list_runs(AGENT).runs
            ]
            for key, pointer in pointers.items():
                (loop,) = (each for each in loops if store.find_events(AGENT, each.run, [key]) != (None,))
                memory.restore(LoopCheckpoint.from_pointer(loop, pointer or b""), provider="anthropic")
        return len(pointers)

    def _check_effects(
        self, store: SyncStore, sent: list[tuple[int, str, str]], outgoing: dict[str, OutgoingMessage], key: str
    ) -> None:
        handled: dict[int, tuple[str, str]] = {}
        for name in ledgers(store):
            latest = 0
            for event in store.load_run(LEDGERS, name).log:
                if isinstance(event.data, MessageHandled) and event.data.port == "compaction_events":
                    assert latest < event.data.sequence, "two messages of a loop changed their order"
                    latest = event.data.sequence
                if isinstance(event.data, MessageHandled) and event.data.port in (
                    "compaction_events",
                    "hydrate_requests",
                ):
                    assert event.data.sequence not in handled, "a message was handled twice"
                    handled[event.data.sequence] = event.data.kind, name.removeprefix("loop/")
                    results = [each for each in outgoing if each.startswith(f"{event.event_id}:")]
                    assert [outgoing[each].port for each in results] == RESULTS[event.data.kind], event
        assert handled == {sequence: (kind, loop_id) for sequence, kind, loop_id in sent}
        memory = SyncMemoryClient(store)
        for loop_id in {loop_id for _, kind, loop_id in sent if kind == "compaction_starting"}:
            me = memory.of(Principal("default", {"user": loop_id}))
            record = me.get(key=key)
            assert record is not None
            assert record.value == f"{loop_id}-python"
            assert len(me.history(key)) == 1


def ledgers(store: SyncStore) -> dict[str, Ledger]:
    """Return the ledgers of a log."""
    folded: dict[str, Ledger] = {}
    for info in store.list_runs(LEDGERS, limit=10_000).runs:
        if info.run != "dead-letters":
            folded[info.run] = Ledger(info.run)
            folded[info.run].fold(store.load_run(LEDGERS, info.run).log)
    return folded


def outbox(store: SyncStore) -> Iterable[tuple[str, OutgoingMessage]]:
    """Yield each message of the outboxes with its id."""
    for name in ledgers(store):
        for event in store.load_run(LEDGERS, name).log:
            if isinstance(event.data, OutgoingMessage):
                yield event.event_id, event.data


def counts(messages: Iterable[tuple[str, str, bytes]]) -> Counter[str]:
    """Return the number of messages of each subject, each id once."""
    return Counter({message_id: subject for message_id, subject, _ in messages}.values())


@asynccontextmanager
async def deployed(
    folder: Path, *loop_ids: str, server: NatsServer | None = None, **settings: object
) -> AsyncGenerator[Deployment]:
    """Start a server with a stream and a log, and end all processes afterwards."""
    with contextlib.ExitStack() as resources:
        running = server or resources.enter_context(NatsServer(folder / "nats"))
        deployment = Deployment(folder, running, **settings)
        await deployment.connect()
        try:
            deployment.fill(*loop_ids)
            yield deployment
        finally:
            deployment.close()
            await deployment.client.close()


async def _ignore(_error: Exception) -> None:
    """Ignore errors of the connection, which the tests cause."""
