"""Generates runs, transcripts and texts that grow in one dimension, and measures how a call's time grows."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from types import FrameType
from typing import Any

from agent_memory_log import EventData, Snapshot, new_event, open_store, open_sync_store
from agent_memory_log.cli.timeline import arrange
from agent_memory_log.errors import ReplayDivergence
from agent_memory_log.events.payloads import (
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
from agent_memory_log.interchange.atif import from_atif, to_atif
from agent_memory_log.interchange.opentelemetry import spans_of
from agent_memory_log.memory.records.protocols import RunSlice
from agent_memory_log.models.tokens import estimate_tokens
from agent_memory_log.processor.progress import metered
from agent_memory_log.processor.restoring import restored
from agent_memory_log.reader import Reader
from agent_memory_log.recall import Document, RecallIndex
from agent_memory_log.recording import SyncRunRecorder
from agent_memory_log.replay import Match, Replayer, diff
from agent_memory_log.store import SyncStore
from agent_memory_log.transcript import build, parse, repair, request, validate, window
from agent_memory_log.transfer.verifying import verify
from tests.transcript.transcripts import run_of, snapshot_of

Message = dict[str, Any]

FLAT = 4.0
"""The largest allowed ratio of times for sixteen times the data, if the work must not grow. Linear work takes 16."""

MOST = 8.0
"""The largest allowed ratio of times for four times the data.

Linear work takes 4 times as long, and up to 7 times if caches overflow on a busy machine. Quadratic work takes 16
times as long.
"""

_TRIES = 6
_FLOOR = 0.001
"""The number of seconds below which a call is fast with any ratio, because the clock is too coarse."""


def growth(small: Callable[[], object], large: Callable[[], object], enough: float) -> float:
    """Return the best processor time of ``large``, divided by the best processor time of ``small``.

    While the ratio is above ``enough``, the measurement is repeated up to ``_TRIES`` times, because the machine may be
    busy with other work.
    """
    small()  # may compile or load what all later calls share
    best_small = best_large = float("inf")
    ratio = 0.0
    for _ in range(_TRIES):
        best_small = min(best_small, cost(small))
        best_large = min(best_large, cost(large))
        ratio = best_large / max(best_small, _FLOOR)
        if ratio <= enough:
            break
    return ratio


def calls_of(work: Callable[[], object]) -> int:
    """Return the number of function calls that some work makes, which is the same on each machine."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def cost(call: Callable[[], object]) -> float:
    """Return the processor time of one call in seconds. The garbage collector is off, because its time varies."""
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
"""Functions that yield the payloads of a run with about ``events`` events, by the dimension that grows."""


def run(shape: str, events: int) -> Snapshot:
    """Return a run with about ``events`` events that grows in the dimension ``shape``."""
    return run_of(*RUNS[shape](events))


def slow_transcripts(provider: str, events: int, most: float) -> dict[tuple[str, str], float]:
    """Return the calls on a provider's transcripts whose ratio is above ``most`` for four times the events."""
    slow: dict[tuple[str, str], float] = {}
    for shape in RUNS:
        small, large = run(shape, events), run(shape, 4 * events)
        short, long = build(small, provider), build(large, provider)
        pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "parse": (partial(parse, list(short), provider), partial(parse, list(long), provider)),
            "request": (partial(request, small, provider), partial(request, large, provider)),
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
    """Return a slice with ``count`` turns: the user's ``text``, a failed call, and an answer."""
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
    """Return a slice that contains a complete run."""
    return RunSlice("agent", "run", {}, 0, run_of(*payloads).log, ("user",))


def index_of(count: int, text: str) -> RecallIndex:
    """Return an index of ``count`` messages."""
    index = RecallIndex()
    time = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(count):
        index.add(Document(id=str(number), text=f"{text} {number}", session="s", position=number, time=time))
    return index


def _without_index(snapshot: Snapshot) -> Snapshot:
    """Return a copy of the snapshot that no reader has indexed yet."""
    return Snapshot(snapshot.agent, snapshot.run, list(snapshot.log), version=snapshot.version)


def _read(snapshot: Snapshot) -> None:
    reader = Reader(_without_index(snapshot))
    reader.turns()
    reader.open_tool_calls()
    for call in reader.tool_calls():
        reader.result_for(call)
        reader.children_of(call)


def _extend(snapshot: Snapshot) -> None:
    grown = Snapshot(snapshot.agent, snapshot.run)
    for seq, event in enumerate(snapshot.log, 1):
        grown = grown.extend(Snapshot(snapshot.agent, snapshot.run, [event], version=seq, after=seq - 1))
        Reader(grown).latest(event.type)


def _replay(snapshot: Snapshot, backwards: bool = False) -> None:
    """Replay all turns with their calls, in the recorded order or in reverse order inside a turn."""
    replayer = Replayer(snapshot, "anthropic")
    try:
        while True:
            calls = replayer.model_turn().tool_calls
            for call in calls[::-1] if backwards else calls:
                replayer.tool_result(call)
    except ReplayDivergence:
        pass


def _replay_turns(snapshot: Snapshot) -> None:
    """Replay all turns without their calls."""
    replayer = Replayer(snapshot, "anthropic")
    try:
        while True:
            replayer.model_turn()
    except ReplayDivergence:
        pass


def _replay_loosely(match: Match, snapshot: Snapshot) -> None:
    replayer = Replayer(snapshot, "anthropic", match=match)
    try:
        for call in reversed(Reader(snapshot).tool_calls()):
            replayer.tool_result(call)
    except ReplayDivergence:
        pass


