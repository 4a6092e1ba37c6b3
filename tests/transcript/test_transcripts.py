"""Tests that run for every provider: exactness, updates, repair, windows and conversion to another provider."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_memory_log import (
    Annotation,
    AssistantMessage,
    Event,
    EventData,
    JsonValue,
    ModelRequest,
    PlannerNote,
    Redacted,
    RetryHint,
    Snapshot,
    SystemMessage,
    Thinking,
    ToolCall,
    ToolResult,
    UnknownPayload,
    UserMessage,
    new_event,
    open_store,
    open_sync_store,
)
from agent_memory_log.errors import DecodeError, InvalidArgument
from agent_memory_log.events.jsonvalue import encode_canonical, json_or_text
from agent_memory_log.events.nested import Bounds
from agent_memory_log.transcript import (
    Finding,
    Transcript,
    build,
    import_transcript,
    model_request,
    parse,
    parts_of,
    provider_names,
    repair,
    request,
    validate,
    window,
)
from agent_memory_log.transcript.json_types import is_list, is_map
from agent_memory_log.transcript.providers import find_provider
from tests.effort import EXAMPLES
from tests.strategies import payloads
from tests.transcript import (
    transcripts_anthropic,
    transcripts_bedrock,
    transcripts_gemini,
    transcripts_openai_chat,
    transcripts_openai_responses,
)
from tests.transcript.transcripts import (
    THOUGHT,
    Case,
    Message,
    assert_exact,
    holds_thought,
    json_values,
    numbered,
    run_of,
    snapshot_of,
)

CASES = {
    module.CASE.provider: module.CASE
    for module in (
        transcripts_anthropic,
        transcripts_bedrock,
        transcripts_gemini,
        transcripts_openai_chat,
        transcripts_openai_responses,
    )
}
"""The cases of all providers. To add a provider, add its module to the tuple above."""

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())

PAIRS = list(itertools.permutations(CASES.values(), 2))


def test_every_provider_has_a_case() -> None:
    assert tuple(CASES) == provider_names()


# Exactness.


@pytest.mark.parametrize(
    ("case", "messages"),
    [
        pytest.param(case, messages, id=f"{case.provider}-{name}")
        for case in CASES.values()
        for name, messages in (*case.conversations.items(), *case.valid.items())
    ],
)
def test_handwritten_conversation_survives_parse_and_build(case: Case, messages: list[Message]) -> None:
    context = next(messages for messages in case.valid.values() if messages)
    assert_exact(messages, case.provider)
    for message in messages:
        assert_exact([message], case.provider)
        assert_exact([*context, message, message, *context], case.provider)


@every_case
@given(data=st.data())
def test_any_conversation_survives_parse_and_build(case: Case, data: st.DataObject) -> None:
    assert_exact(data.draw(st.lists(case.good, max_size=10)), case.provider)


@every_case
@given(data=st.data())
def test_any_maps_survive_parse_and_build(case: Case, data: st.DataObject) -> None:
    assert_exact(data.draw(case.hostile), case.provider)


@every_case
@given(data=st.data())
async def test_any_maps_survive_import_and_build(case: Case, data: st.DataObject) -> None:
    messages = data.draw(case.hostile)
    async with open_store("memory:") as store:
        first = await import_transcript(store, "a", "r", messages, case.provider)
        again = await import_transcript(store, "a", "r", messages, case.provider)
        assert (again.version, again.inserted, again.events) == (first.version, 0, first.events)
        built = build(await store.load_run("a", "r"), case.provider)
    assert encode_canonical(built) == encode_canonical(messages)


@every_case
@given(data=st.data())
def test_parse_gives_a_longer_conversation_the_same_first_events(case: Case, data: st.DataObject) -> None:
    messages = data.draw(case.hostile)
    end = data.draw(st.integers(0, len(messages)))
    all_events, prefix = (parse(part, case.provider, source="run") for part in (messages, messages[:end]))
    assert [(e.event_id, e.type, e.data, e.labels) for e in prefix] == [
        (e.event_id, e.type, e.data, e.labels) for e in all_events[: len(prefix)]
    ]


@every_case
def test_changing_a_built_transcript_does_not_change_the_snapshot(case: Case) -> None:
    for messages in case.conversations.values():
        snapshot = snapshot_of(parse(messages, case.provider))
        built = build(snapshot, case.provider)
        expected = copy.deepcopy(built)
        _spoil(list(built))
        assert build(snapshot, case.provider) == expected


def _spoil(value: object) -> None:
    if is_map(value):
        for item in value.values():
            _spoil(item)
        value["spoilt"] = True
    elif is_list(value):
        for item in value:
            _spoil(item)
        value.append("spoilt")


# Updates.


@every_case
@given(data=st.data())
def test_updated_transcript_equals_a_new_build(case: Case, data: st.DataObject) -> None:
    events = numbered(new_event(payload) for payload in data.draw(LIVE_PAYLOADS))
    events = data.draw(st.sampled_from([events, numbered(parse(data.draw(case.hostile), case.provider))]))
    limit = data.draw(st.none() | st.just(5))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(events)), max_size=3)))
    snapshot = Snapshot("a", "r", events[: cuts[0] if cuts else 0], version=cuts[0] if cuts else 0)
    transcript = build(snapshot, case.provider, max_result_bytes=limit)
    for begin, end in itertools.pairwise([*cuts, len(events)] if cuts else [0, len(events)]):
        newer = Snapshot("a", "r", events[begin:end], version=end, after=begin)
        snapshot = snapshot.extend(newer)
        transcript.update(snapshot)
    rebuilt = build(Snapshot("a", "r", events, version=len(events)), case.provider, max_result_bytes=limit)
    assert transcript == rebuilt
    assert transcript.losses == rebuilt.losses
    assert transcript.origins is not None
    assert rebuilt.origins is not None
    assert (transcript.origins.owns, transcript.origins.parts) == (rebuilt.origins.owns, rebuilt.origins.parts)
    assert validate(transcript, case.provider) == validate(rebuilt, case.provider)


@every_case
def test_update_leaves_existing_messages_alone(case: Case) -> None:
    log = numbered(new_event(payload) for payload in (UserMessage("Hi"), AssistantMessage("A"), UserMessage("Ho")))
    snapshot = Snapshot("a", "r", log[:2], version=2)
    transcript = build(snapshot, case.provider)
    first = transcript[0]
    first["content"] = "changed by its owner"
    longer = snapshot.extend(Snapshot("a", "r", log[2:], version=3, after=2))
    transcript.update(longer)
    assert len(transcript) == 3
    assert transcript[0] is first
    assert first["content"] == "changed by its owner"


@every_case
async def test_update_after_an_erasure_rebuilds_the_transcript(case: Case) -> None:
    messages = next(messages for messages in case.valid.values() if len(messages) > 1)
    async with open_store("memory:") as store:
        await import_transcript(store, "a", "r", messages, case.provider)
        snapshot = await store.load_run("a", "r")
        transcript = build(snapshot, case.provider)
        await store.redact_events("a", "r", [1])
        snapshot = snapshot.extend(await store.load_run("a", "r", after=snapshot.last_seq))
        transcript.update(snapshot)
        assert transcript == build(snapshot, case.provider)
        assert [loss.reason for loss in transcript.losses] == ["redacted"]
        assert [loss.seq for loss in transcript.losses] == [1]


@every_case
def test_update_refuses_a_snapshot_that_is_not_newer(case: Case) -> None:
    events = numbered([new_event(UserMessage("Hi")), new_event(UserMessage("Ho"))])
    snapshot = Snapshot("a", "r", events, version=2)
    for other in (
        Snapshot("a", "other", events, version=2),
        Snapshot("b", "r", events, version=2),
        Snapshot("a", "r", events, version=2, types=["user_message"]),
        Snapshot("a", "r", events[1:], version=2, after=1),
        Snapshot("a", "r", events[:1], version=1),
    ):
        with pytest.raises(InvalidArgument):
            build(snapshot, case.provider).update(other)
    with pytest.raises(InvalidArgument, match="made by build"):
        copy.copy(build(snapshot, case.provider)).update(snapshot)


@every_case
def test_transcript_serializes_and_copies_like_a_list(case: Case) -> None:
    for messages in case.valid.values():
        built = build(snapshot_of(parse(messages, case.provider)), case.provider)
        assert json.loads(json.dumps(built)) == messages
        assert msgspec.json.decode(msgspec.json.encode(built)) == messages
        for twin in (copy.deepcopy(built), copy.copy(built)):
            assert twin == built
            assert validate(twin, case.provider) == validate(built, case.provider)


# Arbitrary runs.


def residuals() -> st.SearchStrategy[JsonValue]:
    """Return a strategy for ``structured`` values, many of them malformed, in the place of residuals."""
    part = st.one_of(
        json_values,
        st.dictionaries(st.sampled_from(["role", "content", "type", "id", "signature", "data"]), json_values),
        st.lists(st.sampled_from(["role", "content", "type", "id", 5])),
        st.lists(st.one_of(st.integers(-1, 5), json_values), max_size=3),
    )
    keys = ["fields", "without", "inside", "parts", "message", "text", "inline", "function_call", "other"]
    residual = st.dictionaries(st.sampled_from(keys), part, max_size=3)
    return st.dictionaries(st.sampled_from([*CASES]), residual | json_values, max_size=2)


_texts = st.sampled_from(["", " ", "Hi", "secret?", '{"a": 1}'])
_ids = st.sampled_from(["", "c1", "c2", "a.b"])


def live_payloads() -> st.SearchStrategy[EventData]:
    """Return a strategy for payloads that runtimes record, with any value in ``structured``."""
    structured = st.none() | residuals()
    return st.one_of(
        st.builds(UserMessage, _texts, structured),
        st.builds(AssistantMessage, _texts, structured),
        st.builds(SystemMessage, _texts, structured),
        st.builds(
            Thinking, _texts, st.sampled_from(["", "s1", "s2"]), st.sampled_from([b"", b"x"]), structured=structured
        ),
        st.builds(ToolCall, _ids, _texts, _ids, _texts, structured=structured),
        st.builds(
            ToolResult,
            _ids,
            _texts,
            _ids,
            _texts,
            server_data=st.just('"top secret"'),
            error_message=_texts,
            preview=_texts,
            structured=structured,
        ),
        st.builds(Redacted, st.sampled_from(["user_message", "tool_call", "thinking", "anthropic.block", "note"])),
        st.builds(
            UnknownPayload,
            type=st.sampled_from([f"{name}.{suffix}" for name in CASES for suffix in ("message", "block")]),
            data=st.dictionaries(st.sampled_from(["block", "message", "role", "content"]), json_values, max_size=3),
        ),
        st.builds(ModelRequest, st.sampled_from([*CASES]), st.just("m"), system_hash=_texts),
        st.just(PlannerNote("note to self")),
        st.just(Annotation("remark")),
    )


# Built once, because building a strategy takes longer than drawing from it.
LIVE_PAYLOADS = st.lists(live_payloads(), max_size=12)
ANY_PAYLOADS = st.lists(live_payloads() | payloads(), max_size=8)


@every_case
@given(data=st.data())
def test_any_run_can_be_built_repaired_and_cut(case: Case, data: st.DataObject) -> None:
    drawn_payloads = data.draw(ANY_PAYLOADS)
    built = build(run_of(*drawn_payloads), case.provider, max_result_bytes=data.draw(st.none() | st.just(3)))
    text = encode_canonical(built)
    assert b"top secret" not in text
    assert b"note to self" not in text
    assert all(isinstance(message, dict) for message in built)
    repaired = repair(built, case.provider)
    assert validate(repaired.transcript, case.provider) == []
    for size in (1, 4):
        window(built, case.provider, max_events=size)


@every_case
def test_build_leaves_out_events_outside_the_conversation(case: Case) -> None:
    spoken: list[EventData] = [UserMessage("U"), AssistantMessage("A")]
    built = build(run_of(*spoken), case.provider)
    odd: list[EventData] = [PlannerNote("n"), Annotation("x"), ModelRequest(case.provider, "m")]
    assert build(run_of(spoken[0], *odd, spoken[1], *odd), case.provider) == built


@every_case
def test_build_reports_unknown_event_types(case: Case) -> None:
    built = build(run_of(UserMessage("U"), UnknownPayload("handoff", {}), UnknownPayload("x.block", {})), case.provider)
    assert [(loss.reason, loss.seq, loss.type) for loss in built.losses] == [
        ("unknown_type", 2, "handoff"),
        ("unknown_type", 3, "x.block"),
    ]
    assert "handoff" in built.losses[0].message


# Findings and repair.


@every_case
@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
def test_handwritten_valid_conversations_have_no_findings(case: Case, recorded: bool) -> None:
    for messages in case.valid.values():
        transcript = _plain_or_recorded(messages, case.provider, recorded=recorded)
        assert validate(transcript, case.provider) == []
        repaired = repair(transcript, case.provider)
        assert repaired.changes == ()
        assert encode_canonical(repaired.transcript) == encode_canonical(messages)
        case.judge(messages)


@every_case
@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
@given(data=st.data())
def test_drawn_valid_conversations_have_no_findings(case: Case, recorded: bool, data: st.DataObject) -> None:
    messages = data.draw(case.sound)
    transcript = _plain_or_recorded(messages, case.provider, recorded=recorded)
    assert validate(transcript, case.provider) == []
    assert repair(transcript, case.provider).changes == ()
    assert repair(transcript, case.provider).transcript == messages
    case.judge(messages)


def _plain_or_recorded(messages: list[Message], provider: str, *, recorded: bool) -> list[Message]:
    return build(snapshot_of(parse(messages, provider)), provider) if recorded else messages


@every_case
@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
@given(data=st.data())
def test_repaired_transcript_has_no_findings(case: Case, recorded: bool, data: st.DataObject) -> None:
    messages = data.draw(case.hostile)
    transcript = _plain_or_recorded(messages, case.provider, recorded=recorded)
    findings = validate(transcript, case.provider)
    repaired = repair(transcript, case.provider)
    assert transcript == messages
    assert validate(repaired.transcript, case.provider) == []
    assert bool(repaired.changes) == bool(findings)
    again = repair(repaired.transcript, case.provider)
    assert (again.changes, again.transcript) == ((), repaired.transcript)
    twin = repair(_plain_or_recorded(copy.deepcopy(messages), case.provider, recorded=recorded), case.provider)
    assert (twin.changes, twin.transcript) == (repaired.changes, repaired.transcript)
    _spoil(list(repaired.transcript))
    assert transcript == messages
    for finding in findings:
        assert (finding.seq is not None) is recorded
        _assert_path_exists(messages, finding)
    assert findings == sorted(findings, key=lambda finding: finding.path[0])
    for change in repaired.changes:
        assert change.message
        assert change.path
        assert isinstance(change.path[0], int)
        assert -1 < change.path[0] < len(messages)


def _assert_path_exists(messages: Sequence[Message], finding: Finding) -> object:
    """Check that the finding's path exists, except perhaps its last key, and return the value that holds that key."""
    value: Any = messages
    for step in finding.path[:-1]:
        value = value[step]
    assert finding.rule
    assert finding.message
    return value


