"""Tests each call of the memory client on every backend."""

from __future__ import annotations

import itertools
import math
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import UserMessage, new_event, open_sync_store
from agent_memory_log.errors import DecodeError, InvalidArgument, MemoryStopped, SchemaTooNew
from agent_memory_log.memory import (
    Candidate,
    Episode,
    Evidence,
    Fact,
    Link,
    OpenPolicy,
    Outcome,
    Preference,
    Principal,
    RecordData,
    Refusal,
    Source,
    SubjectId,
    SyncMemory,
    SyncMemoryClient,
    UnknownKind,
    Violation,
    register_kind,
    stream_of,
)
from agent_memory_log.memory.records.kinds import fold_key, fold_text, kind_named, kinds
from agent_memory_log.memory.records.record import stars_of
from agent_memory_log.memory.stream.payloads import MemoryRemembered
from tests.memory.stores import OpenStore, SetClock, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@register_kind
class Procedure(RecordData, frozen=True):
    kind = "procedure"
    steps: tuple[str, ...] = ()


def _me(open_memory_store: OpenStore, **options: Any) -> SyncMemory:
    return SyncMemoryClient(open_memory_store(), **options).of(somebody())


def test_another_client_reads_all_remembered_records(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = _me(open_memory_store, clock=clock)
    data = Episode("error", occurred_at=clock.time - timedelta(days=1))
    outcomes = [
        me.remember(
            key=" Language ", value="english", confidence=0.91234, ttl_days=30, source=Source("operator", "kim")
        ),
        me.remember(kind="fact", key="name", value="Ada", importance=1, tags=["who"], entities=["Ada"]),
        me.remember(
            data,
            text="disk full",
            evidence=[Evidence("agent", "run", 3, "rules/1")],
            links=[Link("caused_by", "x")],
            scope="workspace",
        ),
        me.remember(Procedure(("stop", "start")), text="restart"),
        me.remember(UnknownKind("later", {"a": [1, {"b": None}]}), text="written by a newer release"),
    ]
    records = tuple(outcome.record for outcome in outcomes)
    assert all(outcome.action == "written" for outcome in outcomes)
    fresh = SyncMemoryClient(open_memory_store(), clock=clock).of(me.principal)
    assert sorted(map(repr, fresh.list())) == sorted(map(repr, records))
    language, name, episode, procedure, later = (record for record in records if record is not None)
    assert (language.key, language.confidence, language.text) == ("Language", 0.912, "Language: english")
    assert language.valid_until == clock.time + timedelta(days=30)
    assert language.ttl_left_days(clock.time + timedelta(hours=1)) == 30
    assert (name.valid_until, name.stars, name.value) == (None, 5, "Ada")
    assert (episode.data, episode.scope, episode.key, episode.value) == (data, "workspace", "", "")
    assert procedure.data == Procedure(("stop", "start"))
    assert later.data == UnknownKind("later", {"a": [1, {"b": None}]})


def test_unregistered_kind_is_kept_unchanged(open_memory_store: OpenStore) -> None:
    me = _me(open_memory_store)
    store = open_memory_store()
    remembered = MemoryRemembered(kind="triple", key="Ada", data={"key": "Ada", "value": "x", "n": 2**70}, text="t")
    store.append_events(stream_of(me.principal.subject("user")), "records", new_event(remembered), reserved=True)
    (record,) = me.list()
    assert isinstance(record.data, UnknownKind)
    assert (record.kind, record.data.to_map(), record.value) == ("triple", remembered.data, "x")
    assert me.get(key="ada", kind="triple") == record
    assert me.rebuild().equal
    other = SyncMemoryClient(store).of(somebody())
    other.import_jsonl(me.export_jsonl())
    assert other.list()[0].data == record.data


@given(key=TEXTS, value=TEXTS, text=TEXTS)
def test_remember_stores_any_key_and_value_but_blank_ones(key: str, value: str, text: str) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, redactor=lambda candidate: candidate).of(Principal("t", {"user": "1"}))
        if not (key.strip() and value.strip()):
            with pytest.raises(InvalidArgument, match=r"must contain a character other than white space"):
                me.remember(key=key, value=value, text=text)
            assert me.list() == ()
            return
        me.remember(key=key, value=value, text=text)
        record = SyncMemoryClient(store).of(me.principal).get(key=f"\t{key.upper() if key.isascii() else key} ")
        assert record is not None
        assert (record.key, record.value) == (key.strip(), value)
        assert me.forget(key=key).records == 1
        assert me.list() == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "k"}, "key and value"),
        ({"value": "v"}, "key and value"),
        ({"key": "k", "value": 7}, "value must be text"),
        ({"key": b"k", "value": "v"}, "key must be text"),
        ({"key": "k", "value": "\ud800"}, "surrogate"),
        ({"key": "k", "value": "v", "kind": "episode"}, "kind"),
        ({"key": "k", "value": "v", "kind": []}, "kind"),
        ({"data": Preference("k", "v"), "key": "k"}, "either"),
        ({"data": "text"}, "RecordData"),
        ({"data": Episode("error")}, "text that describes"),
        ({"data": Episode(" "), "text": "t"}, "category"),
        ({"data": Episode("error", datetime(2026, 1, 1)), "text": "t"}, "occurred_at"),  # noqa: DTZ001  # remember must refuse it
        ({"data": UnknownKind("x", {"a": math.nan}), "text": "t"}, "nan"),
        ({"data": UnknownKind("", {})}, "kind with a name"),
        ({"key": "k", "value": "v", "confidence": True}, "confidence"),
        ({"key": "k", "value": "v", "confidence": math.nan}, "confidence"),
        ({"key": "k", "value": "v", "importance": math.inf}, "importance"),
        ({"key": "k", "value": "v", "importance": "high"}, "importance"),
        ({"key": "k", "value": "v", "ttl_days": False}, "ttl_days"),
        ({"key": "k", "value": "v", "ttl_days": -math.inf}, "ttl_days"),
        ({"key": "k", "value": "v", "ttl_days": -5}, "ttl_days must be from 1 to 36,500, got int -5"),
        ({"key": "k", "value": "v", "ttl_days": 0.5}, "ttl_days must be from 1 to 36,500"),
        ({"key": "k", "value": "v", "ttl_days": 36_501}, "ttl_days must be from 1 to 36,500"),
        ({"key": "k", "value": "v", "ttl_days": 10**400}, "ttl_days must be from 1 to 36,500"),
        ({"key": "k", "value": "v", "tags": [3]}, r"tags\[0\]"),
        ({"key": "k", "value": "v", "tags": "urgent"}, "tags must be a list or tuple"),
        ({"key": "k", "value": "v", "entities": "Bob"}, "entities must be a list or tuple"),
        ({"key": "k", "value": "v", "evidence": 7}, "evidence must be a list or tuple"),
        ({"key": "k", "value": "v", "entities": ["\udfff"]}, r"entities\[0\]"),
        ({"key": "k", "value": "v", "links": ["x"]}, "links"),
        ({"key": "k", "value": "v", "evidence": ["x"]}, "evidence"),
        ({"key": "k", "value": "v", "evidence": [Evidence("a", "r", 0)]}, "evidence.seq"),
        ({"key": "k", "value": "v", "evidence": [Evidence("", "r", 1)]}, "evidence.agent"),
        ({"key": "k", "value": "v", "evidence": [Evidence("a", "r" * 513, 1)]}, "evidence.run"),
        ({"key": "k", "value": "v", "evidence": [Evidence("a", "r", 1, event_id="e" * 513)]}, "evidence.event_id"),
        (
            {"key": "k", "value": "v", "evidence": [Evidence("@memory/t/user/2", "records", 1)]},
            "an agent id that the library reserves",
        ),
        ({"key": "k", "value": "v", "source": "me"}, "source"),
        ({"key": "k", "value": "v", "source": Source(kind=1)}, "source.kind"),  # type: ignore[arg-type]  # must be refused
        ({"key": "k", "value": "v", "scope": 7}, "scope"),
    ],
)
def test_remember_refuses_invalid_arguments(arguments: dict[str, Any], message: str) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(Principal("t", {"user": "1"}))
        with pytest.raises(InvalidArgument, match=message):
            me.remember(**arguments)
        assert store.list_runs(include_reserved=True).runs == ()


