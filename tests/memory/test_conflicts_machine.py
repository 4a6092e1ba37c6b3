"""A state machine of conflicts: two clients state, resolve, reopen and forget, and crash while they do.

After each step, both clients list the same conflicts, and their state equals a fold of the whole stream. Every text
that was not forgotten is active or archived.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from agent_memory_log import SyncStore
from agent_memory_log.errors import InvalidArgument, StoreUnavailable
from agent_memory_log.memory import ConflictPair, Episode, Principal, SyncMemory, SyncMemoryClient
from tests.effort import EXAMPLES
from tests.memory.stores import OpenStore, SetClock, open_memory_store, store_url
from tests.memory.test_machine import CrashingStore

__all__ = ["open_memory_store", "store_url"]

TEXTS = (
    "I love jazz",
    "I hate jazz",
    "I eat steak",
    "I am a vegetarian",
    "My rent is 900 euros",
    "My rent is 950 euros",
)
KEEP: tuple[Literal["first", "second", "both", "merged"], ...] = ("first", "second", "both", "merged")
MERGED = "It depends"
_tenants = itertools.count()

CLIENT = st.integers(0, 1)
CRASH = st.none() | st.tuples(st.integers(0, 1), st.booleans())


class Conflicts(RuleBasedStateMachine):
    def __init__(self, stores: list[SyncStore]) -> None:
        super().__init__()
        self.crashing = [CrashingStore(store) for store in stores]
        self.clock = SetClock()
        self.principal = Principal(f"conflicts {next(_tenants)}", {"user": "x"})
        self.clients = [self.new_client(number) for number in range(len(stores))]
        self.stated: set[str] = set()

    def new_client(self, number: int) -> SyncMemory:
        store: Any = self.crashing[number]
        return SyncMemoryClient(store, clock=self.clock).of(self.principal)

    def call(self, client: int, crash: tuple[int, bool] | None, do: Callable[[SyncMemory], object]) -> None:
        """Call a client, which may crash before or after one of its writes. Then a new process takes its place."""
        self.clock.move(seconds=1)
        crashing = self.crashing[client]
        if crash is not None:
            crashing.left, crashing.after = crash
        with suppress(StoreUnavailable, InvalidArgument):
            do(self.clients[client])
        crashing.left = None
        if crash is not None:
            self.clients[client] = self.new_client(client)

    def pairs(self, status: Literal["open", "resolved"]) -> tuple[ConflictPair, ...]:
        return self.clients[0].conflicts(status=status)

    @initialize()
    def state_all(self) -> None:
        for text in TEXTS:
            self.state(0, None, text)

    @rule(client=CLIENT, crash=CRASH, text=st.sampled_from(TEXTS))
    def state(self, client: int, crash: tuple[int, bool] | None, text: str) -> None:
        self.call(client, crash, lambda me: me.remember(Episode("said"), text=text))
        self.stated |= {record.text for record in self.clients[1 - client].list()} & {text}

    @rule(client=CLIENT, crash=CRASH, keep=st.sampled_from(KEEP), data=st.data())
    def resolve(self, client: int, crash: tuple[int, bool] | None, keep: Any, data: st.DataObject) -> None:
        pairs = self.pairs("open")
        if pairs:
            pair = data.draw(st.sampled_from(pairs))
            self.call(client, crash, lambda me: me.resolve(pair.newer.id, pair.older.id, keep=keep, text=MERGED))
            if crash is None:
                assert pair not in self.pairs("open")

    @rule(client=CLIENT, crash=CRASH, data=st.data())
    def unresolve(self, client: int, crash: tuple[int, bool] | None, data: st.DataObject) -> None:
        pairs = self.pairs("resolved")
        if pairs:
            pair = data.draw(st.sampled_from(pairs))
            self.call(client, crash, lambda me: me.unresolve(pair.newer.id, pair.older.id))

    @rule(client=CLIENT, data=st.data())
    def forget(self, client: int, data: st.DataObject) -> None:
        records = self.clients[client].list()
        if records:
            record = data.draw(st.sampled_from(records))
            self.call(client, None, lambda me: me.forget(id=record.id))
            for status in ("active", "archived"):
                assert record.id not in {left.id for left in self.clients[0].list(status=status)}
            self.stated &= self.remaining()

    def remaining(self) -> set[str]:
        """Return the texts of all active and archived records."""
        me = self.clients[0]
        return {record.text for status in ("active", "archived") for record in me.list(status=status)}

    @invariant()
    def both_clients_agree_and_no_text_is_lost(self) -> None:
        first, second = self.clients
        for status in ("open", "resolved"):
            assert first.conflicts(status=status) == second.conflicts(status=status)
        active = {record.id for record in first.list()}
        for pair in self.pairs("open"):
            assert {pair.newer.id, pair.older.id} <= active
            assert 0 < sum(pair.trust) < 2  # both are doubted
        for pair in self.pairs("resolved"):
            assert ({pair.newer.id, pair.older.id} <= active) == (pair.resolution == "both")
        merged = [pair for pair in self.pairs("resolved") if pair.resolution == "merged"]
        assert [record.text for record in first.list()].count(MERGED) <= len(merged)
        assert self.stated <= self.remaining()
        assert first.rebuild().equal


@pytest.mark.hypothesis  # for make torture
def test_conflicts_survive_crashes_and_nothing_is_lost(open_memory_store: OpenStore, store_url: str) -> None:
    stores = [open_memory_store(), open_memory_store()]

    class OnThisStore(Conflicts):
        def __init__(self) -> None:
            super().__init__(stores)

    share = {"memory": 1, "sqlite": 3}.get(store_url.partition(":")[0], 8)
    run_state_machine_as_test(
        OnThisStore, settings=settings(max_examples=EXAMPLES // share, stateful_step_count=20, deadline=None)
    )