@every_case
@given(data=st.data())
def test_provider_package_accepts_repaired_messages(case: Case, data: st.DataObject) -> None:
    case.judge(repair(data.draw(st.lists(case.good, max_size=8)), case.provider).transcript)


@every_case
@given(data=st.data())
def test_repair_drops_reasoning_signed_before_an_edit(case: Case, data: st.DataObject) -> None:
    messages = data.draw(case.sound)
    built = build(snapshot_of(parse(messages, case.provider)), case.provider)
    user_indexes = [index for index, message in enumerate(built) if message.get("role") == "user"]
    if not user_indexes:
        return
    edited_index = data.draw(st.sampled_from(user_indexes))
    built[edited_index] = build(run_of(UserMessage("something else")), case.provider)[0]
    repaired = repair(built, case.provider)
    assert validate(repaired.transcript, case.provider) == []
    texts = [encode_canonical(message) for message in repaired.transcript]
    begin = next(index for index, text in enumerate(texts) if b"something else" in text)
    without = find_provider(case.provider).without_reasoning
    assert not holds_thought([message for message in repaired.transcript[begin:] if without(message) is not message])
    before = [encode_canonical(message) for message in messages[:edited_index]]
    assert all(text in texts[: begin + 1] for text in before if b"tool" not in text)


