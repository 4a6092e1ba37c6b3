"""Tests of export and import: records survive, invalid files are refused and forgotten records do not return."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import AgentMemoryLogError, Event, UserMessage, new_event, open_sync_store
from agent_memory_log.errors import DecodeError
from agent_memory_log.events.jsonvalue import JsonValue, encode_json
from agent_memory_log.memory import (
    Episode,
    Evidence,
    Fact,
    Preference,
    Principal,
    SyncMemoryClient,
    UnknownKind,
    stream_of,
)
from agent_memory_log.memory.policy import MemoryPolicy
from tests.memory.stores import OpenStore, SaidPreferences, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]

HEADER = b'{"format":"agent-memory-log-records/1"}\n'
ME = Principal("t", {"user": "1"})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def _without_source(exported: bytes) -> list[bytes]:
    lines = [msgspec.json.decode(line) for line in exported.splitlines()]
    omitted = {"source", "sha256"}
    return [msgspec.json.encode({name: value for name, value in line.items() if name not in omitted}) for line in lines]


def test_import_refuses_a_truncated_or_changed_file() -> None:
    with open_sync_store("memory:") as store:
        me, other = (SyncMemoryClient(store).of(Principal("t", {"user": user})) for user in "12")
        for number in range(3):
            me.remember(key=f"key {number}", value="value")
        data = me.export_jsonl()
        lines = data.splitlines(keepends=True)
        assert msgspec.json.decode(lines[0])["records"] == 3
        for damaged in (*(lines[:end] for end in range(1, 4)), [*lines, lines[1]], [lines[0], *lines[:0:-1]]):
            with pytest.raises(DecodeError, match="the header, which announces 3 records"):
                other.import_jsonl(b"".join(damaged))
        with pytest.raises(
            DecodeError, match="the SHA-256 of the 3 records does not match the header, which announces 3 records"
        ):
            other.import_jsonl(data.replace(b"key 0", b"key 9"))
        assert other.list() == ()
        other.import_jsonl(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
        assert len(other.list()) == 3
        with pytest.raises(DecodeError, match="line 1 is UTF-16 or UTF-32"):
            other.import_jsonl(data.decode().encode("utf-16"))


def test_import_of_an_export_gives_the_same_export(open_memory_store: OpenStore) -> None:
    """The export of the same subject has the same bytes. The export of another subject differs only in the source."""
    store = open_memory_store()
    clock = SetClock()
    client = SyncMemoryClient(store, clock=clock, extractor=SaidPreferences())
    me, other = client.of(somebody()), client.of(somebody())
    run = f"run {me.principal.tenant}"
    store.append_events("agent", run, new_event(UserMessage("tone=dry")))
    me.derive("agent", run)
    me.remember(key="language", value="english", confidence=0.123456, tags=["a"])
    me.remember(Fact("name", "Ada"), text="She is called Ada")
    me.remember(Episode("error", clock.time), text="disk full", scope="workspace")
    me.remember(UnknownKind("later", {"key": "k", "n": 2**70}), text="written by a newer release")
    exported = me.export_jsonl()
    clock.move(days=1)
    assert {outcome.action for outcome in me.import_jsonl(exported).outcomes} == {"unchanged"}
    assert me.export_jsonl() == exported
    assert {outcome.action for outcome in other.import_jsonl(exported).outcomes} == {"written"}
    reexported = other.export_jsonl()
    assert _without_source(reexported) == _without_source(exported)
    assert {outcome.action for outcome in other.import_jsonl(exported).outcomes} == {"unchanged"}
    assert other.export_jsonl() == reexported
    assert other.rebuild().equal


@pytest.mark.parametrize("method", ["key", "id", "all"])
@pytest.mark.parametrize("derived", [False, True])
def test_import_of_an_older_export_does_not_restore_forgotten_records(
    open_memory_store: OpenStore, method: str, derived: bool
) -> None:
    store = open_memory_store()
    client = SyncMemoryClient(store, extractor=SaidPreferences())
    me, other = client.of(somebody()), client.of(somebody())
    if derived:
        run = f"run {me.principal.tenant}"
        store.append_events("agent", run, new_event(UserMessage("codeword=x")))
        me.derive("agent", run)
    else:
        me.remember(key="codeword", value="x")
    exported = me.export_jsonl()
    if not derived:  # the record gains evidence after the export
        me.remember(key="codeword", value="x", evidence=[Evidence("agent", "another run", 1)])
    other.import_jsonl(exported)
    for memory in (me, other):
        record = memory.get(key="codeword")
        assert record is not None
        if method == "key":
            memory.forget(key="codeword")
        elif method == "id":
            memory.forget(id=record.id)
        else:
            memory.forget_all()
        for reader in (memory, SyncMemoryClient(store).of(memory.principal)):
            assert [outcome.action for outcome in reader.import_jsonl(exported).outcomes] == ["forgotten"]
            assert reader.list() == ()
        assert memory.rebuild().equal
        assert memory.remember(key="codeword", value="x").action == "written"


def test_import_skips_expired_records(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    client = SyncMemoryClient(open_memory_store(), clock=clock)
    me, other = client.of(somebody()), client.of(somebody())
    other.remember(key="language", value="german")
    clock.move(days=1)
    me.remember(key="language", value="english", ttl_days=1)
    exported = me.export_jsonl()
    clock.move(days=1)
    (outcome,) = other.import_jsonl(exported).outcomes
    assert (outcome.action, outcome.reason) == ("outdated", "expired")
    assert [record.value for record in other.list()] == ["german"]


def test_import_keeps_valid_until(open_memory_store: OpenStore) -> None:
    policy = MemoryPolicy(preference_ttl_days=30)
    me = SyncMemoryClient(open_memory_store(), clock=SetClock(), policy=policy).of(somebody())
    line = b'{"kind":"preference","data":{"key":"k","value":"v"},"valid_until":"9999-01-01T00:00:00Z"}'
    for _ in range(2):  # the second import refreshes the record
        me.import_jsonl(HEADER + line)
        assert me.list()[0].valid_until == datetime(9999, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"kind": "preference", "data": {"key": "k", "value": 42}}, "does not fit the kind preference"),
        ({"kind": "fact", "data": {}}, "does not fit the kind fact"),
        ({"kind": "", "data": {}}, "kind"),
        ({"kind": "fact", "data": {"key": "k", "value": "v"}, "confidence": "high"}, "confidence"),
        ({"kind": "fact", "data": {"key": "k", "value": "v"}, "valid_from": "2026-01-01T00:00:00"}, "valid_from"),
        (
            {"kind": "fact", "data": {"key": "k", "value": "v"}, "evidence": [{"agent": "@x", "run": "r", "seq": 1}]},
            "library reserves",
        ),
        (
            {"kind": "fact", "data": {"key": "k", "value": "v"}, "evidence": [{"agent": "a", "run": "r", "seq": 0}]},
            "evidence.seq",
        ),
    ],
)
def test_import_names_an_invalid_line_and_writes_nothing(line: dict[str, Any], message: str) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(ME)
        good = b'{"kind":"fact","data":{"key":"k","value":"v"}}\n'
        with pytest.raises(DecodeError, match=f"line 3.*{message}"):
            me.import_jsonl(HEADER + good + encode_json(line))
        assert store.list_runs(include_reserved=True).runs == ()


@given(
    st.lists(
        st.fixed_dictionaries(
            {"kind": st.sampled_from(["fact", "preference", "episode", "x"]) | JSON, "data": JSON},
            optional=dict.fromkeys(
                ("scope", "text", "confidence", "importance", "source", "evidence", "tags", "links"), JSON
            ),
        ),
        max_size=3,
    )
)
def test_any_lines_are_imported_or_refused(lines: list[dict[str, JsonValue]]) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(ME)
        try:
            me.import_jsonl(HEADER + b"\n".join(map(encode_json, lines)))
        except AgentMemoryLogError:
            assert store.list_runs(include_reserved=True).runs == ()
        assert me.rebuild().equal
        assert SyncMemoryClient(store).of(ME).export_jsonl() == me.export_jsonl()


def test_imported_evidence_reveals_no_other_memory(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    other, me = (SyncMemoryClient(store).of(somebody()) for _ in range(2))
    other.remember(key="codeword", value="v", text="their secret")
    me.import_jsonl(
        HEADER
        + encode_json(
            {
                "kind": "fact",
                "data": {"key": "k", "value": "v"},
                "evidence": [{"agent": stream_of(other.principal.subject("user")), "run": "records", "seq": 1}],
            }
        )
    )
    explained = me.explain(me.list()[0].id)
    assert explained is not None
    assert "their secret" not in repr(explained)
    assert me.forget(key="k", evidence=True).evidence == 0
    assert other.list()[0].text == "their secret"


def test_large_import_is_written_in_batches(open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, max_keyed=None).of(somebody())
    raw: Any = store.append_events
    sizes: list[int] = []

    def append_events(agent: str, run: str, *events: Event, **options: Any) -> Any:
        sizes.append(len(events))
        return raw(agent, run, *events, **options)

    monkeypatch.setattr(store, "append_events", append_events)
    lines = [encode_json({"kind": "fact", "data": {"key": str(number), "value": "v"}}) for number in range(1_200)]
    assert len(me.import_jsonl(HEADER + b"\n".join(lines)).outcomes) == 1_200
    assert [record.key for record in me.list()] == [str(number) for number in range(1_200)]
    assert max(sizes) == 500
    assert {outcome.action for outcome in me.import_jsonl(me.export_jsonl()).outcomes} == {"unchanged"}


def test_unknown_kind_with_a_registered_name_must_fit_that_kind() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(ME)
        with pytest.raises(AgentMemoryLogError, match="does not fit the kind fact"):
            me.remember(UnknownKind("fact", {"key": "k"}))
        outcome = me.remember(UnknownKind("preference", {"key": "k", "value": "v"}))
        assert outcome.record is not None
        assert outcome.record.data == Preference("k", "v")
