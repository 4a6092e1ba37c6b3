"""Tests of subjects: each subject has its own stream, and no principal reaches the memory of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import open_sync_store
from agent_memory_log.errors import InvalidArgument, MemoryStopped
from agent_memory_log.memory import Principal, SubjectId, SyncMemory, SyncMemoryClient, stream_of, subject_of

# White space and invisible characters are allowed inside a part. Control characters are never allowed.
_INSIDE = st.text(st.sampled_from("a%2F5/@.$é \u200d"), max_size=4) | st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=38
)
_EDGES = st.sampled_from("a%2F5/@.$é") | st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp", "Zs"])
_PARTS = _EDGES | st.builds("{}{}{}".format, _EDGES, _INSIDE, _EDGES)
_SUBJECTS = st.builds(SubjectId, _PARTS, _PARTS, _PARTS)


@given(first=_SUBJECTS, second=_SUBJECTS)
def test_stream_belongs_to_exactly_one_subject(first: SubjectId, second: SubjectId) -> None:
    assert subject_of(stream_of(first)) == first
    assert (stream_of(first) == stream_of(second)) == (first == second)
    assert stream_of(first).startswith("@memory/")


@given(st.text(max_size=30).map("@memory/".__add__) | st.text(max_size=30))
def test_other_agent_names_belong_to_no_subject(agent: str) -> None:
    subject = subject_of(agent)
    assert subject is None or stream_of(subject) == agent


@pytest.mark.parametrize(
    ("tenant", "scopes", "message"),
    [
        ("", {"user": "1"}, "tenant must be non-empty text"),
        ("t", {}, "at least one scope"),
        ("t", None, "must be a map"),
        ("t", {"": "1"}, "scope must be non-empty"),
        ("t", {"user": ""}, "id must be non-empty"),
        ("t", {"user": None}, "id must be non-empty text, got null"),
        ("t", {"user": "\ud800"}, "lone surrogate"),
        ("t", {"user": "x" * 600}, "characters together"),
        ("t", {"user": "/" * 200}, "counts as three"),
        (7, {"user": "1"}, "tenant must be non-empty text, got int 7"),
        ("t", {"user": " "}, "id must not begin or end with white space or an invisible character, got str ' '"),
        ("t", {"user": "\u3000"}, "id must not begin or end with white space"),
        ("t", {"user": "\u200b"}, "id must not begin or end with white space or an invisible character"),
        ("t", {"user": "\u2800"}, "id must not begin or end with white space or an invisible character"),
        ("t", {"user": "42\u3164"}, "id must not begin or end with white space or an invisible character"),
        ("t", {"user": "\ufeff42"}, "id must not begin or end"),
        ("t", {"user": "42\xa0"}, "id must not begin or end"),
        ("t", {"user": "42\n"}, "id must not contain control characters"),
        ("t", {"user": "4\x002"}, "id must not contain control characters"),
        ("t", {"user": "4\u20282"}, "id must not contain control characters"),
        ("t", {" user": "42"}, "scope must not begin or end"),
        ("t ", {"user": "42"}, "tenant must not begin or end"),
    ],
)
def test_principal_refuses_invalid_names(tenant: Any, scopes: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Principal(tenant, scopes)


def test_principal_copies_its_scopes() -> None:
    scopes = {"user": "1"}
    principal = Principal("t", scopes)
    scopes["workspace"] = "ops"
    assert dict(principal.scopes) == {"user": "1"}


def _call_everything(me: SyncMemory, record: str) -> None:
    """Call each operation as another principal, with and without the id of the record."""
    assert me.get(id=record) is None
    assert me.get(key="language") is None
    assert me.list() == ()
    assert me.search("language english") == ()
    assert me.history("language") == ()
    assert me.explain(record) is None
    assert me.forget(id=record).records == 0
    assert me.forget(key="language").records == 0
    assert me.forget_all().records == 0
    assert me.stats().active == {}
    me.maintain(weak_below=1, unused_days=0)
    assert me.audit_events() == ()
    assert me.evolution_events(record) is None
    assert me.health().active == {}
    me.rebuild()
    with pytest.raises(InvalidArgument, match="no active record"):
        me.update(record, value="mine now")
    me.remember(key="language", value="theirs")


@given(own_subject=_SUBJECTS, other_subject=_SUBJECTS)
def test_no_principal_reads_or_changes_another_principals_memory(
    own_subject: SubjectId, other_subject: SubjectId
) -> None:
    if own_subject == other_subject:
        return
    with open_sync_store("memory:") as store:
        client = SyncMemoryClient(store)
        me = client.of(Principal(own_subject.tenant, {own_subject.scope: own_subject.id}))
        other = client.of(Principal(other_subject.tenant, {other_subject.scope: other_subject.id}))
        record = me.remember(key="language", value="english").record
        assert record is not None
        before = store.load_run(stream_of(own_subject), "records")
        _call_everything(other, record.id)
        assert store.load_run(stream_of(own_subject), "records") == before
        assert me.list() == (record,)


_READS: list[Callable[[SyncMemory], object]] = [
    lambda me: me.list(scopes=["workspace"]),
    lambda me: me.search("x", scopes=["workspace", "zzz"]),
    lambda me: me.get(key="k", scope="workspace"),
    lambda me: me.history("k", scope="workspace"),
    lambda me: me.forget(key="k", scope="workspace"),
    lambda me: me.forget_all(scopes=["workspace"]),
    lambda me: me.export_jsonl(scopes=["workspace"]),
]


@pytest.mark.parametrize("call", _READS)
def test_reading_a_scope_of_another_principal_is_refused(call: Callable[[SyncMemory], object]) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(Principal("t", {"user": "1"}))
        with pytest.raises(MemoryStopped) as caught:
            call(me)
        assert caught.value.reason == "scope_denied:workspace"


def test_writing_to_a_scope_of_another_principal_is_blocked() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(Principal("t", {"user": "1"}))
        outcome = me.remember(key="k", value="secret value", scope="workspace")
        assert (outcome.action, outcome.reason) == ("blocked", "scope_denied_execution")
        assert [run.agent for run in store.list_runs(include_reserved=True).runs] == ["@memory/t/user/1"]
        (event,) = store.load_run("@memory/t/user/1", "records").log
        assert "secret value" not in repr(event)


def test_empty_scopes_select_no_records() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(Principal("t", {"user": "1"}))
        me.remember(key="k", value="v")
        assert me.list(scopes=()) == ()
        assert me.search("k v", scopes=()) == ()
        assert me.forget_all(scopes=()).records == 0
        assert len(me.list()) == 1