@every_case
def test_validate_and_repair_refuse_a_transcript_that_is_no_list(case: Case) -> None:
    for transcript in (None, 5, "x", b"x", {"role": "user"}):
        untyped: Any = transcript
        for function in (validate, repair):
            with pytest.raises(Exception, match="must be a list of maps"):
                function(untyped, case.provider)
    non_maps: Any = [5, None, "x"]
    assert all(finding.rule.endswith("_shape") for finding in validate(non_maps, case.provider))
    assert [finding.path[0] for finding in validate(non_maps, case.provider)] == [0, 1, 2]
    assert repair(non_maps, case.provider).transcript == []


def test_transcript_of_another_provider_is_refused() -> None:
    built = build(run_of(UserMessage("U")), "anthropic")
    functions: list[Callable[[], object]] = [
        lambda: validate(built, "openai-chat"),
        lambda: repair(built, "openai-chat"),
        lambda: window(built, "openai-chat", max_events=1),
    ]
    for function in functions:
        with pytest.raises(InvalidArgument, match="is for anthropic, not for openai-chat"):
            function()


# Live runs and conversion to another provider.


@st.composite
def live_runs(draw: st.DrawFn) -> list[EventData]:
    """Draw a run as a runtime records it, with parallel and nested calls, errors, repeated ids and thinking."""
    run: list[EventData] = [SystemMessage("Be kind.")] if draw(st.booleans()) else []
    number = 0
    for turn in range(draw(st.integers(0, 3))):
        run.append(UserMessage(f"question {turn}"))
        for _ in range(draw(st.integers(0, 2))):
            number += 1
            if draw(st.booleans()):
                run.append(Thinking(text=f"{THOUGHT} {number}", signature=f"{THOUGHT} signed {number}", final=True))
            if draw(st.booleans()):
                run.append(AssistantMessage(draw(st.sampled_from(["Let me look.", ""]))))
            calls = [
                ToolCall(
                    draw(st.sampled_from(["call", "a.b", "x" * 70])) + str(n),
                    draw(st.sampled_from(NAMES)),
                    payload_json=text,
                )
                for n, text in enumerate(
                    draw(st.lists(st.sampled_from(["", "{}", '{"id": 7}']), min_size=1, max_size=3))
                )
            ]
            run += calls
            answers: list[EventData] = []
            for call in calls:
                if draw(st.booleans()):
                    run.append(ToolCall("inner", "inner.tool", call.tool_call_id))
                    run.append(ToolResult("inner", "inner.tool", call.tool_call_id, result_json='"inner"'))
                answers.append(
                    ToolResult(call.tool_call_id, call.tool_name, error_message="timeout")
                    if draw(st.booleans())
                    else ToolResult(
                        call.tool_call_id, call.tool_name, result_json=draw(st.sampled_from(["", "1", '{"a": 1}']))
                    )
                )
            run += draw(st.permutations(answers))
        run.append(AssistantMessage(f"answer {turn}"))
    return run


