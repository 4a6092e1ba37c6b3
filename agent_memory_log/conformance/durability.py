"""Promise 2, as far as handles show it: what was acknowledged is there when every handle was closed.

That it survives a killed process and a lost power supply is for the backend's own tests.
"""

from __future__ import annotations

from agent_memory_log.conformance.checks import all_runs, check_run, check_same
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, rich_event, said


class Durability(Suite):
    """Tests of closing and opening again."""

    @contract
    async def test_2_what_was_appended_is_there_after_all_handles_closed(self, open_handle: Handles) -> None:
        store = await open_handle()
        given = [rich_event(), said("two")]
        await store.append_events(AGENT, RUN, *given, meta={"a": [1]})
        before = await store.load_run(AGENT, RUN)
        runs = await all_runs(store)
        await store.aclose()
        store = await open_handle()
        after = await store.load_run(AGENT, RUN)
        check_run(after, given)
        check_same(after, before)
        assert await all_runs(store) == runs

    @contract
    async def test_2_what_was_redacted_or_deleted_stays_so_after_all_handles_closed(self, open_handle: Handles) -> None:
        store = await open_handle()
        await store.append_events(AGENT, RUN, said("one"), said("two"))
        await store.append_events(AGENT, "other", said("one"), said("two"))
        await store.redact_events(AGENT, RUN, [1], reason="asked")
        await store.delete_run(AGENT, "other")
        before = await store.load_run(AGENT, RUN), await store.load_run(AGENT, "other")
        types = [[event.type for event in snapshot.log] for snapshot in before]
        assert types == [["redacted", "user_message", "redaction"], []]
        await store.aclose()
        store = await open_handle()
        for run, snapshot in zip((RUN, "other"), before, strict=True):
            check_same(await store.load_run(AGENT, run), snapshot)
        assert (await store.append_events(AGENT, "other", said("three"))).version == 3

    @contract
    async def test_2_idempotency_survives_closing_all_handles(self, open_handle: Handles) -> None:
        store = await open_handle()
        await store.append_events(AGENT, RUN, rich_event(), said("two", event_id="two"))
        await store.aclose()
        store = await open_handle()
        again = await store.append_events(AGENT, RUN, rich_event(), said("two", event_id="two"), expected_version=0)
        assert (again.version, again.inserted, len(again.events)) == (2, 0, 2)
