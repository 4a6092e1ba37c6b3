"""Tests of the envelope: its fields survive every write, snapshot, rebuild, export and import."""

from __future__ import annotations

import msgspec
import pytest

from agent_memory_log import AssistantMessage, SyncStore, UserMessage, new_event, open_sync_store
from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory import (
    Candidate,
    Episode,
    Evidence,
    Fact,
    Preference,
    Record,
    SyncMemory,
    SyncMemoryClient,
    stream_of,
)
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.records.record import ENVELOPE_FIELDS
from agent_memory_log.memory.stream import snapshots
from agent_memory_log.memory.stream.payloads import MemoryRemembered
from tests.memory.stores import OpenStore, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]

_AGENT, _RUN = "support-agent", "run 1"
_TYPES = {"k1": "semantic", "k2": "procedural", "k3": "semantic", "": "episodic"}


def _converse(store: SyncStore) -> list[str]:
    """Append a run with statements that the rules extract, and return the ids of its events."""
    texts = ["Hello", "I prefer tabs", "My name is Ada", "That is wrong."]
    events = [new_event(kind(text)) for text in texts for kind in (UserMessage, AssistantMessage)]
    return [event.event_id for event in store.append_events(_AGENT, _RUN, *events).events]


def _write_types(me: SyncMemory) -> None:
    report = me.write(
        [
            Candidate(Preference("k1", "v")),
            Candidate(Preference("k2", "v"), memory_type="procedural"),
            Candidate(Fact("k3", "v")),
            Candidate(Episode("error"), text="It failed."),
        ]
    )
    assert [outcome.action for outcome in report.outcomes] == ["written"] * 4


def _types(records: tuple[Record, ...]) -> dict[str, str]:
    return {record.key: record.memory_type for record in records}


def test_candidate_record_and_event_share_the_envelope_fields() -> None:
    for form in (Candidate, Record, MemoryRemembered):
        assert set(ENVELOPE_FIELDS) <= set(form.__struct_fields__)
    assert {"text", "memory_type", "evidence", "valid_until"} <= set(ENVELOPE_FIELDS)


def test_memory_type_survives_update_snapshot_export_and_import(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "EVENTS_BETWEEN", 1)
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    _write_types(me)
    me.update(next(record.id for record in me.list() if record.key == "k2"), importance=1.0)
    assert _types(me.list()) == _TYPES
    stream = store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN)
    assert any(event.type == "memory_snapshot" for event in stream.log)
    again = SyncMemoryClient(store).of(me.principal)
    assert _types(again.list()) == _TYPES
    assert again.rebuild().equal
    assert [version.record.memory_type for version in again.history("k2")] == ["procedural"]
    other = SyncMemoryClient(store).of(somebody())
    other.import_jsonl(me.export_jsonl())
    assert _types(other.list()) == _TYPES
    assert other.export_jsonl().count(b'"memory_type":"procedural"') == 1


def test_superseding_value_keeps_the_memory_type() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody())
        _write_types(me)
        record = me.get(key="k2")
        assert record is not None
        me.update(record.id, value="another")
        assert [version.record.memory_type for version in me.history("k2")] == ["procedural", "procedural"]


def test_memory_type_is_stored_only_if_it_differs_from_the_default_of_the_kind() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody())
        _write_types(me)
        me.write([Candidate(Preference("k4", "v"), memory_type="semantic")])
        stream = store.load_run(stream_of(me.principal.subject("user")), STREAM_RUN)
        stored = [event.data.memory_type for event in stream.log if isinstance(event.data, MemoryRemembered)]
        assert stored == ["", "procedural", "", "", ""]


@pytest.mark.parametrize("value", ["semantical", 3, None])
def test_write_refuses_an_unknown_memory_type(value: object) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(somebody())
        candidate = msgspec.structs.replace(Candidate(Preference("k", "v")), memory_type=value)
        with pytest.raises(InvalidArgument, match="memory_type must be"):
            me.write([candidate])


