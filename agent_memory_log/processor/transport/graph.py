"""Changes of the knowledge graph: the outbox of an owner of memory, with the records that the graph holds.

An owner is one id in one scope. It has one outbox for all loops that use its memory, so each change is published once,
and a forgotten record is deleted from the graph also if its loop has ended. The outbox names records and does not hold
their words.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import NamedTuple

from agent_memory_log.errors import AgentMemoryLogError
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.memory import Principal
from agent_memory_log.processor import Loop, LoopMemory, Triple
from agent_memory_log.processor.transport.configuration import ProcessorSettings
from agent_memory_log.processor.transport.ledger import LOOP, GraphChanged, Ledger, Ledgers, OutgoingMessage, is_outage
from agent_memory_log.processor.transport.messages import GraphMutationMessage, write_message
from agent_memory_log.processor.transport.publishing import Publisher

PORT = "graph_mutations"
GRAPH = "graph/"
_MOST_RECORDS = 200
"""The most records of one append. The next append has the others."""


class Owner(NamedTuple):
    """An owner of memory in the graph.

    Attributes:
        loop_id: The latest loop that used the memory.
        principal: The owner, which has one scope.
        is_mapped: Whether the configuration maps this loop to the memory. If not, the graph only loses records.
    """

    loop_id: str
    principal: Principal
    is_mapped: bool = True


def owners_of(principal: Principal) -> list[Principal]:
    """Return the owners of the memory that a principal reaches: a principal for each scope."""
    return [Principal(principal.tenant, {scope: owner}) for scope, owner in sorted(principal.scopes.items())]


def ledger_name(principal: Principal) -> str:
    """Return the name of the ledger of an owner."""
    text = repr((principal.tenant, sorted(principal.scopes.items())))
    return GRAPH + hashlib.sha256(text.encode()).hexdigest()[:32]


class Graph:
    """Publishes the triples that a knowledge graph must add and delete.

    Args:
        loops: The memory of loops.
        ledgers: The ledgers.
        publisher: Publishes the outbox.
        settings: The settings.

    Attributes:
        owners: The owners of the memory in the graph, by the names of their ledgers.
    """

    def __init__(self, loops: LoopMemory, ledgers: Ledgers, publisher: Publisher, settings: ProcessorSettings) -> None:
        self._loops = loops
        self._ledgers = ledgers
        self._publisher = publisher
        self._settings = settings
        self.owners: dict[str, Owner] = {}

    async def find_owners(self) -> None:
        """Find the owners of the graphs that other processors keep. Raises the errors of the store."""
        async for ledger in self._ledgers.states(GRAPH):
            if ledger.name not in self.owners and (change := ledger.graph_change) is not None:
                owner = Owner(change.loop_id, change.principal, await self._maps(change))
                self.owners.setdefault(ledger.name, owner)

    async def _maps(self, change: GraphChanged) -> bool:
        """Return whether the configuration maps the loop of a change to its owner. Raises if the store is down."""
        try:
            async with self._ledgers.locked(LOOP + change.loop_id) as ledger:
                loop = self._settings.route(change.loop_id, ledger.user_id)
        except AgentMemoryLogError as error:
            if is_outage(error):
                raise
            return False  # the user of a damaged ledger is unknown
        return loop is not None and change.principal in owners_of(loop.principal)

    async def publish_changes(self, loop_id: str, principal: Principal, *, adds: bool = True) -> None:
        """Append and publish the changes of the memory that a principal reaches, or only the deletions.

        Raises the errors of the store.
        """
        for owner in owners_of(principal):
            name = ledger_name(owner)
            async with self._ledgers.locked(name) as ledger:
                while not await self._append_changes(loop_id, owner, ledger, adds=adds):
                    pass
                if ledger.graph_change is not None:
                    self.owners[name] = Owner(loop_id, owner, adds)
                await self._publisher.publish(ledger)

    async def _append_changes(self, loop_id: str, principal: Principal, ledger: Ledger, *, adds: bool) -> bool:
        """Append the changes. Returns False if another processor appended some of them: the ledger is newer then."""
        changes = await self._loops.graph_changes(Loop("", "", principal), ledger.graph)
        deleted = {triple.context: triple for triple in changes.delete}
        added = {triple.context for triple in changes.add} if adds else set[str]()
        changed = list(dict.fromkeys([*deleted, *added]))
        for first in range(0, len(changed), _MOST_RECORDS):
            part = changed[first : first + _MOST_RECORDS]
            events: list[Event] = []
            for record in part:
                # Two processors with the same ledger append a change once, and no later change has its ids.
                name = f"{self._ledgers.deployment}:{ledger.name}:{ledger.version}:{record}"
                if record in deleted:
                    events.append(self._deletion(loop_id, deleted[record], f"{name}:delete"))
                if record in added:
                    subject, updated = self._subject_of(loop_id), changes.records[record]
                    outgoing = OutgoingMessage(PORT, loop_id, subject, record=record, updated=updated)
                    events.append(new_event(outgoing, event_id=f"{name}:add"))
            records = {record: changes.records[record] for record in part if record in added}
            removed = tuple(record for record in part if record in deleted)
            events.append(new_event(GraphChanged(loop_id, principal, records, removed)))
            if not await self._ledgers.append(ledger, *events):
                return False
        return True

    def _deletion(self, loop_id: str, triple: Triple, event_id: str) -> Event:
        now = datetime.now(UTC)
        message = GraphMutationMessage("delete_triples", loop_id, (triple,), int(now.timestamp()))
        outgoing = OutgoingMessage(PORT, loop_id, self._subject_of(loop_id), write_message(message).decode())
        return new_event(outgoing, timestamp=now, event_id=event_id)

    def _subject_of(self, loop_id: str) -> str:
        return self._settings.ports.graph_mutations.replace("{loop_id}", loop_id)
