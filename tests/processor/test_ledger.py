"""A ledger shows the messages of all processors, also if an append is repeated."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from agent_memory_log import AppendResult, Event, Snapshot, Store, new_event, open_store
from agent_memory_log.processor.transport.ledger import Ledgers, OutgoingMessage


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
