"""Promise 18: reserved agents and event types are written only with ``reserved=True``."""

from __future__ import annotations

import pytest

from agent_memory_log.conformance.checks import all_runs
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, NOON, RUN, said
from agent_memory_log.errors import InvalidEvent
from agent_memory_log.events.event import Event
from agent_memory_log.events.reserved import TOMBSTONE_TYPE

_OWN = "@memory/acme/user/42"


class Reserving(Suite):
    """Tests of reserved agents and event types."""

    @contract
    async def test_18_reserved_agents_are_refused_unless_said(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        for agent in ("@", "@own", _OWN):
            for events in ((said("one"),), (said("one"), said("two")), ()):
                with pytest.raises(InvalidEvent) as caught:
                    await store.append_events(agent, RUN, *events)
                assert caught.value.field == "agent"
        assert await all_runs(other, include_reserved=True) == []
        # Once it is there, an application still adds nothing to it.
        await other.append_events(_OWN, RUN, said("one"), reserved=True)
        with pytest.raises(InvalidEvent):
            await other.append_events(_OWN, RUN, said("two"))
        assert (await store.load_run(_OWN, RUN)).version == 1
        assert (await store.append_events(f"a{_OWN}", RUN, said("one"))).version == 1

    @contract
    async def test_18_reserved_types_are_refused_unless_said(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(AGENT, RUN, said("one"))
        for event_type in (TOMBSTONE_TYPE, "memory_of_a_newer_release", "memory_"):
            own = _event(event_type)
            for run in (RUN, "new"):
                for events in ((own,), (said("two"), own)):
                    with pytest.raises(InvalidEvent) as caught:
                        await store.append_events(AGENT, run, *events)
                    assert caught.value.field == "type"
            await other.append_events(_OWN, RUN, own, reserved=True)
        assert [(info.run, info.version) for info in await all_runs(store)] == [(RUN, 1)]
        stored = await store.load_run(_OWN, RUN)
        assert [event.type for event in stored.log] == [TOMBSTONE_TYPE, "memory_of_a_newer_release", "memory_"]
        assert (await store.append_events(AGENT, RUN, _event("memory"))).version == 2

    @contract
    async def test_18_what_says_that_memory_forgot_is_never_redacted(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(_OWN, RUN, said("one"), _event(TOMBSTONE_TYPE), reserved=True)
        for seqs in ([2], [1, 2]):
            with pytest.raises(InvalidEvent) as caught:
                await other.redact_events(_OWN, RUN, seqs)
            assert caught.value.field == "seqs"
        stored = await store.load_run(_OWN, RUN)
        assert [event.type for event in stored.log] == ["user_message", TOMBSTONE_TYPE]


def _event(event_type: str) -> Event:
    return Event.from_map({"type": event_type, "timestamp": NOON.isoformat(), "data": {}})
