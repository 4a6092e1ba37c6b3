"""Changes of the knowledge graph: the outbox of a principal, with the records that the graph holds.

A principal has one outbox for all of its loops. So a forgotten record is deleted from the graph, also if its loop has
ended, and its words in the outbox are redacted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

from agent_memory_log.events.event import Event, new_event
from agent_memory_log.processor import Loop, LoopMemory, Triple
from agent_memory_log.processor.transport.ledger import GraphChanged, Ledger, Ledgers, OutgoingMessage
from agent_memory_log.processor.transport.messages import GraphMutationMessage, Operation, write_message
from agent_memory_log.processor.transport.publishing import Publisher

PORT = "graph_mutations"
GRAPH = "graph/"
_MOST_RECORDS = 200
"""The most records of one append. The next append has the others."""

_MOST_APPENDS = 500


def ledger_name(loop: Loop) -> str:
    """Return the name of the ledger of a loop's principal. It does not reveal the principal."""
    principal = loop.principal
    text = repr((principal.tenant, sorted(principal.scopes.items())))
    return GRAPH + hashlib.sha256(text.encode()).hexdigest()[:32]


class Graph:
    """Publishes the triples that a knowledge graph must add and delete.

    Args:
        loops: The memory of loops.
        ledgers: The ledgers.
        publisher: Publishes the outbox.
        subject: The subject, with ``{loop_id}``.
    """

    def __init__(self, loops: LoopMemory, ledgers: Ledgers, publisher: Publisher, subject: str) -> None:
        self._loops = loops
        self._ledgers = ledgers
        self._publisher = publisher
        self._subject = subject

    async def publish_changes(self, loop_id: str, loop: Loop) -> None:
        """Append and publish the changes since the last call for the same principal. Raises the errors of the store."""
        async with self._ledgers.locked(ledger_name(loop)) as ledger:
            for _ in range(_MOST_APPENDS):
                if not await self._append_changes(loop_id, loop, ledger):
                    break
            await self._publisher.publish(ledger)

    async def _append_changes(self, loop_id: str, loop: Loop, ledger: Ledger) -> bool:
        """Append some of the changes. Returns whether there may be more."""
        changes = await self._loops.graph_changes(loop, ledger.graph)
        deleted = {triple.context: triple for triple in changes.delete}
        added: dict[str, list[Triple]] = {}
        for triple in changes.add:
            added.setdefault(triple.context, []).append(triple)
        chosen = list(dict.fromkeys([*deleted, *added]))[:_MOST_RECORDS]
        if not chosen:
            return False
        # A record's change has the same ids in every processor, so it is appended once.
        events: list[Event] = []
        for record in chosen:
            at = changes.records.get(record)
            name = f"{ledger.name}:{record}:{'' if at is None else int(at.timestamp() * 1e6)}"
            if record in deleted:
                events.append(self._event(loop_id, "delete_triples", [deleted[record]], f"{name}:delete"))
            if record in added:
                events.append(self._event(loop_id, "add_triples", added[record], f"{name}:add"))
        removed = tuple(record for record in chosen if record in deleted)
        records = {record: changes.records[record] for record in chosen if record in changes.records}
        events.append(new_event(GraphChanged(records, removed)))
        old_words = [seq for record in removed for seq in ledger.words.get(record, ())]
        await self._ledgers.append(ledger, *events)
        await self._ledgers.redact(ledger, old_words)
        return True

    def _event(self, loop_id: str, operation: Operation, triples: Sequence[Triple], name: str) -> Event:
        now = datetime.now(UTC)
        message = GraphMutationMessage(operation, loop_id, tuple(triples), int(now.timestamp()))
        outgoing = OutgoingMessage(
            PORT,
            loop_id,
            self._subject.replace("{loop_id}", loop_id),
            write_message(message).decode(),
            record=triples[0].context if operation == "add_triples" else "",
        )
        return new_event(outgoing, timestamp=now, event_id=name)
