"""Defects of reserved names: stores that let an application write or redact memory's own events."""

from __future__ import annotations

from collections.abc import Iterable

from agent_memory_log import AppendResult, new_event
from agent_memory_log.backend_kit import is_reserved
from agent_memory_log.errors import InvalidEvent
from agent_memory_log.events.payloads import Redaction
from tests.conformance.broken_stores.base import Append, BrokenStore, caught_by


@caught_by("test_18_append_refuses_reserved_agents_by_default")
class AcceptsReservedAgents(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.reserved = append.reserved or is_reserved(append.agent)
        return await super().appending(append)


@caught_by("test_18_append_refuses_reserved_types_by_default")
class AcceptsReservedTypes(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        append.reserved = append.reserved or not is_reserved(append.agent)
        return await super().appending(append)


@caught_by("test_18_redact_refuses_memory_tombstones")
class IgnoresRefusedRedactions(BrokenStore):
    """A store that raises no error for a refused redaction."""

    async def redact_events(self, agent: str, run: str, seqs: Iterable[int], *, reason: str = "") -> AppendResult:
        requested = tuple(seqs)
        try:
            return await super().redact_events(agent, run, requested, reason=reason)
        except InvalidEvent:
            marker = new_event(Redaction(seqs=(), reason=str(reason)))
            return await self.appending(Append(agent, run, (marker,), reserved=True))


@caught_by("test_3_append_refuses_a_first_seq_above_the_limit")
class AcceptsAnyFirstSeq(BrokenStore):
    async def appending(self, append: Append) -> AppendResult:
        if type(append.first_seq) is int:
            append.first_seq = min(append.first_seq, 2**31)
        return await super().appending(append)
