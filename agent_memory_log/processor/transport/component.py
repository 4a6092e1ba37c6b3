"""The processor as a component with a life: it is made, initialised, started and stopped, and says how it is.

component = Component(settings, store)
await component.initialise()
await component.start()
...
await component.stop(timeout=20)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from agent_memory_log.errors import AgentMemoryLogError, InvalidArgument
from agent_memory_log.memory import Extractor, MemoryClient
from agent_memory_log.processor import LoopMemory
from agent_memory_log.processor.transport.chores import Chores
from agent_memory_log.processor.transport.configuration import ProcessorSettings
from agent_memory_log.processor.transport.consuming import PortConsumer, PortSource
from agent_memory_log.processor.transport.graph import PORT as GRAPH_MUTATIONS
from agent_memory_log.processor.transport.graph import Graph
from agent_memory_log.processor.transport.handling import COMPACTION_EVENTS, ENTITY_STATES, HYDRATE_REQUESTS, Handler
from agent_memory_log.processor.transport.ledger import Ledgers
from agent_memory_log.processor.transport.metrics import DataFlow, Metrics
from agent_memory_log.processor.transport.publishing import Publisher
from agent_memory_log.processor.transport.wire import WIRE_ERRORS, NatsWire
from agent_memory_log.store import Store

_LOG = logging.getLogger("agent_memory_log.processor")

NAME = "agentic-memory"
_SECONDS_A_DAY = 86_400


class Metadata(msgspec.Struct, frozen=True):
    """The description of a component.

    Attributes:
        name: Its name in a registry.
        type: Its role.
        description: What it does.
    """

    name: str = NAME
    type: str = "processor"
    description: str = "Gives agent loops context from their runs and memory, and extracts facts before they are lost."


class PortInfo(msgspec.Struct, frozen=True):
    """A port of a component.

    Attributes:
        name: The name of the port.
        direction: Whether messages come in or go out.
        place: Its subject or bucket.
        kind: What serves it.
    """

    name: str
    direction: Literal["in", "out"]
    place: str
    kind: Literal["jetstream", "kv"] = "jetstream"


class Health(msgspec.Struct, frozen=True):
    """How a component is.

    Attributes:
        healthy: Whether it runs, is connected, and has all of its streams.
        status: Its stage.
        problems: What is wrong, by port.
        unpublished: The messages in its outboxes that NATS did not take yet.
    """

    healthy: bool
    status: str
    problems: Mapping[str, str]
    unpublished: int


class Registry(Protocol):
    """A registry of components."""

    def register(
        self,
        name: str,
        make: Callable[[Mapping[str, object], Store, Extractor], Component],
        *,
        schema: Mapping[str, Any],
        metadata: Metadata,
    ) -> object:
        """Add a component. ``make`` creates it from its configuration, the log and an extractor."""
        ...


def register(registry: Registry) -> None:
    """Add the processor to a registry."""
    registry.register(NAME, _make, schema=ProcessorSettings.json_schema(), metadata=Metadata())


def _make(configuration: Mapping[str, object], store: Store, extractor: Extractor) -> Component:
    return Component(ProcessorSettings.from_json(msgspec.json.encode(configuration)), store, extractor=extractor)


class Component:
    """A processor. Any number of them, in any number of processes, may share a store and its work.

    Args:
        settings: The settings.
        store: The log. The caller closes it after ``stop``.
        extractor: Extracts facts. ``extractor_of`` opens that of the settings.
    """

    def __init__(self, settings: ProcessorSettings, store: Store, *, extractor: Extractor) -> None:
        self.metrics = Metrics()
        self._settings = settings
        self._store = store
        self._extractor = extractor
        self._status = "made"
        self._tasks: list[asyncio.Task[None]] = []
        self._consuming: list[asyncio.Task[None]] = []
        self._connected = asyncio.Event()
        self._consumers: tuple[PortConsumer, ...] = ()

    async def initialise(self) -> None:
        """Prepare the memory of loops, without NATS.

        Raises ``InvalidArgument`` if the file of credentials cannot be read, and the errors of the store.
        """
        self._in_stage("made", "initialise")
        settings = self._settings
        credentials = None if settings.credentials_file is None else Path(settings.credentials_file)
        if credentials is not None:
            _check_readable(credentials)
        await self._store.list_runs(limit=1)
        memory = MemoryClient(self._store, extractor=self._extractor)
        loops = LoopMemory(self._store, memory, context_window=settings.context_window)
        self._wire = NatsWire(
            settings.servers,
            credentials,
            ack_seconds=settings.ack_seconds,
            bucket_seconds=settings.checkpoint.retention_days * _SECONDS_A_DAY,
            metrics=self.metrics,
        )
        deployment = settings.stream_name + settings.consumer_name_suffix
        self._ledgers = Ledgers(self._store, deployment)
        self._publisher = Publisher(self._store, memory, self._ledgers, self._wire, self.metrics)
        graph = Graph(loops, self._ledgers, self._publisher, settings)
        self._handler = Handler(settings, loops, memory, self._ledgers, self._publisher, graph, self.metrics)
        self._chores = Chores(settings, self._store, self._handler, graph, self._ledgers, self._publisher, self.metrics)
        self._consumers = tuple(
            PortConsumer(
                source,
                self._wire,
                self._handler,
                self.metrics,
                concurrency=settings.concurrency,
                ack_seconds=settings.ack_seconds,
            )
            for source in _sources(settings, deployment)
        )
        self._status = "initialised"

    async def start(self) -> None:
        """Start to work, and return at once. The component connects as soon as a server accepts connections."""
        self._in_stage("initialised", "start")
        self._status = "running"
        self._consuming = [asyncio.create_task(self._consume(consumer)) for consumer in self._consumers]
        self._tasks = [*self._consuming, asyncio.create_task(self._connect()), asyncio.create_task(self._chores.run())]

    async def stop(self, timeout: float | None = None) -> bool:
        """Pull no more, finish the messages that were pulled, publish the rest, and close the connection.

        Args:
            timeout: The longest time in seconds. Default: ``stop_seconds`` of the settings.

        Returns:
            Whether everything was finished in time. The rest is done at the next start, or by another processor.
        """
        self._in_stage("running", "stop")
        self._status = "stopping"
        is_finished = True
        for consumer in self._consumers:
            consumer.stop()
        try:
            async with asyncio.timeout(self._settings.stop_seconds if timeout is None else timeout):
                await self._finish()
        except (*WIRE_ERRORS, AgentMemoryLogError) as error:
            _LOG.warning("the stop left something for the next start: %r", error)
            is_finished = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._wire.close()
        self._status = "stopped"
        return is_finished

    @property
    def metadata(self) -> Metadata:
        """The description of the component."""
        return Metadata()

    @property
    def ports(self) -> tuple[PortInfo, ...]:
        """The ports, inputs first."""
        ports = self._settings.ports
        return (
            PortInfo(COMPACTION_EVENTS, "in", ports.compaction_events),
            PortInfo(HYDRATE_REQUESTS, "in", ports.hydrate_requests),
            PortInfo(ENTITY_STATES, "in", ports.entity_states, "kv"),
            PortInfo("injected_context", "out", ports.injected_context),
            PortInfo(GRAPH_MUTATIONS, "out", ports.graph_mutations),
            PortInfo("checkpoint_events", "out", ports.checkpoint_events),
        )

    @property
    def config_schema(self) -> Mapping[str, Any]:
        """The JSON schema of the configuration."""
        return ProcessorSettings.json_schema()

    def health(self) -> Health:
        """Return how the component is."""
        problems = {consumer.source.port: consumer.problem for consumer in self._consumers if consumer.problem}
        is_running = self._status == "running"
        if is_running and not self._wire.is_connected:
            problems["connection"] = f"no NATS server can be reached: {self._wire.problem}"
        unpublished = self._ledgers.unpublished() if self._consumers else 0
        # A deployment need not have a bucket of entities.
        is_healthy = is_running and not problems.keys() - {ENTITY_STATES}
        return Health(is_healthy, self._status, problems, unpublished)

    def data_flow(self) -> DataFlow:
        """Return the flow of messages since the component was made."""
        return self.metrics.data_flow()

    async def end_loop(self, loop_id: str) -> None:
        """End a loop now: extract the rest of its run, and take its last checkpoint. Raises the errors of the store.

        Any processor may end a loop, also one that got none of its messages.

        Without this call, a loop ends when its run and its messages stand still for an hour.
        """
        self._in_stage("running", "end_loop")
        await self._chores.end(loop_id)

    async def _connect(self) -> None:
        await self._wire.connect()
        self._connected.set()

    async def _consume(self, consumer: PortConsumer) -> None:
        await self._connected.wait()
        await consumer.run()

    async def _finish(self) -> None:
        if self._connected.is_set():
            await asyncio.gather(*self._consuming)
            await self._publisher.retry()
            await self._wire.flush()

    def _in_stage(self, stage: str, call: str) -> None:
        if self._status != stage:
            raise InvalidArgument(f"{call} needs a component that is {stage}: this one is {self._status}")


def _check_readable(file: Path) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise InvalidArgument(f"credentials_file {file}: {error.strerror}") from error


def _sources(settings: ProcessorSettings, deployment: str) -> tuple[PortSource, ...]:
    stream, suffix, ports = settings.stream_name, settings.consumer_name_suffix, settings.ports
    states = f"KV_{ports.entity_states}"
    return (
        PortSource(
            COMPACTION_EVENTS,
            stream,
            f"memory-compaction{suffix}",
            ports.compaction_events,
            deployment,
            in_order=ports.compaction_events.endswith(("*", ">")),  # otherwise all loops share a subject
        ),
        PortSource(HYDRATE_REQUESTS, stream, f"memory-hydrate{suffix}", ports.hydrate_requests, deployment),
        PortSource(
            ENTITY_STATES,
            states,
            f"memory-entities{suffix}",
            f"$KV.{ports.entity_states}.>",
            states + suffix,
            newest_only=True,
        ),
    )
