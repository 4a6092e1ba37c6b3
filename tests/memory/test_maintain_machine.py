"""A state machine: each statement stays readable, once, while rounds consolidate, are undone, crash and are repeated.

After each complete round, the words of every statement are in one active record, and the words of an erased or
forgotten statement are in no record and nowhere in the stream.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from agent_memory_log import SyncStore, UserMessage, new_event
from agent_memory_log.errors import StoreUnavailable
from agent_memory_log.memory import Episode, Evidence, Principal, SyncMemory, SyncMemoryClient, stream_of
from agent_memory_log.memory.governance import maintenance
from agent_memory_log.memory.records.principals import STREAM_RUN
from agent_memory_log.memory.records.record import MERGES
from agent_memory_log.memory.records.reports.outcomes import WriteReport
from agent_memory_log.memory.stream import snapshots
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.subjects import folded
from agent_memory_log.steps import run_sync
from tests.effort import EXAMPLES
from tests.memory.stores import OpenStore, SetClock, open_memory_store, store_url
from tests.memory.test_machine import CrashingStore

__all__ = ["open_memory_store", "store_url"]

_numbers = itertools.count()


class StatementsStay(RuleBasedStateMachine):
    def __init__(self, stores: list[SyncStore]) -> None:
        super().__init__()
        self.crashing = [CrashingStore(store) for store in stores]
        self.raw = stores[0]
        self.clock = SetClock()
        self.principal = Principal(f"statements {next(_numbers)}", {"user": "x"})
        self.clients = [self.new_client(number) for number in range(len(stores))]
        self.words: dict[str, int | None] = {}
        self.gone: list[str] = []

    def new_client(self, number: int) -> SyncMemory:
        store: Any = self.crashing[number]
        return SyncMemoryClient(store, clock=self.clock).of(self.principal)

    @rule(
        client=st.integers(0, 1),
        topic=st.sampled_from(["Atlas", "Borealis"]),
        cites=st.lists(st.booleans(), min_size=1, max_size=4),
        days=st.sampled_from([0, 31]),
    )
    def state(self, client: int, topic: str, cites: list[bool], days: int) -> None:
        for each in cites:
            self.state_one(client, topic, each)
        self.clock.move(days=days)

    def state_one(self, client: int, topic: str, cites: bool) -> None:
        self.clock.move(minutes=1)
        word = f"zq{next(_numbers)}zq"
        seq: int | None = None
        evidence: tuple[Evidence, ...] = ()
        if cites:
            event = new_event(UserMessage(f"We saw {word}."))
            seq = self.raw.append_events("agent", self.principal.tenant, event).version
            evidence = (Evidence("agent", self.principal.tenant, seq),)
        self.clients[client].remember(
            Episode("discovery"), text=f"We saw {word} today.", entities=[topic], evidence=evidence
        )
        self.words[word] = seq

    @rule(client=st.integers(0, 1), calls=st.none() | st.integers(0, 8), after=st.booleans(), limit=st.integers(1, 9))
    def maintain(self, client: int, calls: int | None, after: bool, limit: int) -> None:
        """Interrupt a round. Then the other client completes it, and one more round returns the parts of records."""
        self.clock.move(minutes=1)
        crashing = self.crashing[client]
        crashing.left, crashing.after = calls, after
        with suppress(StoreUnavailable):
            self.clients[client].maintain(weak_below=0, limit=limit)
        if crashing.left is not None:
            crashing.left = None
            self.clients[client] = self.new_client(client)
        self.complete_round(1 - client, limit)

    def complete_round(self, client: int, limit: int) -> None:
        me = self.clients[client]
        while me.maintain(weak_below=0, limit=limit).remaining:
            pass
        me.maintain(weak_below=0)
        self.check()

    @precondition(lambda self: any(seq is not None for seq in self.words.values()))
    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        """Redact a statement. Its record, and each record that was made from it, are gone at once."""
        word = data.draw(st.sampled_from([word for word, seq in self.words.items() if seq is not None]))
        seq = self.words[word]
        assert seq is not None
        self.raw.redact_events("agent", self.principal.tenant, [seq])
        self.lose(word)
        self.complete_round(0, limit=1)

    @precondition(lambda self: bool(self.words))
    @rule(data=st.data(), client=st.integers(0, 1))
    def forget(self, data: st.DataObject, client: int) -> None:
        """Forget a record, active or archived. An active one that was consolidated takes all its statements along."""
        me = self.clients[client]
        records = [*me.list(), *me.list(status="archived")]
        record = data.draw(st.sampled_from(records))
        self.clock.move(minutes=1)
        me.forget(id=record.id)
        lost = [word for word in self.words if word in record.text]
        for word in lost:
            self.lose(word)
        self.complete_round(client, limit=9)

    @rule(data=st.data(), client=st.integers(0, 1), calls=st.none() | st.integers(0, 1), after=st.booleans())
    def separate(self, data: st.DataObject, client: int, calls: int | None, after: bool) -> None:
        me = self.clients[client]
        merged = [record for record in me.list() if any(link.type == MERGES for link in record.links)]
        if not merged:
            return
        record = data.draw(st.sampled_from(merged))
        crashing = self.crashing[client]
        crashing.left, crashing.after = calls, after
        report = WriteReport()
        with suppress(StoreUnavailable):
            report = me.separate(record.id)
        crashing.left = None
        assert all(outcome.action == "written" for outcome in report.outcomes)
        self.clients[client] = self.new_client(client)
        self.check()

    def lose(self, word: str) -> None:
        del self.words[word]
        self.gone.append(word)
        for client in self.clients:
            assert all(word not in record.text for record in client.list())

    def check(self) -> None:
        for client in self.clients:
            texts = [record.text for record in client.list()]
            for word in self.words:
                assert sum(word in text for text in texts) == 1, (word, texts)
            every = texts + [record.text for record in client.list(status="archived")]
            assert all(word not in text for word in self.gone for text in every)
            assert isinstance(client._context, Context)
            subject = client._context.subject("user")
            stream = run_sync(subject.load_all(), self.raw)
            assert subject.ask(lambda state: state.to_bytes()) == folded(stream).to_bytes()
        agent = stream_of(self.principal.subject("user"))
        stored = str(self.raw.load_run(agent, STREAM_RUN).log)
        assert all(word not in stored for word in self.gone)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "EVENTS_BETWEEN", 6)
    monkeypatch.setattr(snapshots, "PART_BYTES", 300)
    monkeypatch.setattr(maintenance, "SLICE", 2)
    monkeypatch.setattr(maintenance, "GROUPS_AT_ONCE", 1)


@pytest.mark.hypothesis  # for make torture
@pytest.mark.usefixtures("small_slices")
def test_statements_stay_readable_while_rounds_consolidate(open_memory_store: OpenStore, store_url: str) -> None:
    stores = [open_memory_store(), open_memory_store()]

    class OnThisStore(StatementsStay):
        def __init__(self) -> None:
            super().__init__(stores)

    share = {"memory": 1, "sqlite": 4}.get(store_url.partition(":")[0], 12)
    size = settings(max_examples=EXAMPLES // share, stateful_step_count=20, phases=[Phase.generate])
    run_state_machine_as_test(OnThisStore, settings=size)
