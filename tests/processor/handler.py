"""The parts of a processor over a store, with the messages that it publishes in a list instead of NATS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agent_memory_log import Store
from agent_memory_log.memory import Memory, MemoryClient, Principal
from agent_memory_log.memory.records.protocols import Clock, utc_now
from agent_memory_log.processor import LoopMemory
from agent_memory_log.processor.transport import ProcessorSettings
from agent_memory_log.processor.transport.chores import Chores
from agent_memory_log.processor.transport.graph import Graph
from agent_memory_log.processor.transport.handling import Handler
from agent_memory_log.processor.transport.ledger import Ledgers
from agent_memory_log.processor.transport.metrics import Metrics
from agent_memory_log.processor.transport.publishing import Publisher, PublishFailed
from tests.processor.extracting import WordExtractor


class Wire:
    """Keeps the published messages."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict[str, Any]]] = []
        self.ids: list[str] = []
        self.is_down = False

    async def publish(self, subject: str, data: bytes, *, message_id: str, note: str) -> None:
        del note
        if self.is_down:
            raise PublishFailed(subject)
        self.ids.append(message_id)
        self.messages.append((subject, json.loads(data)))

    async def put(self, bucket: str, key: str, value: bytes) -> None:
        """Store nothing."""


class Parts:
    """A new processor. It shares with others only the store."""

    def __init__(
        self,
        store: Store,
        clock: Clock = utc_now,
        *,
        deployment: str = "AGENT",
        broken: Path | None = None,
        **settings: object,
    ) -> None:
        configured = ProcessorSettings.from_json(json.dumps(settings))
        extractor, metrics = WordExtractor(broken), Metrics()
        self.client = MemoryClient(store, extractor=extractor, clock=clock)
        self.loops = LoopMemory(store, self.client)
        self.ledgers = Ledgers(store, deployment)
        self.wire = Wire()
        self.publisher = Publisher(store, self.client, self.ledgers, self.wire, metrics)
        self.graph = Graph(self.loops, self.ledgers, self.publisher, configured)
        self.handler = Handler(configured, self.loops, self.client, self.ledgers, self.publisher, self.graph, metrics)
        self.chores = Chores(configured, store, self.handler, self.graph, self.ledgers, self.publisher, metrics)

    def memory(self, **scopes: str) -> Memory:
        """Return the memory of a principal of the default tenant."""
        return self.client.of(Principal("default", scopes))
