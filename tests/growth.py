"""Runs, transcripts and texts that grow in one dimension each, and how the time of a call grows with them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from agent_memory_log import EventData, Snapshot
from agent_memory_log.memory.hooks import RunSlice
from agent_memory_log.memory.recall import Document, RecallIndex
from agent_memory_log.payloads import (
    AssistantMessage,
    ModelRequest,
    PlannerNote,
    Redacted,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UserMessage,
)
from agent_memory_log.transcript import build, repair, validate, window
from tests.transcripts import run_of

Message = dict[str, Any]

_TRIES = 6
_FLOOR = 0.001
"""Below this many seconds a call is quick whatever its ratio: the clock and the machine are coarser than that."""


def growth(small: Callable[[], object], large: Callable[[], object], enough: float) -> float:
    """How many times the processor's time of ``small`` the call ``large`` takes, by the best of each.

    Measures again as long as the ratio is over ``enough``, a few times at most: what a busy machine adds, goes.
    """
    best_small = best_large = float("inf")
    ratio = 0.0
    for _ in range(_TRIES):
        best_small = min(best_small, cost(small))
        best_large = min(best_large, cost(large))
        ratio = best_large / max(best_small, _FLOOR)
        if ratio <= enough:
            break
    return ratio


def cost(call: Callable[[], object]) -> float:
    """The processor's time of one call, in seconds; the collector of cycles is off, as its time is not the call's."""
    gc.disable()
    try:
        begin = time.process_time()
        call()
        return time.process_time() - begin
    finally:
        gc.enable()


def _call(number: int, parent: str = "") -> ToolCall:
    return ToolCall(f"call-{number}", "toolset.tool", payload_json=f'{{"number":{number}}}', parent_tool_call_id=parent)


def _result(number: int, parent: str = "") -> ToolResult:
    return ToolResult(f"call-{number}", "toolset.tool", result_json='{"ok":true}', parent_tool_call_id=parent)


def _turns(events: int) -> Iterator[EventData]:
    for number in range(events // 5):
        yield UserMessage(f"question {number}")
        yield Thinking(text=f"thought {number}", signature=f"signature-{number}", final=True)
        yield AssistantMessage(f"answer {number}")
        yield _call(number)
        yield _result(number)


def _one_turn(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    for number in range(events // 2):
        yield _call(number)
        yield _result(number)


def _spoken(events: int) -> Iterator[EventData]:
    for number in range(events // 2):
        yield UserMessage(f"question {number}")
        yield AssistantMessage(f"answer {number}")


def _monologue(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    for number in range(events):
        yield AssistantMessage(f"answer {number}")


def _parallel(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    for number in range(events // 2):
        yield _call(number)
    for number in reversed(range(events // 2)):
        yield _result(number)


def _unanswered(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    for number in range(events):
        yield _call(number)


def _unanswered_turns(events: int) -> Iterator[EventData]:
    for number in range(events // 2):
        yield UserMessage(f"question {number}")
        yield _call(number)


def _orphans(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    for number in range(events):
        yield _result(number)


def _one_id(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    for number in range(events // 2):
        yield ToolCall("call", "toolset.tool", payload_json=f'{{"number":{number}}}')
        yield ToolResult("call", "toolset.tool", result_json=f"{number}")


def _one_id_open(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    for number in range(events // 2):
        yield ToolCall("call", "toolset.tool", payload_json=f'{{"number":{number}}}')
    for number in range(events // 2):
        yield ToolResult("call", "toolset.tool", result_json=f"{number}")


def _same_call(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    for _ in range(events):
        yield ToolCall("call", "toolset.tool", payload_json="{}")


def _long_ids(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    for _ in range(events // 2):
        yield ToolCall("a call/" * 20, "toolset.tool." * 20)
    for _ in range(events // 2):
        yield ToolResult("a call/" * 20, "toolset.tool." * 20)


def _thinking(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    for number in range(events):
        yield Thinking(text=f"thought {number}", signature=f"signature-{number}", final=True)
    yield AssistantMessage("answer")


def _repeated_thinking(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    for number in range(events // 2):
        yield Thinking(text="thought", signature="signature", final=True)
        yield AssistantMessage(f"answer {number}")


def _erased(events: int) -> Iterator[EventData]:
    for number in range(events // 5):
        yield UserMessage(f"question {number}")
        yield Redacted(original_type="assistant_message")
        yield Thinking(text=f"thought {number}", signature=f"signature-{number}", final=True)
        yield _call(number)
        yield Redacted(original_type="tool_result")


def _conflicts(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    for number in range(events // 2):
        yield _call(number)
        yield ToolResult(f"call-{number}", "toolset.tool", result_json="1", error_message="failed")


def _deep(events: int) -> Iterator[EventData]:
    yield UserMessage("question")
    half = events // 2
    for number in range(half):
        yield _call(number, f"call-{number - 1}" if number else "")
    for number in reversed(range(half)):
        yield _result(number, f"call-{number - 1}" if number else "")


def _requests(events: int) -> Iterator[EventData]:
    for number in range(events // 6):
        yield UserMessage(f"question {number}")
        for provider in ("anthropic",):
            yield ModelRequest(provider=provider, model="m", system=f"system {number}", system_hash=f"{number}")
        yield Thinking(text=f"thought {number}", signature=f"signature-{number}", final=True)
        yield AssistantMessage(f"answer {number}")
        yield _call(number)
        yield _result(number)


def _instructions(events: int) -> Iterator[EventData]:
    for number in range(events // 2):
        yield SystemMessage(f"instruction {number}")
        yield PlannerNote("note")
    yield UserMessage("question")


def _huge(events: int) -> Iterator[EventData]:
    yield UserMessage("word " * 20 * events)
    yield _call(1)
    yield ToolResult("call-1", "toolset.tool", result_json='"' + "word " * 20 * events + '"')
    yield AssistantMessage("I prefer tea. " * 5 * events)


RUNS: Mapping[str, Callable[[int], Iterator[EventData]]] = {
    shape.__name__.strip("_"): shape
    for shape in (
        _turns,
        _one_turn,
        _spoken,
        _monologue,
        _parallel,
        _unanswered,
        _unanswered_turns,
        _orphans,
        _one_id,
        _one_id_open,
        _same_call,
        _long_ids,
        _thinking,
        _repeated_thinking,
        _erased,
        _conflicts,
        _deep,
        _requests,
        _instructions,
        _huge,
    )
}
"""Payloads of a run of about so many events, by the dimension in which it grows."""


def run(shape: str, events: int) -> Snapshot:
    """A run of about so many events that grows in the dimension ``shape``."""
    return run_of(*RUNS[shape](events))


def slow_transcripts(provider: str, events: int, most: float) -> dict[tuple[str, str], float]:
    """What of a provider's transcripts costs over ``most`` times as much for four times the events, with the ratio."""
    slow: dict[tuple[str, str], float] = {}
    for shape in RUNS:
        small, large = run(shape, events), run(shape, 4 * events)
        short, long = build(small, provider), build(large, provider)
        pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "build": (partial(build, small, provider), partial(build, large, provider)),
            "validate": (partial(validate, short, provider), partial(validate, long, provider)),
            "repair": (partial(repair, short, provider), partial(repair, long, provider)),
            "window": (
                partial(window, short, provider, max_events=events // 2),
                partial(window, long, provider, max_events=2 * events),
            ),
        }
        for name, (of_small, of_large) in pairs.items():
            ratio = growth(of_small, of_large, most)
            if ratio > most:
                slow[shape, name] = ratio
    return slow


def messages(count: int, text: str) -> RunSlice:
    """A slice of a run in which the user says ``text`` so many times, and is answered, and calls fail."""
    payloads = [
        payload
        for number in range(count)
        for payload in (
            UserMessage(text),
            _call(number),
            ToolResult(f"call-{number}", "toolset.tool", error_message="failed"),
            AssistantMessage("done"),
        )
    ]
    return slice_of(payloads)


def slice_of(payloads: Iterable[EventData]) -> RunSlice:
    """A slice that is a whole run."""
    return RunSlice("agent", "run", {}, 0, run_of(*payloads).log, ("user",))


def index_of(count: int, text: str) -> RecallIndex:
    """An index of so many messages."""
    index = RecallIndex()
    time = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(count):
        index.add(Document(id=str(number), text=f"{text} {number}", session="s", position=number, time=time))
    return index