NAMES = ["orders.find", "find", "mcp__s__t", "a--b", "a-b.c", "Grüße", "a b", "-.", "x-_2e-y"]


@every_case
@given(run=live_runs())
def test_live_run_is_valid_for_every_provider(case: Case, run: list[EventData]) -> None:
    snapshot = run_of(*run)
    built = build(snapshot, case.provider)
    assert validate(built, case.provider) == []
    case.judge(built)
    assert b"inner" not in encode_canonical(built)
    _assert_no_thought(case, built)
    names = [data.tool_name for data in run if isinstance(data, ToolCall) and not data.parent_tool_call_id]
    again = [event.data for event in parse(built, case.provider)]
    assert [data.tool_name for data in again if isinstance(data, ToolCall)] == names
    assert_exact(list(built), case.provider)


def _assert_no_thought(case: Case, built: Sequence[Message]) -> None:
    without = find_provider(case.provider).without_reasoning
    assert not holds_thought([without(message) for message in built])


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda case: case.provider)
@settings(max_examples=EXAMPLES // 2)
@given(data=st.data())
def test_run_of_one_provider_can_be_built_for_another(source: Case, target: Case, data: st.DataObject) -> None:
    messages = data.draw(source.sound)
    snapshot = snapshot_of(parse(messages, source.provider))
    built = build(snapshot, target.provider)
    _assert_no_thought(target, built)
    repaired = repair(built, target.provider)
    assert validate(repaired.transcript, target.provider) == []
    target.judge(repaired.transcript)
    user_messages = [event.data for event in snapshot.log if isinstance(event.data, UserMessage)]
    user_texts = [part for message in user_messages for part in parts_of(message) if isinstance(part, str)]
    text = encode_canonical(repaired.transcript).decode()
    assert all(json.dumps(user_text, ensure_ascii=False)[1:-1] in text for user_text in user_texts)
    dropped = {loss.seq for loss in built.losses}
    for event in snapshot.log:
        if isinstance(event.data, UnknownPayload):
            assert event.seq in dropped or parts_of(event.data)


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda case: case.provider)
def test_build_reports_the_data_of_another_provider(source: Case, target: Case) -> None:
    structured: JsonValue = {source.provider: {"fields": {"x": 1}}}
    built = build(
        run_of(
            UserMessage("U", structured),
            Thinking(text="t", signature="s", structured=structured),
            ToolCall("c", "f", structured=structured),
            ToolResult("c", "f", result_json="1", structured=structured),
            UnknownPayload(f"{source.provider}.block", {"x": 1}),
        ),
        target.provider,
    )
    assert [(loss.reason, loss.seq) for loss in built.losses] == [
        ("other_provider", 1),
        ("reasoning", 2),
        ("other_provider", 3),
        ("other_provider", 4),
        ("other_provider", 5),
    ]
    assert b'"x"' not in encode_canonical(built)


# Results that are too large, or have an error and a value.


