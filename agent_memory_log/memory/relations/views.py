"""The part of the graph that a call may reach: records of the readable scopes that hold now, or that held at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from agent_memory_log.memory.records.record import Record
from agent_memory_log.memory.records.reports.graphs import ENTITY, Edge, Node
from agent_memory_log.memory.relations.adjacency import Adjacency, adjacency_of
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.history import Closed, Ledger, record_of
from agent_memory_log.memory.stream.state import Live
from agent_memory_log.memory.stream.subjects import Subject
from agent_memory_log.steps import Steps


class _Scope(Protocol):
    """The part of the graph in one scope."""

    def edges(self, node: str | None) -> list[Edge]:
        """Return the edges of a node, or all edges, that records which hold have."""
        ...

    def record(self, record: str) -> Record | None:
        """Return a record that holds, or None."""
        ...

    def records(self) -> list[Record]:
        """Return all records that hold."""
        ...

    def names(self, entity: str) -> list[str]:
        """Return the forms of an entity's name."""
        ...


class _Present:
    """The active records of a subject, in its cached state."""

    def __init__(self, subject: Subject, now: datetime) -> None:
        self._subject = subject
        self._name = subject.id.scope
        self._now = now

    def edges(self, node: str | None) -> list[Edge]:
        return self._subject.ask(
            lambda state: [
                edge for edge in _edges(adjacency_of(state), node) if state.active(edge.record, self._now) is not None
            ]
        )

    def record(self, record: str) -> Record | None:
        live = self._subject.ask(lambda state: state.active(record, self._now))
        return None if live is None else live.record_as(self._name, "active")

    def records(self) -> list[Record]:
        return self._subject.ask(
            lambda state: [
                live.record_as(self._name, "active")
                for live in state.records.values()
                if not live.is_expired(self._now)
            ]
        )

    def names(self, entity: str) -> list[str]:
        return self._subject.ask(
            lambda state: [
                name
                for edge, name in adjacency_of(state).edges(entity).items()
                if state.active(edge.record, self._now) is not None
            ]
        )


class _Past:
    """Records of any status, from the history of a scope."""

    def __init__(self, records: Mapping[str, Record], adjacency: Adjacency) -> None:
        self._records = records
        self._adjacency = adjacency

    def edges(self, node: str | None) -> list[Edge]:
        return list(_edges(self._adjacency, node))

    def record(self, record: str) -> Record | None:
        return self._records.get(record)

    def records(self) -> list[Record]:
        return list(self._records.values())

    def names(self, entity: str) -> list[str]:
        return list(self._adjacency.edges(entity).values())


def _edges(adjacency: Adjacency, node: str | None) -> Iterable[Edge]:
    return adjacency.all_edges() if node is None else adjacency.edges(node)


class View:
    """The graph of several scopes. It has no edge to a record that is erased, or that the principal may not read."""

    def __init__(self, scopes: Sequence[_Scope]) -> None:
        """Join the parts of the graph."""
        self._scopes = scopes

    def edges(self, node: str | None = None) -> Iterator[Edge]:
        """Yield the edges of a node in both directions, or by default all edges."""
        for scope in self._scopes:
            yield from (edge for edge in scope.edges(node) if self._has(edge.source) and self._has(edge.target))

    def record(self, record: str) -> Record | None:
        """Return a record of the graph, or None."""
        records = (scope.record(record) for scope in self._scopes)
        return next((each for each in records if each is not None), None)

    def records(self) -> Iterator[Record]:
        """Yield all records of the graph."""
        for scope in self._scopes:
            yield from scope.records()

    def node(self, node: str, distance: int = 0) -> Node:
        """Return a node with its name."""
        if node.startswith(ENTITY):
            names = [name for scope in self._scopes for name in scope.names(node)]
            return Node(node, max(names, key=lambda name: (len(name), name), default=""), distance)
        record = self.record(node)
        return Node(node, "" if record is None else record.text, distance, record)

    def _has(self, node: str) -> bool:
        return node.startswith(ENTITY) or self.record(node) is not None


def present(context: Context, scopes: Iterable[str] | None) -> Steps[View]:
    """Return the graph of the active records."""
    parts: list[_Scope] = []
    for scope in context.readable(scopes):
        subject = context.subject(scope)
        yield from subject.refresh()
        parts.append(_Present(subject, context.hooks.now()))
    return View(parts)


def past(
    context: Context, scopes: Iterable[str] | None, valid_at: datetime | None, as_of: datetime | None, *, closed: bool
) -> Steps[View]:
    """Return the graph of the records that held at a time, as memory had it at a time.

    Args:
        context: The client's context.
        scopes: The scopes, or None for all.
        valid_at: The time at which the records held. None: the records that were active at ``as_of``.
        as_of: The time whose memory is read. None: now.
        closed: Whether, without ``valid_at``, closed records belong to the graph too.
    """
    parts: list[_Scope] = []
    for scope in context.readable(scopes):
        ledger = yield from context.subject(scope).ledger(as_of)
        now = as_of or context.hooks.now()
        lives = [
            (live, end)
            for live, end in ledger.lives()
            if (closed and valid_at is None) or _holds(ledger, live, end, valid_at, now)
        ]
        records = {live.id: record_of(live, end, scope, now) for live, end in lives}
        parts.append(_Past(records, Adjacency((live.id, live.memory) for live, _ in lives)))
    return View(parts)


def _holds(ledger: Ledger, live: Live, closed: Closed | None, valid_at: datetime | None, now: datetime) -> bool:
    """Return whether a record holds at ``valid_at``, or is active if ``valid_at`` is None.

    A record holds from ``valid_from``, or from its creation, until ``valid_until``. One that was superseded holds until
    its successor does. One that was archived does not hold.
    """
    if valid_at is None:
        return closed is None and not live.is_expired(now)
    if valid_at < (live.memory.valid_from or live.created) or live.is_expired(valid_at):
        return False
    if closed is None:
        return True
    successor = ledger.find(closed.by)
    end = closed.at if successor is None else successor.memory.valid_from or successor.created
    return closed.status != "archived" and valid_at < end
