"""Runs for the tests of the processor: random ones, and those of recorded traffic with providers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

from hypothesis import strategies as st

from agent_memory_log import (
    AssistantMessage,
    Compaction,
    Event,
    EventData,
    InjectedContext,
    PlannerNote,
    Snapshot,
    SyncStore,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
    new_event,
)
from agent_memory_log.memory import Principal
from agent_memory_log.processor import Loop
from agent_memory_log.transcript import parse
from tests.transcript.traffic import Exchange, exchanges

AGENT, RUN = "coder", "task-7"
LOOP = Loop(AGENT, RUN, Principal("acme", {"user": "42"}))

_IDS = st.sampled_from(["a", "b", "c", "d"])
_TOOLS = st.sampled_from(["write_file", "read_file", "editFile", "bash", "delete_file", "str_replace_based_edit_tool"])
_PATHS = st.sampled_from(["src/a.py", "src/b.py", "docs/c.md", "d.txt"])
_WORDS = st.text('abc xyzäß中\n"\\<>{}.', max_size=300)


@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    """Generate calls of file tools and others."""
    arguments: dict[str, str] = {"path": draw(_PATHS)} if draw(st.booleans()) else {"command": draw(_WORDS)}
    return ToolCall(draw(_IDS), draw(_TOOLS), payload_json=json.dumps(arguments))


def _result(call_id: str, error: str, words: str) -> ToolResult:
    return ToolResult(call_id, "tool", result_json="" if error else json.dumps(words), error_message=error)


_ERRORS = st.sampled_from(["", "", "it broke"])


@st.composite
def answered_calls(draw: st.DrawFn) -> list[EventData]:
    """Generate a call with its result, and sometimes another event between them."""
    call = draw(calls())
    between = draw(st.lists(payloads(), max_size=1))
    return [call, *between, draw(st.builds(_result, st.just(call.tool_call_id), _ERRORS, _WORDS))]


def payloads() -> st.SearchStrategy[EventData]:
    """Generate the payloads of a loop's run, in any order."""
    return st.one_of(
        st.builds(UserMessage, _WORDS),
        st.builds(AssistantMessage, _WORDS),
        st.builds(AssistantMessage, st.integers(0, 99).map(lambda number: f"I decided to use plan {number}. Fine?")),
        st.builds(PlannerNote, st.integers(100, 199).map(lambda number: f"note {number}")),
        st.builds(Thinking, _WORDS),
        calls(),
        st.builds(_result, _IDS, _ERRORS, _WORDS),
        st.builds(Compaction, st.just("A short form.")),
        st.builds(InjectedContext, _WORDS),
        st.builds(SystemMessage, _WORDS),
    )


def runs() -> st.SearchStrategy[list[Event]]:
    """Generate runs without their seqs."""
    steps = st.lists(payloads().map(lambda data: [data]) | answered_calls(), min_size=1, max_size=30)
    return steps.map(lambda groups: [new_event(data) for group in groups for data in group])


def growing_count(text: str) -> int:
    """Count more tokens in a text than in its parts together."""
    return (len(text) // 10) ** 2 // 20


def stored(store: SyncStore, events: Sequence[Event], loop: Loop = LOOP) -> Snapshot:
    """Append events to the run of a loop, and return the run."""
    store.append_events(loop.agent, loop.run, *events)
    return store.load_run(loop.agent, loop.run)


@cache
def recorded_runs() -> Sequence[tuple[Exchange, Sequence[Event]]]:
    """Return the accepted conversations of the recorded traffic that have at least three messages, as events."""
    return tuple(
        (exchange, parse(exchange.messages, exchange.provider, source=exchange.name))
        for exchange in exchanges()
        if exchange.status == 200 and len(exchange.messages) >= 3
    )
