"""Tests of ``audit_answer``. It checks that the declared keys were retrieved and, with a verifier, applied."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.memory import Preference, Record, Source
from agent_memory_log.memory.policy import Verifier, audit_answer
from agent_memory_log.memory.records.kinds import fold_key

NOW = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
KEYS = st.sampled_from(["language", "Language ", "tone", "tier", "", "\u1e9e"])


def make_record(key: str, value: str = "english", scope: str = "user") -> Record:
    return Record(
        id=f"{scope}/{key}",
        kind="preference",
        scope=scope,
        key=key,
        text=f"{key}: {value}",
        confidence=0.8,
        importance=0.5,
        source=Source(),
        evidence=(),
        entities=(),
        tags=(),
        links=(),
        valid_from=None,
        valid_until=None,
        created=NOW,
        updated=NOW,
        status="active",
        data=Preference(key, value),
    )


def names_value(value: str, answer: str) -> bool | None:
    """Return whether the answer contains the value, or None for ``calm``, which cannot be verified."""
    return None if value == "calm" else value in answer


VERIFIERS: Mapping[str, Verifier] = {"language": names_value, "Update_Channel": names_value, "tone": names_value}


def test_audit_without_verifiers_accepts_any_retrieved_key() -> None:
    records = [make_record("language"), make_record("tone")]
    audit = audit_answer("Zwischenfall.", ["language"], records)
    assert (audit.stop_reason, audit.used_keys, audit.unknown_keys) == ("", ("language",), ())
    assert audit.applied == (records[0],)
    assert audit.verified == {}


def test_answer_may_declare_no_keys() -> None:
    audit = audit_answer("Done.", [], [make_record("language")])
    assert (audit.stop_reason, audit.used_keys, audit.applied) == ("", (), ())
    assert audit_answer("Done.", [], []).stop_reason == ""


@pytest.mark.parametrize(
    ("answer", "declared", "reason"),
    [
        ("english", ["language", "tier", "age", "tier"], "invalid_answer:memory_keys_out_of_context"),
        ("english", [""], "invalid_answer:memory_keys_out_of_context"),
        ("x" * 701, ["tier"], "invalid_answer:memory_keys_out_of_context"),
        ("x" * 701, ["language"], "invalid_answer:too_long"),
        ("x" * 700, ["language"], "invalid_answer:memory_declared_but_not_applied"),
        ("By fax.", ["language", "update_channel"], "invalid_answer:memory_declared_but_not_applied"),
        ("By fax.", ["language", "mood"], "invalid_answer:memory_declared_but_not_applied"),
        ("By email.", ["language", "update_channel"], ""),
        ("By fax.", ["mood"], ""),
        ("By fax.", ["tone"], ""),
    ],
)
def test_audit_stops_with_a_stable_reason(answer: str, declared: list[str], reason: str) -> None:
    records = [
        make_record("language"),
        make_record("update_channel", "email"),
        make_record("mood", "calm"),
        make_record("tone", "calm"),
    ]
    audit = audit_answer(answer, declared, records, verifiers=VERIFIERS)
    assert audit.stop_reason == reason
    unknown = tuple(sorted({key for key in declared if key not in {record.key for record in records}}))
    assert audit.unknown_keys == unknown


def test_answer_length_limit_is_configurable() -> None:
    assert audit_answer("12345", [], [], max_chars=5).stop_reason == ""
    assert audit_answer("123456", [], [], max_chars=5).stop_reason == "invalid_answer:too_long"


def test_verified_omits_keys_without_a_verdict() -> None:
    records = [make_record("language", "calm"), make_record("mood", "calm"), make_record("Update_Channel ", "email")]
    audit = audit_answer("By email.", ["language", "mood", "update_channel"], records, verifiers=VERIFIERS)
    assert audit.verified == {"Update_Channel ": True}
    assert audit.used_keys == ("language", "mood", "Update_Channel ")


@pytest.mark.parametrize("order", [1, -1])
def test_answer_may_apply_the_value_of_any_scope(order: int) -> None:
    records = [make_record("update_channel", "fax"), make_record("update_channel", "email", "workspace")][::order]
    declared = ["update_channel"]
    assert audit_answer("By email.", declared, records, verifiers=VERIFIERS).verified == {"update_channel": True}
    assert audit_answer("By post.", declared, records, verifiers=VERIFIERS).verified == {"update_channel": False}


@given(st.lists(KEYS, max_size=4), st.lists(KEYS, max_size=4), st.text(max_size=12))
def test_used_keys_were_always_retrieved(declared: list[str], keys: list[str], answer: str) -> None:
    records = [make_record(key) for key in keys]
    audit = audit_answer(answer, declared, records, verifiers=VERIFIERS, max_chars=10)
    assert set(audit.used_keys) <= {record.key for record in records}
    assert {fold_key(record.key) for record in audit.applied} <= {fold_key(key) for key in declared}
    if not audit.stop_reason:
        assert {fold_key(key) for key in audit.used_keys} == {fold_key(key) for key in declared}
