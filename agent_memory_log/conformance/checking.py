"""Promise 19: ``check`` finds no damage in an intact store after appends, redactions, deletions and expiry.

A backend's own tests must show that ``check`` finds damage.
"""

from __future__ import annotations

import pytest

from agent_memory_log.conformance.ends import FAR_ENDS, expired_run
from agent_memory_log.conformance.harness import Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, rich_event, user_message
from agent_memory_log.errors import InvalidArgument, InvalidEvent, StoreClosed
from agent_memory_log.store import Flaw, Store


@contract
class Checking(Suite):
    """Tests of ``check``."""

    async def test_19_check_finds_no_flaws_in_an_intact_store(self, store: Store, other: Store) -> None:
        assert await _flaws(store) == []
        await store.append_events(AGENT, RUN, user_message("one"), rich_event(), meta={"expires_at": FAR_ENDS[0]})
        await other.redact_events(AGENT, RUN, [1], reason="asked")
        for run in ("deleted", "begun anew"):
            await other.append_events(AGENT, run, user_message("one"), user_message("two"))
            await store.delete_run(AGENT, run)
        await other.append_events(AGENT, "begun anew", user_message("three"))
        await store.append_events("@own", RUN, user_message("one"), first_seq=8, reserved=True)
        await expired_run(store, other, run="expired")
        for handle in (store, other):
            for scope in ((), (AGENT,), ("@own",), (AGENT, RUN), (AGENT, "expired"), (AGENT, "unknown"), ("unknown",)):
                assert await _flaws(handle, *scope) == []

    async def test_19_check_refuses_a_run_without_an_agent(self, store: Store) -> None:
        with pytest.raises(InvalidArgument):
            await _flaws(store, None, RUN)
        for scope in (("",), (AGENT, ""), ("a" * 513,), (AGENT, "\ud800")):
            with pytest.raises(InvalidEvent):
                await _flaws(store, *scope)

    async def test_19_check_on_a_closed_handle_raises_store_closed(self, store: Store) -> None:
        await store.aclose()
        with pytest.raises(StoreClosed):
            await _flaws(store)


async def _flaws(store: Store, *scope: str | None) -> list[Flaw]:
    return [flaw async for flaw in store.check(*scope)]