@every_case
@pytest.mark.parametrize("limit", [None, 65_536])
def test_build_omits_results_above_the_limit(case: Case, limit: int | None) -> None:
    large = "é" * 40_000
    bounds = Bounds(returned=1, total=2, truncated=True, refinement_hint="name a year")
    snapshot = run_of(
        UserMessage("U"),
        *(ToolCall(call_id, "f") for call_id in "abcd"),
        ToolResult("a", "f", result_json=large, bounds=bounds),
        ToolResult("b", "f", result_json="x" * 65_536),
        ToolResult("c", "f", error_message="E" * 70_000, retry_hint=RetryHint(message="H" * 70_000)),
        ToolResult("d", "f", result_json="y" * 200_000, error_message="timed out", preview="short"),
    )
    assert large in encode_canonical(build(snapshot, case.provider, max_result_bytes=10**9)).decode()
    built = build(snapshot, case.provider, max_result_bytes=limit)
    assert [(loss.reason, loss.seq) for loss in built.losses] == [("size_limit", 6), ("size_limit", 9)]
    lines = [line for text in _texts_in(built) for line in text.splitlines()]
    assert [json.loads(line) for line in lines if "omitted" in line] == [
        {
            "omitted": True,
            "reason": "size_limit",
            "note": "[78,000 of 80,000 bytes left out]",
            "preview": "é" * 1000,
            "bounds": bounds.to_map(),
        },
        {
            "omitted": True,
            "reason": "size_limit",
            "note": "[200,000 of 200,000 bytes left out]",
            "preview": "short",
            "bounds": None,
        },
    ]
    assert lines[lines.index("timed out") + 1].startswith('{"omitted"')
    assert {"E" * 70_000, "H" * 70_000, "x" * 65_536} <= set(lines)
    assert [finding.rule for finding in validate(built, case.provider)] == ["error_and_value"]
    # The model received what ``build`` returns by default, but not what another limit leaves.
    assert built.recorded is not None
    assert (built.recorded.edited_from is None) == (limit is None)
    failures = 3 * 70_000
    for small in (1, 100, 1000):
        assert len(encode_canonical(build(snapshot, case.provider, max_result_bytes=small))) < failures + 3000


@every_case
@pytest.mark.parametrize("content", ["x" * 70_000, "é" * 33_000, "🧾" * 17_000, json.dumps(["x" * 70_000])])
def test_a_result_of_a_provider_is_sent_whole_again(case: Case, content: str) -> None:
    original = build(
        run_of(UserMessage("U"), ToolCall("a", "f"), ToolResult("a", "f", result_json=content)),
        case.provider,
        max_result_bytes=10**9,
    )
    events = [Event.from_map(json.loads(json.dumps(event.to_map()))) for event in parse(original, case.provider)]
    snapshot = snapshot_of(events)
    assert build(snapshot, case.provider) == original
    for other in CASES.values():
        built = build(snapshot, other.provider)
        assert content.strip('["]') in encode_canonical(built).decode()  # Gemini has JSON where others have text
        assert "size_limit" not in {loss.reason for loss in built.losses}
        assert not [loss for loss in built.losses if loss.type == "tool_result"]


@every_case
@given(
    error=st.sampled_from(["", "no such order", "two\nlines"]),
    hint=st.sampled_from(["", "ask for the id", "no such order"]),
    value=st.sampled_from(["", "[]", "plain text"]),
)
def test_the_model_receives_the_error_the_hint_and_the_value(case: Case, error: str, hint: str, value: str) -> None:
    retry_hint = RetryHint(reason="timeout", message=hint) if hint else None
    payload = ToolResult("a", "f", result_json=value, error_message=error, retry_hint=retry_hint)
    built = build(run_of(UserMessage("U"), ToolCall("a", "f"), payload), case.provider)
    failure = "\n".join(part for part in (error, "" if hint and hint in error else hint) if part)
    if case.provider == "gemini":
        response = built[-1]["parts"][0]["functionResponse"]["response"]
        assert (response.get("error", ""), response.get("output", "")) == (failure, json_or_text(value))
    else:
        assert "\n".join(part for part in (failure, value) if part) in [*_texts_in(built), ""]
    assert not built.losses
    again = build(snapshot_of(parse(built, case.provider)), case.provider)
    assert again == built


def _texts_in(value: object) -> list[str]:
    """Return every text in a transcript."""
    if is_map(value):
        return [text for item in value.values() for text in _texts_in(item)]
    if is_list(value):
        return [text for item in value for text in _texts_in(item)]
    return [value] if isinstance(value, str) else []


_LIMITED: dict[str, Callable[[object], list[Message]]] = {
    "anthropic": lambda content: [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": content}]},
    ],
    "bedrock": lambda content: [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "c", "content": content}}]},
    ],
    "gemini": lambda content: [
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": content}]},
    ],
    "openai-chat": lambda content: [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": content},
    ],
    "openai-responses": lambda content: [
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": content},
    ],
}