@pytest.mark.parametrize(
    ("number", "expected"), [(-3, 0.0), (7, 1.0), (0.12345, 0.123), (1, 1.0), (10**400, 1.0), (-0.0, 0.0)]
)
def test_remember_limits_and_rounds_numbers(number: float, expected: float) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(Principal("t", {"user": "1"}))
        record = me.remember(key="k", value="v", confidence=number).record
        assert record is not None
        assert record.confidence == expected


@pytest.mark.parametrize(("days", "expected"), [(1, 1), (2.9, 2), (36_500, 36_500)])
def test_lifetime_is_whole_days(days: float, expected: int) -> None:
    with open_sync_store("memory:") as store:
        clock = SetClock()
        me = SyncMemoryClient(store, clock=clock).of(Principal("t", {"user": "1"}))
        record = me.remember(key="k", value="v", ttl_days=days).record
        assert record is not None
        assert record.valid_until == clock.time + timedelta(days=expected)
        with pytest.raises(InvalidArgument, match="ttl_days must be from 1 to 36,500"):
            me.update(record.id, ttl_days=-days)


def test_expired_record_is_hidden_at_the_instant_it_expires(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = _me(open_memory_store, clock=clock)
    record = me.remember(key="k", value="some words", ttl_days=1).record
    assert record is not None
    clock.move(days=1, microseconds=-1)
    assert me.get(key="k") is not None
    clock.move(microseconds=1)
    assert (me.get(key="k"), me.get(id=record.id), me.list(), me.search("words")) == (None, None, (), ())
    assert [expired.id for expired in me.list(status="expired")] == [record.id]
    assert me.as_of(clock.time - timedelta(hours=1)) == (record,)
    again = me.remember(key="k", value="some words")
    assert (again.action, again.superseded) == ("written", record.id)
    assert [(version.record.status, version.reason) for version in me.history("k")] == [
        ("expired", "expired"),
        ("active", ""),
    ]


def test_history_as_of_and_explain_show_superseded_records(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = _me(open_memory_store, clock=clock)
    store = open_memory_store()
    run = f"run {me.principal.tenant}"
    store.append_events("agent", run, new_event(UserMessage("I  prefer\nEnglish")))
    evidence = [Evidence("agent", run, 1), Evidence("agent", run, 9), Evidence("agent", "none", 1)]
    me.link_run("agent", run)
    first = me.remember(key="language", value="english", evidence=evidence).record
    clock.move(days=1)
    second = me.remember(key="LANGUAGE", value="german").record
    assert first is not None
    assert second is not None
    assert second.supersedes == (first.id,)
    versions = me.history("Language")
    assert [(v.record.value, v.record.status, v.closed_at) for v in versions] == [
        ("english", "superseded", clock.time),
        ("german", "active", None),
    ]
    assert me.as_of(clock.time - timedelta(hours=1)) == (first,)
    assert me.as_of(clock.time) == (second,)
    assert me.as_of(clock.time - timedelta(days=2)) == ()
    explained = me.explain(first.id)
    assert explained is not None
    assert [(line.text, line.reason) for line in explained.evidence] == [
        ("user: I prefer English", ""), ("", "not found"), ("", "not linked to this subject"),
    ]  # fmt: skip
    assert explained.status == "superseded"
    assert explained.events[-1].endswith(f"superseded by {second.id}")
    assert me.explain("nobody") is None
    me.forget(id=first.id)
    assert [v.record.value for v in me.history("language")] == ["german"]
    assert me.as_of(clock.time - timedelta(hours=1)) == ()


def test_update_changes_a_record_but_a_new_value_supersedes_it(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = _me(open_memory_store, clock=clock)
    record = me.remember(key="k", value="v").record
    assert record is not None
    clock.move(hours=1)
    outcome = me.update(record.id, confidence=0.5, importance=1, tags=["t"], text="words", ttl_days=2)
    assert outcome.action == "changed"
    changed = me.get(id=record.id)
    assert changed is not None
    assert changed == outcome.record
    assert (changed.confidence, changed.stars, changed.tags, changed.text) == (0.5, 5, ("t",), "words")
    assert (changed.created, changed.updated) == (record.created, clock.time)
    assert changed.valid_until == clock.time + timedelta(days=2)
    assert me.update(record.id, confidence=0.5).action == "unchanged"
    for name in ("entities", "tags", "links"):
        arguments: dict[str, Any] = {name: "text"}
        with pytest.raises(InvalidArgument, match=f"{name} must be a list or tuple"):
            me.update(record.id, **arguments)
    outcome = me.update(record.id, value="w")
    assert (outcome.action, outcome.superseded) == ("written", record.id)
    assert outcome.record is not None
    assert (outcome.record.tags, outcome.record.text, outcome.record.importance) == (("t",), "k: w", 1)
    with pytest.raises(InvalidArgument, match="no active record"):
        me.update(record.id, value="x")
    episode = me.remember(Episode("error"), text="one").record
    assert episode is not None
    with pytest.raises(InvalidArgument, match="no value"):
        me.update(episode.id, value="x")
    assert me.update(episode.id, text="two").action == "changed"
    assert me.rebuild().equal


class _Rules(OpenPolicy):
    """A policy, an execution policy and a redactor in one object."""

    def violation(self, candidates: Any, *, origin: str) -> Violation | None:
        for candidate in candidates:
            if candidate.key == "forbidden":
                return Violation(f"memory_key_not_allowed_policy:{candidate.key}", candidate.key, candidate.scope)
        return Violation("too_many") if len(candidates) > 3 and origin == "remember" else None

    def denial(self, candidate: Candidate, /) -> str | None:
        return "key_denied_execution" if candidate.key == "tier" else None

    def retrieval_scopes(self, scopes: frozenset[str], /) -> frozenset[str]:
        return scopes - {"workspace"}

    def __call__(self, candidate: Candidate, /) -> Candidate | Refusal:
        if "sk-" in candidate.value:
            return Refusal("secret")
        if "@" in candidate.value:
            return msgspec.structs.replace(candidate, data=Preference(candidate.key, "(address)"))
        return candidate


@pytest.mark.parametrize(
    ("hook", "method"),
    [
        *(("policy", "violation"), ("execution", "denial"), ("embedder", "embed"), ("merger", "merge")),
        *((hook, "__call__") for hook in ("redactor", "clock", "count_tokens")),
        ("reranker", "rerank"),
    ],
)
@pytest.mark.parametrize("wrong", [{}, {"denied_keys": ["tier"]}, _Rules, "x"])
def test_hook_without_its_method_is_refused(hook: str, method: str, wrong: Any) -> None:
    """An empty map does not count as missing: a caller could take it for rules that allow nothing."""
    with (
        open_sync_store("memory:") as store,
        pytest.raises(InvalidArgument, match=f"^{hook} must be an object with the method {method}, got "),
    ):
        SyncMemoryClient(store, **{hook: wrong})


def test_redactor_policy_and_execution_check_every_write(open_memory_store: OpenStore) -> None:
    rules = _Rules()
    me = _me(open_memory_store, policy=rules, execution=rules, redactor=rules)
    store = open_memory_store()
    stream = stream_of(me.principal.subject("user"))
    report = me.write(
        [Candidate(Preference(k, v)) for k, v in (("a", "sk-123"), ("tier", "gold!"), ("mail", "a@b.c"))],
    )
    assert [(outcome.action, outcome.reason) for outcome in report.outcomes] == [
        ("blocked", "secret"),
        ("blocked", "key_denied_execution"),
        ("written", ""),
    ]
    assert [record.value for record in me.list()] == ["(address)"]
    stopped = me.write([Candidate(Preference("ok", "fine!")), Candidate(Preference("forbidden", "gold!"))])
    assert (stopped.status, stopped.stop_reason, stopped.outcomes) == (
        "stopped",
        "memory_key_not_allowed_policy:forbidden",
        (),
    )
    with pytest.raises(MemoryStopped) as caught:
        me.remember(key="forbidden", value="gold!")
    assert caught.value.reason == "memory_key_not_allowed_policy:forbidden"
    mail = me.list()[0]
    assert me.update(mail.id, value="sk-7").action == "blocked"
    exported = me.export_jsonl().replace(b'"mail"', b'"tier"').replace(b"(address)", b"gold!")
    exported = exported.replace(b'"sha256"', b'"was"')
    assert [outcome.reason for outcome in me.import_jsonl(exported).outcomes] == ["key_denied_execution"]
    me.note_stop("llm_timeout", phase="apply")
    log = store.load_run(stream, "records").log
    blocked = [event.data.to_map() for event in log if event.type == "memory_blocked"]
    assert [(payload["reason"], payload.get("stopped", False), payload.get("phase")) for payload in blocked] == [
        ("secret", False, "capture"),
        ("key_denied_execution", False, "capture"),
        ("memory_key_not_allowed_policy:forbidden", True, "capture"),
        ("memory_key_not_allowed_policy:forbidden", True, "remember"),
        ("secret", False, "update"),
        ("key_denied_execution", False, "import"),
        ("llm_timeout", True, "apply"),
    ]
    assert not any(secret in repr(log) for secret in ("sk-", "gold!", "a@b.c", "fine!"))
    assert me.stats().blocked["secret"] == 2
    with pytest.raises(MemoryStopped) as caught:
        me.search("x", scopes=["user", "workspace"])
    assert caught.value.reason == "scope_denied:workspace"


def test_import_restores_an_export(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = _me(open_memory_store, clock=clock)
    me.remember(key="k", value="v", scope="workspace")
    me.remember(Fact("name", "Ada"))
    me.remember(Episode("error", clock.time), text="disk full", importance=1)
    exported = me.export_jsonl()
    other = SyncMemoryClient(open_memory_store(), clock=clock).of(somebody())
    assert {outcome.action for outcome in other.import_jsonl(exported).outcomes} == {"written"}
    assert {outcome.action for outcome in other.import_jsonl(exported).outcomes} == {"unchanged"}
    assert other.export_jsonl().replace(b'"import"', b'"user"') != b""
    assert [
        (record.scope, record.data, record.text, record.importance, record.valid_until) for record in other.list()
    ] == [(record.scope, record.data, record.text, record.importance, record.valid_until) for record in me.list()]
    narrow = SyncMemoryClient(open_memory_store()).of(somebody(user="7"))
    outcomes = narrow.import_jsonl(exported).outcomes
    assert sorted(outcome.reason for outcome in outcomes) == ["", "", "scope_denied_execution"]
    assert len(narrow.list()) == 2


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (b"{}\n", DecodeError, "line 1"),
        (b"nonsense", DecodeError, "line 1"),
        (b'{"format":"agent-memory-log-records/1"}\n{"kind":"fact"}', DecodeError, "line 2"),
        (b'{"format":"agent-memory-log-records/1"}\n\n[1]', DecodeError, "line 3"),
        (b'{"format":"agent-memory-log-records/2"}', SchemaTooNew, "format 2"),
        (
            b'{"format":"agent-memory-log-records/1"}\n{"kind":"fact","data":{"key":"","value":"v"}}',
            DecodeError,
            "line 2.*key",
        ),
        (b'{"format":"agent-memory-log-records/%s"}' % (b"9" * 5_000), SchemaTooNew, "format 999"),
        ("text", InvalidArgument, "bytes"),
    ],
)
def test_import_refuses_invalid_text(text: Any, error: type[Exception], message: str) -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store).of(Principal("t", {"user": "1"}))
        with pytest.raises(error, match=message):
            me.import_jsonl(text)
        assert store.list_runs(include_reserved=True).runs == ()


TOKEN = "ghp_" + "A1b2C3d4" * 4 + "A1b2"


def _refuse_token(candidate: Candidate, /) -> Candidate | Refusal:
    """Search every field of the candidate, as an application's redactor may do."""
    return Refusal("secret") if TOKEN in repr(candidate) else candidate


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate(Preference(f"my {TOKEN}", "v")),
        Candidate(Preference("k", f"v {TOKEN}")),
        Candidate(Fact(TOKEN, TOKEN)),
        Candidate(Preference("k", "v"), text=TOKEN),
        Candidate(Preference("k", "v"), scope=TOKEN),
        Candidate(Preference("k", "v"), entities=(TOKEN,)),
        Candidate(Preference("k", "v"), tags=(TOKEN,)),
        Candidate(Preference("k", "v"), links=(Link("type", TOKEN),)),
        Candidate(Preference("k", "v"), links=(Link(TOKEN, "x"),)),
        Candidate(Preference("k", "v"), source=Source("user", TOKEN)),
        Candidate(Preference("k", "v"), source=Source(TOKEN)),
        Candidate(Preference("k", "v"), evidence=(Evidence("agent", "run", 1, TOKEN),)),
        Candidate(Episode(TOKEN), text="t"),
        Candidate(Episode("error"), text=TOKEN),
        Candidate(Procedure((TOKEN,)), text="t"),
        Candidate(UnknownKind(TOKEN, {"key": "k"}), text="t"),
        Candidate(UnknownKind("later", {"key": TOKEN}), text="t"),
        Candidate(UnknownKind("later", {TOKEN: [TOKEN]}), text="t"),
    ],
)
def test_refused_secret_is_stored_and_reported_nowhere(candidate: Candidate) -> None:
    with open_sync_store("memory:") as store:
        client = SyncMemoryClient(store, redactor=_refuse_token)
        me = client.of(Principal("t", {"user": "1"}))
        report = me.write([candidate])
        assert [(outcome.action, outcome.reason) for outcome in report.outcomes] == [("blocked", "secret")]
        (event,) = store.load_run(stream_of(me.principal.subject("user")), "records").log
        assert event.data.to_map()["reason"] == "secret"
        for output in (report, event, me.stats(), me.export_jsonl()):
            assert TOKEN not in repr(output)
        # A key without the secret stays in the event, so that a caller can forget it by its key.
        assert (
            report.outcomes[0].key
            == event.data.to_map().get("key", "")
            == ("" if TOKEN in candidate.key else candidate.key)
        )
        assert [(citation.agent, citation.run, citation.seq) for citation in report.outcomes[0].evidence] == [
            (citation.agent, citation.run, citation.seq) for citation in candidate.evidence
        ]
        assert me.forget(key="k").events == (report.outcomes[0].key == "k")


