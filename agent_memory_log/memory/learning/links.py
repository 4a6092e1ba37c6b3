"""Links runs to a subject, so that the messages of these runs can be searched."""

from __future__ import annotations

from collections.abc import Sequence

from agent_memory_log.backend_kit.checks import check_runs
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import in_quotes
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.learning.deciding import Decisions
from agent_memory_log.memory.learning.writing import decided
from agent_memory_log.memory.operations import LinkRun, LinkRuns
from agent_memory_log.memory.records.record import RunId
from agent_memory_log.memory.records.reports.outcomes import LinkReport
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.payloads import MemoryDerived
from agent_memory_log.steps import Steps, peek

_AT_ONCE = 2_000
"""The most links in one append. Even with the longest ids, they fit into an append of every store."""


def link_run(context: Context, call: LinkRun) -> Steps[LinkReport]:
    """Link a run to a scope."""
    return (yield from link_runs(context, LinkRuns(((call.agent, call.run),), call.scope)))


def link_runs(context: Context, call: LinkRuns) -> Steps[LinkReport]:
    """Link runs to a scope, except those that are linked already. Raises ``InvalidArgument`` for reserved agents."""
    run_ids = list(dict.fromkeys(check_runs(call.runs)))
    for agent, _ in run_ids:
        if is_reserved(agent):
            raise InvalidArgument(f"runs of the reserved agent {in_quotes(agent)} cannot be linked")
    scope = context.readable_scope(call.scope)
    without_events = yield from _without_events(run_ids)
    linked: list[RunId] = []
    for begin in range(0, len(run_ids), _AT_ONCE):
        linked += yield from link(context, scope, run_ids[begin : begin + _AT_ONCE])
    return LinkReport(tuple(linked), without_events)


def link(context: Context, scope: str, runs: Sequence[RunId]) -> Steps[list[RunId]]:
    """Link runs to a scope in one append. Returns the runs that were not linked before."""

    def decide(decisions: Decisions) -> list[RunId]:
        new = [run_id for run_id in runs if run_id not in decisions.state.linked]
        for agent, run in new:
            decisions.add(MemoryDerived(agent, run, 0))
        return new

    return (yield from decided(context, scope, decide))


def _without_events(run_ids: Sequence[RunId]) -> Steps[tuple[RunId, ...]]:
    """Return the runs without events."""
    heads = yield from peek(run_ids)
    return tuple(
        run_id for run_id, head in zip(run_ids, heads, strict=True) if head is None or head.first_seq > head.version
    )