@pytest.mark.parametrize(
    ("provider", "content", "size"),
    [
        ("anthropic", "é" * 50, 100),
        ("anthropic", [{"type": "text", "text": "x" * 100}], 100),
        ("anthropic", [{"type": "text", "text": "x" * 50, "cache_control": {"type": "ephemeral"}}], 50),
        ("anthropic", [{"type": "text", "text": "x"}, {"type": "image", "source": "y" * 100}], 1 + 128),
        ("bedrock", [{"text": "x" * 50}, {"text": "y" * 49}], 100),
        ("bedrock", [{"json": {"a": "é" * 46}}], 100),
        ("gemini", {"name": "f", "response": {"output": "é" * 49}}, 100),
        ("gemini", {"name": "f", "response": {"output": "x" * 50}, "parts": [{"inlineData": {"data": "y" * 50}}]}, 130),
        ("openai-chat", [{"type": "text", "text": "🧾" * 25}], 100),
        ("openai-chat", {"odd": "x" * 90}, 100),
        ("openai-responses", [{"type": "input_text", "text": "x" * 100}], 100),
    ],
)
def test_max_result_bytes_counts_the_content_sent_to_the_model(provider: str, content: object, size: int) -> None:
    messages = _LIMITED[provider](content)
    snapshot = snapshot_of(parse(messages, provider))
    assert build(snapshot, provider, max_result_bytes=size) == messages
    (loss,) = build(snapshot, provider, max_result_bytes=size - 1).losses
    assert loss.reason == "size_limit"


@every_case
@pytest.mark.parametrize("limit", [0, -1, 1.5, "1"])
def test_build_refuses_an_invalid_max_result_bytes(case: Case, limit: Any) -> None:
    with pytest.raises(InvalidArgument, match="max_result_bytes"):
        build(run_of(), case.provider, max_result_bytes=limit)


@every_case
def test_validate_reports_a_result_with_an_error_and_a_value(case: Case) -> None:
    built = build(
        run_of(
            UserMessage("T"),
            AssistantMessage("A"),
            UserMessage("U"),
            ToolCall("a", "f"),
            ToolCall("b", "f"),
            ToolResult("a", "f", result_json="1"),
            ToolResult("b", "f", result_json="2", error_message="late"),
        ),
        case.provider,
    )
    cut = window(built, case.provider, since_turn=-1).transcript
    for transcript in (built, cut):
        findings = validate(transcript, case.provider)
        assert [(finding.rule, finding.seq) for finding in findings] == [("error_and_value", 7)]
    repaired = repair(built, case.provider)
    assert [(change.change, change.seq) for change in repaired.changes] == [("kept_value", 7)]
    assert repaired.transcript == built
    assert validate(repaired.transcript, case.provider) == []


# Windows.


@every_case
@given(data=st.data())
def test_window_is_a_valid_end_of_the_transcript(case: Case, data: st.DataObject) -> None:
    run = [*data.draw(live_runs()), UserMessage("and now?")]
    built = build(run_of(*run), case.provider)
    kind = data.draw(st.sampled_from(["max_events", "max_tokens", "since_turn"]))
    value = data.draw(st.integers(1, 30))
    limits: dict[str, Any] = {kind: value}
    turns = sum(isinstance(payload, UserMessage) for payload in run)
    if kind == "since_turn":
        limits[kind] = value = data.draw(st.integers(-turns - 1, turns).filter(bool))
    plain = data.draw(st.booleans())
    source: Any = data.draw(st.sampled_from([built, run_of(*run)])) if not plain else list(built)
    window_result = window(source, case.provider, **limits)
    assert validate(window_result.transcript, case.provider) == []
    remaining = list(window_result.transcript)
    assert remaining[-1] == built[-1]
    if window_result.transcript != built:
        assert window_result.left_out
        assert not holds_thought(window_result.transcript)
    else:
        assert window_result.left_out == ()
    if kind == "since_turn":
        question_count = sum(
            message.get("role") == "user" and "question" in json.dumps(message) for message in remaining
        )
        assert window_result.fits
        expected = turns - value + 1 if value > 0 else min(-value, turns)
        assert question_count == expected - 1
    elif kind == "max_events" and not plain and window_result.fits:
        assert window_result.transcript.origins is not None
        assert sum(len(window_result.transcript.origins.events_of(index)) for index in range(len(remaining))) <= value
    for index, message in enumerate(remaining):
        seq = window_result.transcript.seq_at((index,))
        assert (seq is None) is plain
        if not plain and message.get("role") == "user" and "question" in json.dumps(message):
            assert seq is not None
            assert isinstance(run[seq - 1], (UserMessage, ToolResult))


@every_case
def test_window_accepts_every_handwritten_conversation(case: Case) -> None:
    for messages in case.conversations.values():
        for transcript in (messages, *([message] for message in messages)):
            window_result = window(transcript, case.provider, max_events=1)
            assert bool(window_result.left_out) == (window_result.transcript != transcript)
        for message in messages:
            plain = find_provider(case.provider).without_reasoning(message)
            assert plain is None or find_provider(case.provider).without_reasoning(plain) is plain


@every_case
@given(data=st.data())
def test_window_accepts_any_transcript(case: Case, data: st.DataObject) -> None:
    messages = data.draw(case.hostile)
    window_result = window(messages, case.provider, max_events=data.draw(st.integers(1, 8)))
    assert len(window_result.transcript) <= len(messages)
    assert bool(window_result.left_out) == (window_result.transcript != messages)


@every_case
def test_window_cuts_a_long_turn_between_rounds(case: Case) -> None:
    rounds: list[EventData] = []
    for number in range(50):
        rounds += [ToolCall(f"c{number}", "f"), ToolResult(f"c{number}", "f", result_json=str(number))]
    built = build(run_of(UserMessage("U"), AssistantMessage("A"), UserMessage("long"), *rounds), case.provider)
    window_result = window(built, case.provider, max_events=21)
    assert window_result.fits
    assert window_result.transcript == [built[2], *built[-20:]]
    assert [loss.reason for loss in window_result.left_out] == ["window", "window"]
    assert [loss.seq for loss in window_result.left_out] == [1, 4]
    assert [loss.message for loss in window_result.left_out] == [
        "messages 0 to 1 of the transcript",
        "messages 3 to 82 of the transcript",
    ]
    assert validate(window_result.transcript, case.provider) == []
    least = window(built, case.provider, max_events=1)
    assert not least.fits
    assert least.transcript == [built[2], *built[-2:]]