CALLS: Mapping[str, Callable[[Snapshot], object]] = {
    "read": _read,
    "extend": _extend,
    "replay": _replay,
    "replay backwards": partial(_replay, backwards=True),
    "replay turns": _replay_turns,
    "replay by id": partial(_replay_loosely, "call_id"),
    "replay by arguments": partial(_replay_loosely, "arguments"),
    "diff": lambda snapshot: diff(snapshot, snapshot),
    "atif": lambda snapshot: from_atif(to_atif(snapshot)),
    "foreign atif": lambda snapshot: to_atif(from_atif(foreign(snapshot)).snapshot()),
    "spans": partial(spans_of, content=True),
    "timeline": lambda snapshot: arrange(snapshot.log),
    "restore": lambda snapshot: restored(snapshot, "anthropic", 1_500, estimate_tokens),
    "progress": lambda snapshot: metered(snapshot.log),
}
"""Calls on a complete run. Each must take linear time in the number of events."""


def foreign(snapshot: Snapshot) -> Message:
    """Return the run as an ATIF document of another tool."""
    document = to_atif(snapshot)
    del document["extra"]
    for step in document["steps"]:
        del step["extra"]
    return document


def slow_calls(name: str, events: int, most: float) -> dict[str, float]:
    """Return the shapes of runs for which the ratio of ``CALLS[name]`` is above ``most`` for four times the events."""
    call = CALLS[name]
    ratios = {
        shape: growth(partial(call, run(shape, events)), partial(call, run(shape, 4 * events)), most) for shape in RUNS
    }
    return {shape: ratio for shape, ratio in ratios.items() if ratio > most}


def answers(count: int) -> Snapshot:
    """Return a run of ``count`` consecutive answers of a model."""
    return snapshot_of(new_event(AssistantMessage(f"{at}"), labels={"response_id": f"{at}"}) for at in range(count))


def record_calls(ids: Callable[[int], str], count: int) -> None:
    """Record an answer with ``count`` calls that have these ids, and record their results."""
    content = [{"type": "tool_use", "id": ids(at), "name": "tool", "input": {"at": at}} for at in range(count)]
    answer = {"type": "message", "id": "m", "role": "assistant", "model": "m", "stop_reason": "tool_use"}
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        for event in reversed(recorder.record_response({**answer, "content": content}).tool_calls):
            with recorder.tool_call(event) as call:
                call.result(1)


def resume_calls(count: int) -> None:
    """Resume a run with ``count`` open calls that have the same id. Answer the last call first."""
    calls = [ToolCall("call", "tool", payload_json=f'{{"at":{at}}}') for at in range(count)]
    with open_sync_store("memory:") as store, SyncRunRecorder(store, "agent", "run") as recorder:
        store.append_events("agent", "run", *map(new_event, calls))
        for data in reversed(calls):
            with recorder.tool_call("tool", data.payload_json, tool_call_id="call") as call:
                call.result(1)


def chat_stream(count: int) -> list[Message]:
    """Return an OpenAI stream with ``count`` parallel calls whose arguments are interleaved."""
    deltas: list[Message] = [
        {"tool_calls": [{"index": at, "id": f"{at}", "function": {"name": "tool", "arguments": part}}]}
        for part in ("{", "}")
        for at in range(count)
    ]
    chunks: list[Message] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    return [*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]


def cited_stream(count: int) -> list[Message]:
    """Return an Anthropic stream with ``count`` citations."""
    delta = {"type": "citations_delta", "citation": {"type": "char_location"}}
    return [
        {"type": "message_start", "message": {"type": "message", "role": "assistant"}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for _ in range(count)),
        {"type": "message_stop"},
    ]


async def verify_redacted(count: int) -> None:
    """Verify a run of ``count`` messages, each with its own redaction, and ``count`` results without a call."""
    async with open_store("memory:") as store:
        await store.append_events("agent", "run", *(new_event(UserMessage(f"{at}")) for at in range(count)))
        for seq in range(1, count + 1):
            await store.redact_events("agent", "run", [seq])
        await store.append_events("agent", "run", *(new_event(ToolResult(f"{at}", "tool")) for at in range(count)))
        await verify(store)


SMALL_READS: Mapping[str, Callable[[SyncStore], object]] = {
    "last": lambda store: store.load_run("agent", "run", last=5),
    "last of an indexed type": lambda store: store.load_run("agent", "run", types=["planner_note"], last=5),
    "last of two indexed types": lambda store: store.load_run(
        "agent", "run", types=["planner_note", "user_message"], last=5
    ),
    "last of a type without an index": lambda store: store.load_run("agent", "run", types=["tool_call"], last=5),
    "find_events": lambda store: store.find_events("agent", "run", [f"e-{number}" for number in (0, 3, 50, 90)]),
    "list_runs": lambda store: store.list_runs(),
}
"""Reads of a few events of a run that ``fill_run`` filled. Their time must not grow with the run."""


def fill_run(store: SyncStore, events: int) -> None:
    """Append ``events`` events with the ids ``e-0``, ``e-1`` and so on."""
    payloads = [UserMessage("question"), PlannerNote("note"), _call(1), _result(1), AssistantMessage("answer")]
    store.append_events(
        "agent", "run", *(new_event(payloads[number % 5], event_id=f"e-{number}") for number in range(events))
    )
