"""A ledger shows the messages of all processors, also if an append is repeated, and folds in linear work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
import pytest

from agent_memory_log import AppendResult, Event, Snapshot, Store, new_event, open_store
from agent_memory_log.processor.transport.ledger import Ledger, Ledgers, MessagesPublished, OutgoingMessage


class Name(str):
    """A text that counts its comparisons."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Name.comparisons += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


class RepeatingStore:
    """A store whose answer to an append is lost once. The append is repeated after another processor appended."""

    def __init__(self, raw: Store, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self.raw = raw
        self.meanwhile: Callable[[], Awaitable[object]] | None = meanwhile

    async def append_events(self, agent: str, run: str, *events: Event, **options: Any) -> AppendResult:
        result = await self.raw.append_events(agent, run, *events, **options)
        if self.meanwhile is None:
            return result
        meanwhile, self.meanwhile = self.meanwhile, None
        await meanwhile()
        return await self.raw.append_events(agent, run, *events, **options)

    async def load_run(self, agent: str, run: str, **options: Any) -> Snapshot:
        return await self.raw.load_run(agent, run, **options)


def message(name: str) -> Event:
    return new_event(OutgoingMessage("port", "loop", "subject", "{}"), event_id=name)


async def test_a_repeated_append_hides_no_message_of_another_processor() -> None:
    async with await open_store("memory:") as store:

        async def append_other() -> None:
            other = Ledgers(store, "test")
            async with other.locked("loop") as ledger:
                assert await other.append(ledger, message("other"))

        own = Ledgers(cast("Store", RepeatingStore(store, append_other)), "test")
        async with own.locked("loop") as ledger:
            assert await own.append(ledger, message("own"))
        async with own.locked("loop") as ledger:
            assert [*ledger.unpublished] == ["own", "other"]


@pytest.mark.parametrize("size", [1, 500])
def test_published_messages_cost_as_much_as_there_are_of_them(size: int) -> None:
    names = [f"message {number}" for number in range(500)]
    published = [tuple(map(Name, names[first : first + size])) for first in range(0, 500, size)]
    events = [*map(message, names), *(new_event(MessagesPublished(ids)) for ids in published)]
    ledger = Ledger("loop")
    Name.comparisons = 0
    ledger.fold([msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(events, 1)])
    assert not ledger.unpublished
    assert Name.comparisons <= len(names)


async def test_many_published_messages_are_marked_in_several_appends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory_log.processor.transport.ledger._MOST_MARKS", 2)
    async with await open_store("memory:") as store:
        ledgers = Ledgers(store, "test")
        async with ledgers.locked("loop") as ledger:
            await ledgers.append(ledger, *(message(f"message {number}") for number in range(5)))
            for name in [*ledger.unpublished]:
                ledger.mark_published(name)
            while ledger.unmarked:
                await ledgers.append(ledger)
        marks = [event.data for event in (await store.load_run("@processor/test", "loop")).log[5:]]
        assert [len(data.ids) for data in marks if isinstance(data, MessagesPublished)] == [2, 2, 1]
        async with Ledgers(store, "test").locked("loop") as other:
            assert not other.unpublished


async def test_listing_reads_no_more_ledgers_again_than_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent_memory_log.processor.transport.ledger._MOST_LEDGERS", 8)
    async with await open_store("memory:") as store:
        for number in range(10):
            await store.append_events("@processor/test", f"loop/{number}", message("message"), reserved=True)
        ledgers, reads = Ledgers(store, "test"), 0
        refresh = ledgers.refresh

        async def counting(ledger: Ledger) -> None:
            nonlocal reads
            reads += 1
            await refresh(ledger)
            ledger.unpublished.clear()

        monkeypatch.setattr(ledgers, "refresh", counting)
        counts: list[int] = []
        for _ in range(3):
            before = reads
            assert len([ledger async for ledger in ledgers.states("loop/")]) == 10
            counts.append(reads - before)
        assert counts == [10, 2, 2]