@every_case
def test_window_counts_tokens_with_count_tokens(case: Case) -> None:
    built = build(run_of(UserMessage("1"), AssistantMessage("2"), UserMessage("3")), case.provider)
    window_result = window(built, case.provider, max_tokens=1, count_tokens=lambda _: 1)
    assert (window_result.transcript, window_result.fits) == ([built[-1]], True)
    assert window(built, case.provider, max_tokens=2, count_tokens=lambda _: 1).transcript == [built[-1]]
    assert window(built, case.provider, max_tokens=3, count_tokens=lambda _: 1).transcript == built
    assert not window(built, case.provider, max_tokens=1).fits
    assert window(built, case.provider, max_tokens=1000).transcript == built
    assert window([], case.provider, max_tokens=1).transcript == []


@every_case
@pytest.mark.parametrize(
    ("limits", "match"),
    [
        ({"max_events": 0}, "max_events"),
        ({"max_events": "1"}, "max_events"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"since_turn": 0}, "since_turn"),
        ({"since_turn": 3}, "has 2 turns"),
    ],
)
def test_window_refuses_invalid_limits(case: Case, limits: Mapping[str, Any], match: str) -> None:
    built = build(run_of(UserMessage("U"), AssistantMessage("A"), UserMessage("V")), case.provider)
    with pytest.raises(InvalidArgument, match=match):
        window(built, case.provider, **limits)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize(
    ("message", "match"), [("x", r"messages\[1\] must be a map"), ({"x": {"a": {1}}}, r"messages\[1\]\.x\.a .*set")]
)
def test_window_refuses_messages_that_are_no_json(case: Case, message: Any, match: str) -> None:
    with pytest.raises(DecodeError, match=match):
        window([{}, message], case.provider, max_tokens=1)


# Requests.


@every_case
def test_request_restores_arguments_that_are_recorded_once(case: Case) -> None:
    tools = case.tools("orders--find", "D", {"type": "object"})
    first = model_request(run_of(), case.provider, model="m1", system="S", tools=tools, parameters={"temperature": 0.5})
    assert (first.system, first.tools) == ("S", tools)
    snapshot = run_of(first, UserMessage("U"))
    second = model_request(snapshot, case.provider, model="m2", system="S", tools=tools)
    assert (second.system, second.tools) == (None, None)
    assert (second.system_hash, second.tools_hash) == (first.system_hash, first.tools_hash)
    third = model_request(snapshot, case.provider, model="m2", system="other", tools=None)
    assert (third.system, third.tools, third.tools_hash) == ("other", None, "")
    provider = find_provider(case.provider)
    arguments = request(run_of(first, UserMessage("U"), second), case.provider)
    transcript = arguments.pop(provider.messages_key)
    assert transcript[-1] == build(run_of(UserMessage("U")), case.provider)[-1]
    assert "m2" in arguments.values()
    assert arguments[provider.tools_key] == tools
    assert "temperature" not in arguments
    assert "S" in json.dumps([arguments, transcript])
    _spoil(arguments[provider.tools_key])
    assert request(run_of(first), case.provider)[provider.tools_key] == tools
    assert request(run_of(first), case.provider)["temperature"] == 0.5


@every_case
def test_request_converts_the_arguments_of_another_provider(case: Case) -> None:
    for other in CASES.values():
        if other is case:
            continue
        tool: tuple[str, str, Mapping[str, JsonValue]] = ("find", "D", {"type": "object", "properties": {"id": {}}})
        recorded = model_request(run_of(), other.provider, model="m", system="Be kind.", tools=other.tools(*tool))
        arguments = request(run_of(recorded, UserMessage("U")), case.provider)
        assert "model" not in arguments
        assert arguments[find_provider(case.provider).tools_key] == case.tools(*tool)
        assert json.dumps(arguments).count("Be kind.") == 1


@every_case
@pytest.mark.parametrize("leading", [False, True])
def test_validate_repair_and_window_use_the_recorded_request(case: Case, leading: bool) -> None:
    tools = case.tools("f", "D", {"type": "object"})
    recorded = model_request(run_of(), case.provider, model="m", system=None if leading else "S", tools=tools)
    first = [SystemMessage("S")] if leading else []
    events = [event.data for event in parse(_REASONED[case.provider], case.provider)]
    snapshot = run_of(*first, recorded, *events, UserMessage("again"), ToolCall("c2", "f"))
    built = build(snapshot, case.provider)
    arguments = request(snapshot, case.provider)
    assert {finding.rule for finding in validate(built, case.provider)} == {"unanswered_call"}
    assert validate(built, case.provider, request=arguments) == validate(built, case.provider)
    assert [change.change for change in repair(built, case.provider).changes] == ["answered_call"]
    for repaired in (repair(built, case.provider), repair(built, case.provider, request=arguments)):
        assert not set(repaired.request) & {"messages", "input", "contents"}
        assert repaired.request["tools" if "tools" in repaired.request else "toolConfig"] == tools
        assert validate(repaired.transcript, case.provider) == []
        assert validate(repaired.transcript, case.provider, request=repaired.request) == []
        assert repair(repaired.transcript, case.provider).changes == ()
    window_result = window(repair(built, case.provider).transcript, case.provider, since_turn=-1)
    assert validate(window_result.transcript, case.provider, request=window_result.request) == []
    assert window_result.request == repair(built, case.provider).request


