"""Checks the laws of transcripts with real traffic: provider messages stay exact, valid and replayable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from agent_memory_log import Event, Reader, Snapshot, ToolCall, open_sync_store
from agent_memory_log.events.jsonvalue import encode_canonical
from agent_memory_log.interchange.opentelemetry import spans_of
from agent_memory_log.interchange.usage import usage_in
from agent_memory_log.recording import RecordedResponse, SyncRunRecorder
from agent_memory_log.replay import Replayer
from agent_memory_log.transcript import build, encode_name, parse, repair, request, validate
from agent_memory_log.transcript.json_types import list_in, map_in
from agent_memory_log.transfer.jsonl import export_run_sync, import_jsonl_sync
from tests.transcript.test_transcripts import CASES
from tests.transcript.traffic import Exchange, exchanges
from tests.transcript.transcripts import Message, snapshot_of

AGENT, RUN = "agent", "run"
ACCEPTED = [exchange for exchange in exchanges() if exchange.status == 200 and exchange.messages]
ANSWERED = [exchange for exchange in exchanges() if exchange.answer is not None and exchange.is_complete]
JUDGES = {provider: case.judge for provider, case in CASES.items()}

Law = Callable[[Exchange], Iterable[str]]
"""Yields a text for each way in which an exchange breaks the law."""

CLIENT_CALLS = frozenset(
    {
        "apply_patch_call",
        "computer_call",
        "custom_tool_call",
        "function_call",
        "local_shell_call",
        "mcp_approval_request",
        "shell_call",
        "tool_search_call",
    }
)
"""The items of OpenAI Responses that wait for an output of the client."""


class Recorded(NamedTuple):
    """A run that holds an exchange.

    Attributes:
        answer: The recorded answer.
        unanswered: The run before the calls of the answer had results.
        run: The whole run, with a result for each call.
        lines: The whole run as JSONL.
        copied_lines: The JSONL of another store that has imported these lines.
    """

    answer: RecordedResponse
    unanswered: Snapshot
    run: Snapshot
    lines: list[bytes]
    copied_lines: list[bytes]


@cache
def recorded(exchange: Exchange) -> Recorded:
    """Return the recorded run of an exchange."""
    with open_sync_store("memory:") as store, open_sync_store("memory:") as other:
        if exchange.messages:
            store.append_events(AGENT, RUN, *parse(exchange.messages, exchange.provider, source=exchange.name))
        with SyncRunRecorder(store, AGENT, RUN) as recorder:
            answer = recorder.record_response(exchange.answer)
            unanswered = store.load_run(AGENT, RUN)
            for event in answer.tool_calls:
                with recorder.tool_call(event) as call:
                    call.result("ok")
        lines = list(export_run_sync(store, AGENT, RUN))
        import_jsonl_sync(other, lines)
        copied_lines = list(export_run_sync(other, AGENT, RUN))
        return Recorded(answer, unanswered, store.load_run(AGENT, RUN), lines, copied_lines)


def transcripts_are_equal(exchange: Exchange) -> Iterator[str]:
    built = build(snapshot_of(parse(exchange.messages, exchange.provider, source="s")), exchange.provider)
    if encode_canonical(built) != encode_canonical(exchange.messages):
        yield "the built transcript differs"
    if built.losses:
        yield f"{built.losses}"


def accepted_requests_are_valid(exchange: Exchange) -> Iterator[str]:
    for finding in validate(exchange.messages, exchange.provider, request=exchange.arguments):
        yield f"{finding.path} {finding.rule}: {finding.message}"


def accepted_requests_need_no_repair(exchange: Exchange) -> Iterator[str]:
    for change in repair(exchange.messages, exchange.provider, request=exchange.arguments).changes:
        yield f"{change.path} {change.change}: {change.message}"


def repairs_are_accepted(exchange: Exchange) -> Iterator[str]:
    """A transcript that is cut off anywhere is repaired to one that the provider's own package accepts.

    The package is no judge of a request that it refuses although the provider accepted it.
    """
    can_judge = is_accepted_by_package(exchange)
    for end in range(1, len(exchange.messages)):
        repaired = repair(exchange.messages[:end], exchange.provider, request=exchange.arguments)
        for finding in validate(repaired.transcript, exchange.provider, request=repaired.request):
            yield f"the first {end} messages, repaired: {finding}"
        if can_judge:
            JUDGES[exchange.provider](repaired.transcript)


def is_accepted_by_package(exchange: Exchange) -> bool:
    try:
        JUDGES[exchange.provider](exchange.messages)
    except Exception:
        return False
    return True


def calls_are_found(exchange: Exchange) -> Iterator[str]:
    names = sorted(encode_name(call.tool_name) for call in calls_in(recorded(exchange).answer.events))
    expected = sorted(encode_name(name) for name in called_tools(exchange))
    if names != expected:
        yield f"found the calls {names}, expected {expected}"


def answers_are_exact(exchange: Exchange) -> Iterator[str]:
    built = build(recorded(exchange).unanswered, exchange.provider)
    length = len(exchange.messages)
    if encode_canonical(built[:length]) != encode_canonical(exchange.messages):
        yield "the messages before the answer differ"
    if isinstance(exchange.answer, dict):
        answer, expected = built[length:], answered_messages(exchange.provider, exchange.answer)
        if encode_canonical(answer) != encode_canonical(expected):
            yield f"the answer {expected!r} became {answer!r}"


def answers_are_valid(exchange: Exchange) -> Iterator[str]:
    built = build(recorded(exchange).run, exchange.provider)
    for finding in validate(built, exchange.provider, request=exchange.arguments):
        yield f"{finding.path} {finding.rule}: {finding.message}"


def runs_are_replayed(exchange: Exchange) -> Iterator[str]:
    run = recorded(exchange)
    for snapshot in (run.run, run.unanswered):
        reader = Reader(snapshot)
        events: tuple[Event, ...] = ()
        with Replayer(snapshot, exchange.provider) as replayer:
            for _ in range(len(replayer._expected.turns)):
                turn = replayer.model_turn()
                events = turn.events
                for call in turn.tool_calls:
                    if reader.result_for(call) is not None:
                        replayer.tool_result(call)
        if [event.seq for event in events] != [event.seq for event in run.answer.events]:
            yield f"the last turn has {len(events)} events, the recorded answer has {len(run.answer.events)}"


def jsonl_is_equal(exchange: Exchange) -> Iterator[str]:
    if recorded(exchange).lines != recorded(exchange).copied_lines:
        yield "the copied run has other lines"


def usage_is_exported(exchange: Exchange) -> Iterator[str]:
    """Each answer is one model turn with its usage."""
    run = recorded(exchange)
    used = usage_in(run.answer.events).output_tokens
    turns = [span.attributes or {} for span in spans_of(run.unanswered) if span.name.startswith("chat")]
    exported = [turn.get("gen_ai.usage.output_tokens") for turn in turns]
    if [count for count in exported if count is not None] != [count for count in [used] if count is not None]:
        yield f"the answer used {used} tokens, the spans have {exported}"


def calls_in(events: Iterable[Event]) -> Iterator[ToolCall]:
    return (event.data for event in events if isinstance(event.data, ToolCall))


def called_tools(exchange: Exchange) -> list[str]:
    """Return the names of the tools that an answer calls and that the client must execute."""
    answer = exchange.answer
    if isinstance(answer, dict):
        blocks = [block for message in answered_messages(exchange.provider, answer) for block in blocks_of(message)]
    else:
        blocks = list(streamed_blocks(answer or ()))
    return [name for block in blocks if (name := called_tool(block)) is not None]


def blocks_of(message: Message) -> list[Any]:
    """Return the parts of an answer that may be calls."""
    return [*(block for key in ("content", "parts", "tool_calls") for block in list_in(message.get(key))), message]


def streamed_blocks(events: Sequence[Message]) -> Iterator[Message]:
    """Yield the parts of a stream that may be calls. The arguments are missing."""
    for event in events:
        yield map_in(event.get("content_block"))
        yield map_in(map_in(event.get("contentBlockStart")).get("start"))
        if event.get("type") == "response.output_item.done":
            yield map_in(event.get("item"))
        for candidate in list_in(event.get("candidates")):
            yield from list_in(map_in(map_in(candidate).get("content")).get("parts"))
        for choice in list_in(event.get("choices")):
            for call in list_in(map_in(map_in(choice).get("delta")).get("tool_calls")):
                if map_in(map_in(call).get("function")).get("name"):
                    yield map_in(call)


def called_tool(block: Message) -> str | None:
    """Return the name of the tool that a part of an answer calls, or None if it is not a call for the client."""
    kind = block.get("type")
    use = map_in(block.get("toolUse"))
    if use and use.get("type", "tool_use") == "tool_use":
        return str(use["name"])
    if map_in(block.get("functionCall")).get("name"):
        return str(block["functionCall"]["name"])
    if "function" in block:
        return str(map_in(block["function"])["name"])
    if kind == "tool_use" and "input" in block:
        return str(block["name"])
    if kind in CLIENT_CALLS and block.get("execution", "client") == "client":
        return str(block.get("name", kind.removesuffix("_call")))
    return None


def answered_messages(provider: str, answer: Message) -> list[Message]:
    """Return the messages of an answer that is not a stream, as the next request must hold them."""
    if provider == "openai-responses":
        return list_in(answer["output"])
    if provider == "openai-chat":
        return [choice["message"] for choice in answer["choices"]]
    if provider == "gemini":
        contents = [map_in(candidate.get("content")) for candidate in list_in(answer.get("candidates"))]
        return [content for content in contents if content.get("parts")]
    if provider == "anthropic":
        answer = {"output": {"message": {"role": "assistant", "content": answer["content"]}}}
    message = map_in(answer["output"]["message"])
    return [message] if message["content"] else []


def broken(law: Law, exchange: Exchange) -> list[str]:
    """Return how an exchange breaks a law. An error breaks the law too."""
    try:
        return list(law(exchange))
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


LAWS: Mapping[Law, tuple[Sequence[Exchange], float, float]] = {
    transcripts_are_equal: (ACCEPTED, 0, 0),
    accepted_requests_are_valid: (ACCEPTED, 0, 0),
    accepted_requests_need_no_repair: (ACCEPTED, 0, 0),
    repairs_are_accepted: (ACCEPTED, 0, 0),
    calls_are_found: (ANSWERED, 0, 0),
    answers_are_exact: (ANSWERED, 0, 0),
    answers_are_valid: (ANSWERED, 0, 0),
    runs_are_replayed: (ANSWERED, 0, 0),
    jsonl_is_equal: (ANSWERED, 0, 0),
    usage_is_exported: (ANSWERED, 0, 0),
}
"""The exchanges of each law, and the largest share that breaks it: with own hosts, and with vendors."""


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("is_own_host", [True, False], ids=["own hosts", "vendors"])
def test_traffic_obeys(law: Law, is_own_host: bool) -> None:
    chosen, *shares = LAWS[law]
    checked = [exchange for exchange in chosen if exchange.is_own_host == is_own_host]
    problems = {exchange: problems for exchange in checked if (problems := broken(law, exchange))}
    report = "\n".join(
        f"{exchange.name} ({exchange.host}): {'; '.join(texts)[:200]}" for exchange, texts in [*problems.items()][:20]
    )
    assert len(checked) > 100
    too_many = len(problems) > shares[not is_own_host] * len(checked)
    assert not too_many, f"{len(problems)} of {len(checked)}\n{report}"


def test_next_request_continues_in_the_container_of_the_answer() -> None:
    pairs = [
        (exchange, later)
        for exchange, later in pairwise(exchanges())
        if later.arguments.get("container") and exchange.name.split()[0] == later.name.split()[0]
    ]
    assert len(pairs) > 3
    for exchange, later in pairs:
        assert request(recorded(exchange).run, "anthropic")["container"] == later.arguments["container"]
