"""Links: which runs belong to a subject, so that what was said in them can be found."""

from __future__ import annotations

from datetime import datetime

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.fields import describe
from agent_memory_log.memory.context import Context
from agent_memory_log.memory.deciding import Draft
from agent_memory_log.memory.payloads import MemoryDerived
from agent_memory_log.memory.state import State
from agent_memory_log.memory.steps import Load, Steps, load
from agent_memory_log.memory.writing import decided
from agent_memory_log.reserved import is_reserved


def link_run(context: Context, agent: str, run: str, *, scope: str | None) -> Steps[None]:
    """Note that a run belongs to a scope, once."""
    if isinstance(agent, str) and is_reserved(agent):
        raise InvalidArgument(f"the library's own runs, as those of {describe(agent)}, are not linked")
    name = context.one(scope)
    yield from load(Load(agent, run, limit=1))  # what can be no run is refused by the store, and not noted

    def decide(state: State, now: datetime) -> Draft:
        draft = Draft(state, name, now, context.hooks.max_keyed)
        if (agent, run) not in state.linked:
            draft.add(MemoryDerived(agent, run, 0))
        return draft

    yield from decided(context, name, decide)
