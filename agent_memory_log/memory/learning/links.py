"""Links: which runs belong to a subject, so that what was said in them can be found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from agent_memory_log.backend_kit.checks import check_runs
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import describe
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.learning.deciding import Decisions
from agent_memory_log.memory.learning.writing import decided
from agent_memory_log.memory.operations import LinkRun, LinkRuns
from agent_memory_log.memory.records.record import RunId
from agent_memory_log.memory.records.reports import LinkReport
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.payloads import MemoryDerived
from agent_memory_log.memory.stream.state import State
from agent_memory_log.steps import Steps, peek

_AT_ONCE = 2_000
"""Links in one append: with ids as long as they may be, they fit into what every store takes."""


def link_run(context: Context, call: LinkRun) -> Steps[LinkReport]:
    """Note that a run belongs to a scope."""
    return (yield from link_runs(context, LinkRuns(((call.agent, call.run),), call.scope)))


def link_runs(context: Context, call: LinkRuns) -> Steps[LinkReport]:
    """Note that runs belong to a scope, each once."""
    places = list(dict.fromkeys(check_runs(call.runs)))
    for agent, _ in places:
        if is_reserved(agent):
            raise InvalidArgument(f"the library's own runs, as those of {describe(agent)}, are not linked")
    name = context.readable_scope(call.scope)
    without_events = yield from _without_events(places)
    linked: list[RunId] = []
    for begin in range(0, len(places), _AT_ONCE):
        linked += yield from link(context, name, places[begin : begin + _AT_ONCE])
    return LinkReport(tuple(linked), without_events)


def link(context: Context, scope: str, runs: Sequence[RunId]) -> Steps[list[RunId]]:
    """Note in one append that runs belong to a scope; those that were not linked."""
    linking = yield from decided(context, scope, lambda state, now: _Linking(state, scope, now, runs))
    return linking.linked


class _Linking(Decisions):
    """Links to the runs that have none."""

    def __init__(self, state: State, scope: str, now: datetime, runs: Sequence[RunId]) -> None:
        super().__init__(state, scope, now, None)
        self.linked = [place for place in runs if place not in state.linked]
        for agent, run in self.linked:
            self.add(MemoryDerived(agent, run, 0))


def _without_events(places: Sequence[RunId]) -> Steps[tuple[RunId, ...]]:
    """The runs that hold no events."""
    heads = yield from peek(places)
    return tuple(
        place for place, head in zip(places, heads, strict=True) if head is None or head.first_seq > head.version
    )