def test_derived_evidence_holds_the_event_id(open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "EVENTS_BETWEEN", 1)
    store = open_memory_store()
    ids = _converse(store)
    me = SyncMemoryClient(store).of(somebody())
    me.derive(_AGENT, _RUN, extractor=RuleExtractor())

    def cited_events(records: tuple[Record, ...]) -> list[tuple[int, str]]:
        return sorted({(citation.seq, citation.event_id) for record in records for citation in record.evidence})

    expected = [(seq, ids[seq - 1]) for seq in (3, 5, 7)]
    assert cited_events(me.list()) == expected
    again = SyncMemoryClient(store).of(me.principal)
    assert cited_events(again.list()) == expected
    assert again.rebuild().equal
    assert cited_events(
        tuple(version.record for record in me.list() if record.key for version in me.history(record.key))
    )
    other = SyncMemoryClient(store).of(somebody())
    other.import_jsonl(me.export_jsonl())
    assert cited_events(other.list()) == expected
    assert me.rederive(RuleExtractor())[0].written == ()


def test_evidence_is_equal_with_and_without_an_event_id() -> None:
    assert Evidence("a", "r", 1, "rules/1", "id") == Evidence("a", "r", 1, "rules/1")
    assert len({Evidence("a", "r", 1), Evidence("a", "r", 1, event_id="id")}) == 1
    assert Evidence("a", "r", 1) != Evidence("a", "r", 1, "rules/1")
    with open_sync_store("memory:") as store:
        ids = _converse(store)
        me = SyncMemoryClient(store).of(somebody())
        me.remember(key="k", value="v", evidence=[Evidence(_AGENT, _RUN, 3)])
        again = me.remember(key="k", value="v", evidence=[Evidence(_AGENT, _RUN, 3, event_id=ids[2])])
        assert again.action == "unchanged"


@pytest.mark.parametrize("seq", [1, 3, 100])
def test_evidence_finds_its_event_by_id_after_a_copy_changed_the_seq(seq: int) -> None:
    with open_sync_store("memory:") as store:
        ids = _converse(store)
        me = SyncMemoryClient(store).of(somebody())
        me.link_run(_AGENT, _RUN)
        me.remember(key="k", value="tabs", evidence=[Evidence(_AGENT, _RUN, seq, event_id=ids[2])])
        record = me.get(key="k")
        assert record is not None
        explanation = me.explain(record.id)
        assert explanation is not None
        assert [line.text for line in explanation.evidence] == ["user: I prefer tabs"]
        me.forget(key="k", evidence=True)
        log = store.load_run(_AGENT, _RUN).log
        assert [event.seq for event in log if event.type == "redacted"] == [3, 4]


def test_explain_hides_a_forgotten_event_cited_under_another_seq() -> None:
    with open_sync_store("memory:") as store:
        ids = _converse(store)
        me = SyncMemoryClient(store).of(somebody())
        me.link_run(_AGENT, _RUN)
        me.remember(key="forgotten", value="tabs", evidence=[Evidence(_AGENT, _RUN, 3)])
        me.forget(key="forgotten")
        me.remember(key="k", value="v", evidence=[Evidence(_AGENT, _RUN, 1, event_id=ids[2])])
        record = me.get(key="k")
        assert record is not None
        explanation = me.explain(record.id)
        assert explanation is not None
        assert [(line.text, line.reason) for line in explanation.evidence] == [("", "forgotten")]


def test_explain_reports_an_unknown_event_id_as_deleted() -> None:
    with open_sync_store("memory:") as store:
        _converse(store)
        me = SyncMemoryClient(store).of(somebody())
        me.link_run(_AGENT, _RUN)
        me.remember(key="k", value="v", evidence=[Evidence(_AGENT, _RUN, 3, event_id="another")])
        record = me.get(key="k")
        assert record is not None
        explanation = me.explain(record.id)
        assert explanation is not None
        assert [(line.text, line.reason) for line in explanation.evidence] == [("", "deleted")]
