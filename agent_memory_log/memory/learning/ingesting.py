"""Stores the turns of a conversation as a run of the principal, and derives memories from it."""

from __future__ import annotations

from agent_memory_log.backend_kit.checks import MAX_ID_LENGTH
from agent_memory_log.errors import EventConflict, InvalidArgument
from agent_memory_log.events.event import Event, new_event
from agent_memory_log.events.fields import describe
from agent_memory_log.events.payloads import AssistantMessage, UserMessage
from agent_memory_log.memory.learning.deriving import derive, require_extractor
from agent_memory_log.memory.operations import Derive, Ingest
from agent_memory_log.memory.records.arguments import check_arguments
from agent_memory_log.memory.records.principals import conversations_of
from agent_memory_log.memory.records.reports.outcomes import DeriveReport
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.steps import Steps, append
from agent_memory_log.transfer.importing import derived_event_id

_PAYLOADS = {"user": UserMessage, "assistant": AssistantMessage}


def ingest(context: Context, call: Ingest) -> Steps[DeriveReport]:
    """Append the turns that are not stored yet, then derive from the run."""
    require_extractor(context, None)
    if not 0 < len(call.source_id) <= MAX_ID_LENGTH:
        raise InvalidArgument(
            f"source_id must be non-empty text of at most {MAX_ID_LENGTH} characters, got {describe(call.source_id)}"
        )
    agent = conversations_of(context.principal.subject(context.principal.home))
    now = context.hooks.now()
    places: dict[str, int] = {}
    events: list[Event] = []
    for number, turn in enumerate(call.turns):
        check_arguments(turn)
        event_id = derived_event_id("conversation", call.source_id, call.first_turn + number)
        places[event_id] = number
        events.append(new_event(_PAYLOADS[turn.role](message=turn.text), event_id=event_id, timestamp=now))
    try:
        yield from append(agent, call.source_id, events)
    except EventConflict as error:
        raise InvalidArgument(
            f"turns[{places[error.event_id]}] differs from the turn that is stored at its place in "
            f"{describe(call.source_id)}: pass the turns as they were, first_turn for later turns, or a new source_id"
        ) from error
    return (yield from derive(context, Derive(agent, call.source_id)))