def test_refusal_without_a_reason_blocks_the_candidate() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, redactor=lambda _: Refusal("")).of(Principal("t", {"user": "1"}))
        outcome = me.remember(key="k", value="v")
        assert (outcome.action, outcome.reason, outcome.key) == ("blocked", "refused", "")
        assert me.list() == ()


def test_default_redactor_keeps_the_key_only_if_the_secret_is_in_the_value(
    open_memory_store: OpenStore,
) -> None:
    me = _me(open_memory_store)
    assert me.remember(key=f"my {TOKEN}", value="v").key == ""
    assert me.remember(key="token", value=TOKEN).key == "token"
    stream = open_memory_store().load_run(stream_of(me.principal.subject("user")), "records")
    assert [event.data.to_map().get("key", "") for event in stream.log] == ["", "token"]
    assert TOKEN not in repr(stream.log)


def test_keys_match_regardless_of_case_white_space_and_unicode_form(
    open_memory_store: OpenStore,
) -> None:
    me = _me(open_memory_store)
    composed, decomposed = "Caf\u00e9 Stra\u00dfe", " cafe\u0301 STRASSE\t"
    assert composed.casefold() != decomposed.strip().casefold()
    first = me.remember(key=composed, value="caf\u00e9").record
    assert first is not None
    assert me.remember(key=decomposed, value="CAFE\u0301").action == "refreshed"
    second = me.remember(key=decomposed, value="tea")
    assert second.superseded == first.id
    assert me.get(key=composed) == second.record
    assert len(me.history(composed)) == len(me.history(decomposed)) == 2
    assert SyncMemoryClient(open_memory_store()).of(me.principal).get(key=decomposed) == second.record
    assert me.forget(key=composed).records == 2
    assert me.history(decomposed) == ()


