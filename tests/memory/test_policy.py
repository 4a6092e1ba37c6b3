"""Tests of policy and execution: stable reasons, limits on numbers, and written or blocked records."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import open_sync_store
from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.memory import Candidate, Episode, Fact, Preference, SyncMemoryClient
from agent_memory_log.memory.policy import (
    MemoryExecution,
    MemoryPolicy,
    RetrievalIntent,
    read_candidates,
    read_intent,
    stop_secrets,
)
from agent_memory_log.memory.policy.reasons import KEY_DENIED, MAX_CAPTURE_ITEMS, SCOPE_DENIED
from agent_memory_log.memory.records.candidates import checked
from tests.memory.stores import somebody

ITEM: dict[str, object] = {"key": "language", "value": "english"}
INTENT: dict[str, object] = {"kind": "retrieve_memory", "query": "payment incident"}


def items(*values: object) -> str:
    return json.dumps({"items": values})


def item(**changes: object) -> str:
    return items({**ITEM, **changes})


def intent(**changes: object) -> str:
    return json.dumps({**INTENT, **changes})


def reason_of(call: Callable[[], object]) -> str:
    with pytest.raises(MemoryStopped) as caught:
        call()
    return caught.value.reason


CANDIDATE_REASONS = [
    ("not_object", "[]"),
    ("not_object", "null"),
    ("not_object", '"text"'),
    ("not_object", "NaN"),
    ("items", "{"),
    ("items", ""),
    ("items", "no JSON at all"),
    ("items", "[" * 100_000),
    ("items", "1" * 5_000),
    ("items", "{}"),
    ("items", '{"items": {}}'),
    ("items", '{"items": null}'),
    ("item", items("text")),
    ("item", items(ITEM, None)),
    ("item", items([])),
    ("missing_keys", items({})),
    ("missing_keys", items({"key": "language"})),
    ("missing_keys", items({"value": "english"})),
    ("key", item(key="")),
    ("key", item(key=" \n")),
    ("key", item(key=None)),
    ("key", item(key=7)),
    ("key", item(key="\ud800")),
    ("value", item(value="")),
    ("value", item(value="  ")),
    ("value", item(value=None)),
    ("value", item(value=True)),
    ("value", item(value=["english"])),
    ("value", item(value="\udfff")),
    ("value_too_long", item(value="x" * 121)),
    ("scope", item(scope="")),
    ("scope", item(scope=1)),
    ("scope", item(scope=["user"])),
    ("ttl_days", item(ttl_days="30")),
    ("ttl_days", item(ttl_days=True)),
    ("ttl_days", item(ttl_days=False)),
    ("ttl_days", item(ttl_days=float("nan"))),
    ("ttl_days", item(ttl_days=float("inf"))),
    ("ttl_days", '{"items": [{"key": "a", "value": "b", "ttl_days": 1e999}]}'),
    ("confidence", item(confidence="high")),
    ("confidence", item(confidence=True)),
    ("confidence", item(confidence=float("nan"))),
    ("confidence", item(confidence=-float("inf"))),
    ("confidence", item(confidence=[0.5])),
    ("too_many_items", items(*[ITEM] * 7)),
]

INTENT_REASONS = [
    ("not_object", "[]"),
    ("not_object", "3"),
    ("kind", "{"),
    ("kind", "I would look for payments."),
    ("kind", "{}"),
    ("kind", intent(kind="retrieve")),
    ("kind", intent(kind=None)),
    ("query", intent(query="")),
    ("query", intent(query=" ")),
    ("query", intent(query=None)),
    ("query", intent(query=["payment"])),
    ("query", intent(query="\ud800")),
    ("query_too_long", intent(query="x" * 241)),
    ("top_k", intent(top_k=0)),
    ("top_k", intent(top_k=7)),
    ("top_k", intent(top_k=-1)),
    ("top_k", intent(top_k=True)),
    ("top_k", intent(top_k=2.5)),
    ("top_k", intent(top_k="4")),
    ("top_k", intent(top_k=float("nan"))),
    ("scopes", intent(scopes="user")),
    ("scopes", intent(scopes=[])),
    ("scopes", intent(scopes={"user": 1})),
    ("scope_item", intent(scopes=["user", ""])),
    ("scope_item", intent(scopes=[1])),
    ("scope_item", intent(scopes=[None])),
    ("include_preference_keys", intent(include_preference_keys="language")),
    ("include_preference_keys", intent(include_preference_keys=["language", " "])),
    ("include_preference_keys", intent(include_preference_keys=[None])),
    ("scope_not_allowed:team", intent(scopes=["user", "workspace", "team"])),
]


@pytest.mark.parametrize(("reason", "raw"), CANDIDATE_REASONS)
def test_invalid_candidates_stop_with_a_stable_reason(reason: str, raw: str) -> None:
    assert reason_of(lambda: read_candidates(raw)) == f"invalid_memory_candidates:{reason}"


@pytest.mark.parametrize(("reason", "raw"), INTENT_REASONS)
def test_invalid_intents_stop_with_a_stable_reason(reason: str, raw: str) -> None:
    assert reason_of(lambda: read_intent(raw, allowed_scopes=("user", "zone"))) == f"invalid_retrieval_intent:{reason}"


def test_tables_contain_every_reason() -> None:
    assert {reason for reason, _ in CANDIDATE_REASONS} == {
        "not_object", "items", "item", "missing_keys", "key", "value", "value_too_long", "scope", "ttl_days",
        "confidence", "too_many_items",
    }  # fmt: skip
    assert {reason.partition(":")[0] for reason, _ in INTENT_REASONS} == {
        "not_object", "kind", "query", "query_too_long", "top_k", "scopes", "scope_item", "scope_not_allowed",
        "include_preference_keys",
    }  # fmt: skip


def test_candidate_requires_only_key_and_value() -> None:
    assert read_candidates(items(ITEM)) == read_candidates(item(scope=None, ttl_days=None, confidence=None))
    (candidate,) = read_candidates(items({**ITEM, "key": " language ", "value": "english\n", "why": "they said so"}))
    assert (candidate.data, candidate.scope, candidate.ttl_days, candidate.confidence) == (
        Preference("language", "english"), "", None, 0.8,
    )  # fmt: skip
    assert read_candidates(items()) == ()


@pytest.mark.parametrize(
    ("days", "expected"), [(0, 1), (-(10**400), 1), (30, 30), (30.9, 30), (366, 365), (10**400, 365)]
)
def test_ttl_days_is_limited_to_1_through_365(days: float, expected: int) -> None:
    (candidate,) = read_candidates(item(ttl_days=days))
    assert candidate.ttl_days == expected


@pytest.mark.parametrize(("number", "expected"), [(-3, 0), (0, 0), (0.12345, 0.123), (1, 1), (2.5, 1), (10**400, 1)])
def test_confidence_is_limited_to_0_through_1_and_rounded(number: float, expected: float) -> None:
    (candidate,) = read_candidates(item(confidence=number))
    assert candidate.confidence == expected


def test_value_length_and_item_count_follow_the_limits() -> None:
    assert read_candidates(item(value="x" * 120))
    assert read_candidates(item(value="x" * 121), max_value_chars=121)
    assert len(read_candidates(items(*[ITEM] * 7), max_items=7)) == 7


def test_intent_has_defaults_and_configurable_limits() -> None:
    assert read_intent(intent()) == RetrievalIntent("payment incident", 4, None)
    assert read_intent(intent(top_k=6, scopes=["user", " user ", "workspace"])) == RetrievalIntent(
        "payment incident", 6, ("user", "workspace")
    )
    keys = [" language ", "tone", "language"]
    assert read_intent(intent(include_preference_keys=keys)).include_preference_keys == ("language", "tone")
    assert read_intent(intent(top_k=9), max_top_k=9).top_k == 9
    assert read_intent(intent(), max_top_k=2).top_k == 2
    assert read_intent(intent(query="x" * 240)).query == "x" * 240


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=12,
)
fields = st.sampled_from(["key", "value", "scope", "ttl_days", "confidence"])
proposals = st.dictionaries(fields, st.text(min_size=1, max_size=5) | json_values, max_size=5)


def result_or_reason(call: Callable[[], tuple[Candidate, ...] | RetrievalIntent]) -> object:
    try:
        return call()
    except MemoryStopped as stopped:
        return stopped.reason


@given(st.text() | json_values.map(json.dumps) | st.lists(proposals | json_values).map(lambda values: items(*values)))
def test_any_answer_gives_valid_candidates_or_a_stable_reason(raw: str) -> None:
    result = result_or_reason(lambda: read_candidates(raw))
    if isinstance(result, str):
        assert result.startswith("invalid_memory_candidates:")
    else:
        assert tuple(checked(candidate) for candidate in read_candidates(raw)) == result


@given(st.text() | json_values.map(json.dumps) | st.dictionaries(st.just("query"), st.text()).map(json.dumps))
def test_any_plan_gives_an_intent_or_a_stable_reason(raw: str) -> None:
    result = result_or_reason(lambda: read_intent(raw))
    assert isinstance(result, RetrievalIntent) or str(result).startswith("invalid_retrieval_intent:")


def preference(key: str = "language", value: str = "english", scope: str = "") -> Candidate:
    return Candidate(Preference(key, value), scope=scope)


POLICY = MemoryPolicy(allowed_keys=frozenset({"Language ", "declared_tier"}), allowed_scopes=frozenset({"user"}))

POLICY_REASONS = [
    ("memory_key_not_allowed_policy:Salary", [preference(), preference("Salary")]),
    ("memory_scope_not_allowed_policy:workspace", [preference(), preference(scope="workspace")]),
    ("memory_scope_not_allowed_policy:team", [Candidate(Episode("error"), text="it broke", scope="team")]),
    ("invalid_memory_candidates:value_too_long", [preference(value="x" * 121)]),
    ("max_capture_items", [preference()] * 7),
]


@pytest.mark.parametrize(("reason", "candidates"), POLICY_REASONS)
def test_candidate_against_policy_stops_the_call_and_nothing_is_written(
    reason: str, candidates: list[Candidate]
) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, policy=POLICY).of(somebody())
        report = me.write(candidates)
        assert (report.status, report.stop_reason) == ("stopped", reason)
        assert me.list(status="active") == ()
        assert me.stats().blocked == {reason: 1}
        if len(candidates) == 1 and candidates[0].key:
            assert reason_of(lambda: me.remember(candidates[0].data, scope=candidates[0].scope or None)) == reason


def test_allowed_candidates_are_written() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, policy=POLICY).of(somebody())
        report = me.write([preference(" LANGUAGE"), Candidate(Episode("error"), text="it broke")])
        assert [outcome.action for outcome in report.outcomes] == ["written", "written"]


def test_capture_limits_do_not_apply_to_imports_and_derivation() -> None:
    policy = MemoryPolicy()
    many = [preference(str(number)) for number in range(7)]
    assert policy.violation(many, origin="derive") is None
    assert policy.violation([*many, preference(value="x" * 121)], origin="import") is None
    assert policy.violation(many[:6], origin="remember") is None


EXECUTION = MemoryExecution(
    denied_keys=frozenset({" Declared_Tier"}),
    denied_scopes=frozenset({"workspace"}),
    denied_retrieval_scopes=frozenset({"workspace", "archive"}),
)


def test_execution_blocks_denied_candidates_and_the_rest_is_written() -> None:
    with open_sync_store("memory:") as store:
        principal = somebody(user="42", workspace="ops")
        me = SyncMemoryClient(store, execution=EXECUTION).of(principal)
        denied = preference("declared_tier", "enterprise")
        report = me.write([preference(), denied, preference(scope="workspace"), preference(scope="team")])
        assert {(outcome.key, outcome.scope): (outcome.action, outcome.reason) for outcome in report.outcomes} == {
            ("language", "user"): ("written", ""),
            ("declared_tier", "user"): ("blocked", KEY_DENIED),
            ("language", "workspace"): ("blocked", SCOPE_DENIED),
            ("language", "team"): ("blocked", SCOPE_DENIED),
        }
        assert [record.key for record in SyncMemoryClient(store).of(principal).list()] == ["language"]


def test_denied_retrieval_scopes_stop_the_search_with_the_first_in_order() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, execution=EXECUTION).of(somebody(user="42", workspace="ops", archive="a"))
        me.remember(key="language", value="english")
        assert reason_of(lambda: me.search("language", scopes=["user", "workspace", "archive"])) == (
            "scope_denied:archive"
        )
        assert [hit.record.key for hit in me.search("language english") if hit.record] == ["language"]


def test_execution_reasons_are_stable() -> None:
    assert (KEY_DENIED, SCOPE_DENIED, MAX_CAPTURE_ITEMS) == (
        "key_denied_execution", "scope_denied_execution", "max_capture_items",
    )  # fmt: skip


def test_secret_is_blocked_with_its_reason_and_never_stored() -> None:
    secret = "sk-" + "a1B2" * 8
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, redactor=stop_secrets).of(somebody())
        outcome = me.remember(Fact("deploy key", secret))
        assert (outcome.action, outcome.reason) == ("blocked", "secret:api_key")
        assert secret.encode() not in me.export_jsonl()
        assert me.list() == ()


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("allowed_keys", lambda: MemoryPolicy(allowed_keys="language")),  # type: ignore[arg-type]  # must be refused
        ("allowed_keys", lambda: MemoryPolicy(allowed_keys=frozenset({""}))),
        ("allowed_scopes", lambda: MemoryPolicy(allowed_scopes=frozenset({3}))),  # type: ignore[arg-type]  # must be refused
        ("max_capture_items", lambda: MemoryPolicy(max_capture_items=0)),
        ("max_value_chars", lambda: MemoryPolicy(max_value_chars=True)),
        ("denied_keys", lambda: MemoryExecution(denied_keys="tier")),  # type: ignore[arg-type]  # must be refused
        ("denied_scopes", lambda: MemoryExecution(denied_scopes=None)),  # type: ignore[arg-type]  # must be refused
        ("denied_retrieval_scopes", lambda: MemoryExecution(denied_retrieval_scopes=frozenset({" "}))),
        ("max_items", lambda: read_candidates("{}", max_items=0)),
        ("max_top_k", lambda: read_intent("{}", max_top_k=0)),
    ],
)
def test_invalid_setting_is_refused_by_name(name: str, build: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument, match=name):
        build()