@every_case
def test_later_request_to_another_provider_changes_nothing(case: Case) -> None:
    other = next(name for name in CASES if name != case.provider)
    events = [event.data for event in parse(_REASONED[case.provider], case.provider)]
    own_request = model_request(run_of(), case.provider, model="m", system="S")
    built = build(run_of(own_request, *events, model_request(run_of(), other, model="n", system="T")), case.provider)
    repaired = repair(built, case.provider)
    assert (repaired.transcript, repaired.changes) == (built, ())
    assert repaired.request["modelId" if "modelId" in repaired.request else "model"] == "m"
    assert validate(repaired.transcript, case.provider, request=repaired.request) == []


_REASONED: dict[str, list[Message]] = {
    "anthropic": [
        {"role": "user", "content": "U"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": THOUGHT, "signature": "1"},
                {"type": "text", "text": "A"},
            ],
        },
    ],
    "bedrock": [
        {"role": "user", "content": [{"text": "U"}]},
        {
            "role": "assistant",
            "content": [
                {"reasoningContent": {"reasoningText": {"text": THOUGHT, "signature": "1"}}},
                {"text": "A"},
            ],
        },
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "U"}]},
        {"role": "model", "parts": [{"text": THOUGHT, "thought": True, "thoughtSignature": "MTIz"}, {"text": "A"}]},
    ],
    "openai-chat": [{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}],
    "openai-responses": [
        {"role": "user", "content": "U"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": THOUGHT},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "A", "annotations": []}],
        },
    ],
}


@pytest.mark.parametrize("provider", sorted(CASES.keys() - {"anthropic"}))
def test_losses_name_lost_parts_and_nothing_else(provider: str) -> None:
    plain: Message = {"type": "text", "text": "Look.", "cache_control": {"type": "ephemeral"}}
    result: Message = {
        "type": "tool_result",
        "tool_use_id": "c",
        "is_error": False,
        "content": [{"type": "text", "text": "1"}],
    }
    call: Message = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    messages: list[Message] = [
        {"role": "user", "content": [plain, plain]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [result]},
    ]
    assert not build(snapshot_of(parse(messages, "anthropic", source="s")), provider).losses
    thing: Message = {"type": "search_result", "source": "s", "title": "t", "content": []}
    messages[0] = {"role": "user", "content": [plain, thing]}
    (loss,) = build(snapshot_of(parse(messages, "anthropic", source="s")), provider).losses
    assert (loss.reason, loss.seq, loss.type) == ("other_provider", 1, "user_message")
    assert "search_result" in loss.message


@every_case
def test_request_without_a_recorded_request_has_only_messages(case: Case) -> None:
    provider = find_provider(case.provider)
    assert request(run_of(UserMessage("U")), case.provider) == {
        provider.messages_key: build(run_of(UserMessage("U")), case.provider)
    }
    erased = run_of(Redacted("model_request"), UserMessage("U"), ModelRequest(case.provider, "m", system_hash="gone"))
    assert "m" in request(erased, case.provider).values()


@every_case
def test_request_includes_the_leading_system_messages(case: Case) -> None:
    arguments = request(run_of(SystemMessage("Be kind."), SystemMessage("Be brief."), UserMessage("U")), case.provider)
    text = json.dumps(arguments)
    assert text.count("Be kind.") == text.count("Be brief.") == 1


@pytest.mark.parametrize("provider", ["", "openai", "ANTHROPIC", None, []])
def test_unknown_provider_error_names_the_providers(provider: Any) -> None:
    functions: list[Callable[[], object]] = [lambda: parse([], provider), lambda: build(run_of(), provider)]
    for function in functions:
        with pytest.raises(InvalidArgument, match=", ".join(provider_names())):
            function()


def test_transcript_without_a_run_has_no_seqs() -> None:
    transcript = Transcript([{"role": "user"}], provider="anthropic")
    assert transcript.seq_at((0,)) is None
    built = build(run_of(UserMessage("U")), "anthropic")
    assert [built.seq_at(path) for path in ((0,), (0, "content", 0), (0, "content", 9), (1,), (), ("x",), (-1,))] == [
        1,
        1,
        1,
        None,
        None,
        None,
        None,
    ]


@every_case
def test_messages_that_are_parsed_one_by_one_are_all_stored(case: Case) -> None:
    messages = next(messages for messages in case.valid.values() if len(messages) > 1)
    repeated = [*messages, *messages, messages[0], messages[0]]
    with open_sync_store("memory:") as store:
        appended = [store.append_events("a", "r", *parse([message], case.provider)) for message in repeated]
        assert store.load_run("a", "r").version == sum(result.inserted for result in appended)
        assert all(result.inserted == len(result.events) for result in appended)
        assert [event.data for event in store.load_run("a", "r").log] == [
            event.data for message in repeated for event in parse([message], case.provider)
        ]


@every_case
def test_window_keeps_the_latest_rounds_of_a_turn_that_is_too_long(case: Case) -> None:
    """A short message after a long turn, such as "go on", must not remove the whole turn."""
    long_turn: list[EventData] = [UserMessage("count the files")]
    for number in range(20):
        long_turn += [ToolCall(f"c{number}", "t", payload_json="{}"), ToolResult(f"c{number}", "t", result_json="1")]
    cut = window(
        run_of(UserMessage("hi"), AssistantMessage("hello"), *long_turn, UserMessage("go on")),
        case.provider,
        max_events=12,
    )
    text = repr(list(cut.transcript))
    assert cut.fits
    assert "count the files" in text
    assert "go on" in text
    assert "hello" not in text
    origins = cut.transcript.origins
    assert origins is not None
    assert len(set[int]().union(*map(origins.events_of, range(len(cut.transcript))))) in (11, 12)
    assert validate(cut.transcript, case.provider) == []
