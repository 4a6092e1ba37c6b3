"""Evidence may cite any event of the store. Memory shows only the cited events that the principal may read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent_memory_log import UserMessage, new_event, open_sync_store
from agent_memory_log.memory import Evidence, Principal, SyncMemory, SyncMemoryClient
from agent_memory_log.memory.records.reports.outcomes import EvidenceLine
from tests.memory.stores import OpenStore, SaidPreferences, open_memory_store, somebody, store_url

__all__ = ["open_memory_store", "store_url"]

SECRET = "the victim's words"
NOT_LINKED = "not linked to this subject"


def _line(me: SyncMemory, key: str, scope: str | None = None) -> EvidenceLine:
    record = me.get(key=key, scope=scope)
    assert record is not None
    explanation = me.explain(record.id)
    assert explanation is not None
    (line,) = explanation.evidence
    return line


_CALLS: dict[str, Callable[[SyncMemory, str], object]] = {
    "get": lambda me, _: me.get(key="k"),
    "list": lambda me, _: me.list(),
    "history": lambda me, _: me.history("k"),
    "as_of": lambda me, _: me.list(status="superseded"),
    "explain": lambda me, record: me.explain(record),
    "search": lambda me, _: me.search(SECRET, kinds=None),
    "context": lambda me, _: me.context(SECRET),
    "export": lambda me, _: me.export_jsonl(),
    "stats": lambda me, _: me.stats(),
}


@pytest.mark.parametrize("call", _CALLS.values(), ids=_CALLS)
@pytest.mark.parametrize("is_imported", [False, True])
def test_evidence_in_another_users_run_is_never_shown(
    call: Callable[[SyncMemory, str], object], is_imported: bool
) -> None:
    with open_sync_store("memory:") as store:
        store.append_events("support-agent", "victim-run", new_event(UserMessage(SECRET)))
        client = SyncMemoryClient(store)
        client.of(Principal("acme", {"user": "victim"})).link_run("support-agent", "victim-run")
        writer = client.of(Principal("acme", {"user": "writer"}))
        outcome = writer.remember(key="k", value="v", evidence=[Evidence("support-agent", "victim-run", 1)])
        assert outcome.action == "written"
        me = writer
        if is_imported:
            me = client.of(Principal("acme", {"user": "reader"}))
            me.import_jsonl(writer.export_jsonl())
        record = me.get(key="k")
        assert record is not None
        assert SECRET not in repr(call(me, record.id))
        assert _line(me, "k") == EvidenceLine(Evidence("support-agent", "victim-run", 1), reason=NOT_LINKED)
        assert not me.forget(key="k", evidence=True).evidence
        assert store.load_run("support-agent", "victim-run").log[0].data == UserMessage(SECRET)


def test_unknown_run_is_reported_as_not_linked(open_memory_store: OpenStore) -> None:
    me = SyncMemoryClient(open_memory_store()).of(somebody())
    me.remember(key="k", value="v", evidence=[Evidence("agent", f"none {me.principal.tenant}", 1)])
    assert _line(me, "k").reason == NOT_LINKED


def test_evidence_of_a_shared_record_is_shown_only_to_its_author(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    client = SyncMemoryClient(store, extractor=SaidPreferences())
    me = client.of(somebody(user="42", workspace="ops"))
    colleague = client.of(Principal(me.principal.tenant, {"user": "43", "workspace": "ops"}))
    run = f"run {me.principal.tenant}"
    store.append_events("agent", run, new_event(UserMessage("workspace@region=eu; tone=dry")))
    me.derive("agent", run)
    assert _line(me, "region", "workspace").text == "user: workspace@region=eu; tone=dry"
    line = _line(colleague, "region", "workspace")
    assert (line.text, line.reason) == ("", NOT_LINKED)


def test_forgotten_event_is_hidden_in_evidence_of_other_records(open_memory_store: OpenStore) -> None:
    store = open_memory_store()
    me = SyncMemoryClient(store, extractor=SaidPreferences()).of(somebody())
    run = f"run {me.principal.tenant}"
    store.append_events("agent", run, new_event(UserMessage("codeword=wolfram; tone=dry")))
    me.derive("agent", run)
    me.forget(key="codeword")
    line = _line(me, "tone")
    assert (line.text, line.reason) == ("", "forgotten")