@given(TEXTS)
def test_folding_is_idempotent(text: str) -> None:
    for fold in (fold_key, fold_text):
        assert fold(fold(text)) == fold(text)
        assert fold(unicodedata.normalize("NFC", text)) == fold(unicodedata.normalize("NFD", text))


def test_update_can_change_only_the_case_of_a_value(open_memory_store: OpenStore) -> None:
    me = _me(open_memory_store)
    record = me.remember(kind="fact", key="name", value="mcdonald").record
    assert record is not None
    assert me.remember(kind="fact", key="name", value="McDonald").action == "refreshed"
    outcome = me.update(record.id, value="McDonald")
    assert (outcome.action, outcome.superseded) == ("written", record.id)
    assert [active.value for active in me.list()] == ["McDonald"]


def test_update_refuses_a_record_that_another_client_forgot(
    open_memory_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    other = SyncMemoryClient(open_memory_store()).of(me.principal)
    record = me.remember(key="k", value="v").record
    assert record is not None
    raw: Any = store.append_events

    def append(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        other.forget(key="k")
        return raw(*arguments, **options)

    monkeypatch.setattr(store, "append_events", append)
    with pytest.raises(InvalidArgument, match="no longer active"):
        me.update(record.id, text="words")
    assert me.list() == ()
    assert me.rebuild().equal


def test_records_change_exactly_at_their_instant_even_if_the_clock_goes_back(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = _me(open_memory_store, clock=clock)
    start = clock.time
    tick = timedelta(microseconds=1)
    first = me.remember(key="k", value="one", ttl_days=1).record
    assert first is not None
    assert (me.as_of(start - tick), me.as_of(start)) == ((), (first,))
    end = start + timedelta(days=1)
    clock.time = end
    assert ([r.id for r in me.as_of(end - tick)], me.as_of(end)) == ([first.id], ())
    assert [(v.closed_at, v.reason) for v in me.history("k")] == [(end, "expired")]
    second = me.remember(key="k", value="two").record
    assert second is not None
    assert me.as_of(end) == (second,)
    clock.move(days=-7)
    third = me.remember(key="k", value="three")
    assert third.superseded == second.id
    assert [r.value for r in me.list()] == [r.value for r in me.as_of(end)] == ["three"]
    assert [v.record.value for v in me.history("k")] == ["one", "two", "three"]
    assert me.rebuild().equal
    assert SyncMemoryClient(open_memory_store(), clock=clock).of(me.principal).list() == me.list()


def test_history_keeps_every_superseded_value(open_memory_store: OpenStore) -> None:
    me = _me(open_memory_store)
    values = ["a", "b", "a", "c", "a"]
    records = [me.remember(key="k", value=value).record for value in values]
    versions = me.history("k")
    assert [version.record.value for version in versions] == values
    for before, after in itertools.pairwise(versions):
        assert after.record.supersedes == (before.record.id,)
        assert (before.record.status, before.reason) == ("superseded", "superseded")
    assert records[-1] == versions[-1].record
    # Forgetting by id also erases the records with the same value. The rest of the history stays.
    assert me.forget(id=versions[0].record.id).records == 3
    assert [version.record.value for version in me.history("k")] == ["b", "c"]
    assert me.get(key="k") is None


def test_full_subject_closes_expired_records_first(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = _me(open_memory_store, clock=clock, max_keyed=2)
    me.remember(key="old", value="v", kind="fact")
    clock.move(days=1)
    me.remember(key="short", value="v", ttl_days=1)
    clock.move(days=1)
    report = me.write([Candidate(Preference("new", "v"))])
    assert [(outcome.action, outcome.key) for outcome in report.outcomes] == [("written", "new")]
    assert [record.key for record in me.list()] == ["old", "new"]
    assert [record.key for record in me.list(status="expired")] == ["short"]


def test_default_limit_is_1000_and_refreshing_protects_a_record(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = _me(open_memory_store, clock=clock)
    me.write([Candidate(Preference(str(number), "v")) for number in range(1_000)])
    clock.move(seconds=1)
    me.remember(key="0", value="V")
    me.remember(Episode("error"), text="an episode does not count")
    (_, archived) = me.write([Candidate(Preference("1000", "v"))]).outcomes
    assert (archived.action, archived.key, archived.reason) == ("archived", "1", "subject_full")
    assert len(me.list(kinds=["preference"])) == 1_000
    assert [record.status for record in (v.record for v in me.history("1"))] == ["archived"]


def test_client_continues_after_its_stream_was_deleted(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store).of(somebody())
    me.remember(key="k", value="v")
    agent = stream_of(me.principal.subject("user"))
    store.delete_run(agent, "records")
    assert (me.list(), me.get(key="k"), me.history("k")) == ((), None, ())
    assert me.remember(key="k", value="v").action == "written"
    store.delete_run(agent, "records")
    assert me.remember(key="k", value="v").action == "written"
    assert len(me.list()) == 1
    assert me.rebuild().equal
    assert SyncMemoryClient(open_memory_store()).of(me.principal).list() == me.list()


def test_full_subject_reports_the_records_it_archives(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = _me(open_memory_store, clock=clock, max_keyed=2)
    for key in "ab":
        clock.move(seconds=1)
        me.write([Candidate(Preference(key, "v"))])
    clock.move(seconds=1)
    report = me.write([Candidate(Preference("c", "v"))])
    assert [(outcome.action, outcome.key, outcome.reason) for outcome in report.outcomes] == [
        ("written", "c", ""),
        ("archived", "a", "subject_full"),
    ]
    assert [record.key for record in me.list()] == ["b", "c"]
    report = me.write([Candidate(Preference(key, "w")) for key in "xyz"])
    assert [record.key for record in me.list()] == ["y", "z"]
    assert me.rebuild().equal


def test_search_finds_shared_words(open_memory_store: OpenStore) -> None:
    clock = SetClock()
    me = _me(open_memory_store, clock=clock)
    me.remember(key="update_channel", value="email")
    clock.move(seconds=1)
    me.remember(key="language", value="english")
    me.remember(Episode("error"), text="The payment incident was resolved", scope="workspace")
    assert [
        hit.record and hit.record.key for hit in me.search("which CHANNEL for an incident?", kinds=["preference"])
    ] == ["update_channel"]
    (first, second) = me.search("payment incident update", top_k=4)
    assert first.record is not None
    assert second.record is not None
    assert (first.record.scope, second.record.key) == ("workspace", "update_channel")
    assert first.score == pytest.approx(sum(first.matched_by.values()))
    assert first.score > second.score
    assert len(me.search("payment incident update", top_k=1)) == 1
    assert me.search("...") == ()
    invalid_arguments: list[dict[str, Any]] = [
        {"query": 7},
        {"query": "x", "top_k": 0},
        {"query": "x", "kinds": "fact"},
    ]
    for arguments in invalid_arguments:
        with pytest.raises(InvalidArgument):
            me.search(**arguments)


def test_warm_client_reads_only_new_events(open_memory_store: OpenStore) -> None:
    me = _me(open_memory_store)
    for number in range(20):
        me.remember(key=str(number), value="v")
    store = open_memory_store()
    read_counts: list[int] = []
    raw = me._store.get().load_run

    def load_run(agent: str, run: str, **options: Any) -> Any:
        snapshot = raw(agent, run, **options)
        read_counts.append(len(snapshot.log))
        return snapshot

    me._store.get().load_run = load_run  # type: ignore[method-assign]  # counts the events read
    try:
        me.get(key="3")
        me.list(scopes=["user"])
        assert read_counts == [0, 0]
        SyncMemoryClient(store).of(me.principal).remember(key="20", value="v")
        read_counts.clear()
        assert len(me.list(scopes=["user"])) == 21
        assert read_counts == [1]
    finally:
        me._store.get().load_run = raw  # type: ignore[method-assign]  # restores the method


def test_threads_can_share_a_client(open_memory_store: OpenStore) -> None:
    me = _me(open_memory_store)

    def remember(number: int) -> Outcome:
        return me.remember(key=f"k{number % 5}", value=f"v{number}")

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(remember, range(40)))
    assert {outcome.action for outcome in outcomes} <= {"written", "refreshed"}
    assert len(me.list()) == 5
    assert me.rebuild().equal
    assert len([v for n in range(5) for v in me.history(f"k{n}")]) == 40


def test_subjects_lists_the_subjects_of_a_tenant(open_memory_store: OpenStore) -> None:
    me = _me(open_memory_store)
    me.remember(key="k", value="v")
    me.remember(key="k", value="v", scope="workspace")
    tenant = me.principal.tenant
    client = SyncMemoryClient(open_memory_store())
    assert client.subjects(tenant) == (SubjectId(tenant, "user", "42"), SubjectId(tenant, "workspace", "ops"))
    assert set(client.subjects(tenant)) <= set(client.subjects())


def test_register_kind_refuses_invalid_and_taken_kinds() -> None:
    assert kind_named("procedure") is Procedure
    assert {"preference", "fact", "episode"} <= kinds().keys()
    invalid_kinds: list[Any] = [str, UnknownKind, type("Nameless", (RecordData,), {}, frozen=True)]
    for invalid_kind in invalid_kinds:
        with pytest.raises(InvalidArgument):
            register_kind(invalid_kind)
    with pytest.raises(InvalidArgument, match="already registered for Fact"):
        register_kind(type("Other", (RecordData,), {"kind": "fact"}, frozen=True))


def test_stars_follow_from_importance() -> None:
    assert [stars_of(n / 8) for n in range(9)] == [1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_client_refuses_invalid_settings_and_arguments() -> None:
    with open_sync_store("memory:") as store:
        me = SyncMemoryClient(store, clock=lambda: datetime(2026, 1, 1)).of(Principal("t", {"user": "1"}))  # noqa: DTZ001  # must be refused
        with pytest.raises(InvalidArgument, match="clock"):
            me.remember(key="k", value="v")
        for wrong in (0, True, "many"):
            with pytest.raises(InvalidArgument, match="max_keyed"):
                SyncMemoryClient(store, max_keyed=wrong)  # type: ignore[arg-type]  # must be refused
        with pytest.raises(InvalidArgument, match="Principal"):
            SyncMemoryClient(store).of("me")  # type: ignore[arg-type]  # must be refused
        invalid_arguments: list[dict[str, Any]] = [
            {},
            {"id": "x", "key": "y"},
            {"id": 7},
            {"key": 7},
            {"key": "k", "kind": 7},
        ]
        for arguments in invalid_arguments:
            for call in (SyncMemoryClient(store).of(me.principal).get, SyncMemoryClient(store).of(me.principal).forget):
                with pytest.raises(InvalidArgument):
                    call(**arguments)
        with pytest.raises(InvalidArgument, match="status"):
            me.list(status="gone")  # type: ignore[arg-type]  # must be refused
        with pytest.raises(InvalidArgument, match="time"):
            me.as_of(datetime(2026, 1, 1))  # noqa: DTZ001  # must be refused
