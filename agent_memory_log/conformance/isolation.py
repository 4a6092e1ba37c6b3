"""Promise 7: callers can change the arguments and results of a store without changing its data."""

from __future__ import annotations

from agent_memory_log.conformance.checks import check_run, exact, scribble, take
from agent_memory_log.conformance.harness import Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, rich_event, unknown_event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.store import Store


@contract
class Isolation(Suite):
    """Tests with callers that change arguments and results."""

    async def test_7_changing_appended_events_does_not_change_the_store(self, store: Store) -> None:
        originals = [rich_event(), unknown_event()]
        result = await store.append_events(AGENT, RUN, *originals, meta=_meta())
        scribble(originals)
        await _check(store)
        for stored, event in zip(result.events, (rich_event(), unknown_event()), strict=True):
            assert exact(stored.data.to_map()) == exact(event.data.to_map()), (
                "the result shares objects with the arguments"
            )

    async def test_7_changing_appended_meta_does_not_change_the_store(self, store: Store) -> None:
        meta = _meta()
        await store.append_events(AGENT, RUN, rich_event(), unknown_event(), meta=meta)
        scribble(meta)
        await _check(store)

    async def test_7_changing_the_result_of_append_does_not_change_the_store(self, store: Store) -> None:
        result = await store.append_events(AGENT, RUN, rich_event(), unknown_event(), meta=_meta())
        scribble(result)
        for event in result.events:
            scribble(event)
        await _check(store)

    async def test_7_changing_the_result_of_a_repeated_append_does_not_change_the_store(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, rich_event(), unknown_event(), meta=_meta())
        for _ in range(2):
            result = await store.append_events(AGENT, RUN, rich_event(), unknown_event())
            assert result.inserted == 0
            for event in result.events:
                scribble(event)
        await _check(store)

    async def test_7_changing_a_loaded_snapshot_does_not_change_the_store(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, rich_event(), unknown_event(), meta=_meta())
        snapshots = [await store.load_run(AGENT, RUN) for _ in range(2)]
        for event in snapshots[0].log:
            scribble(event)
        scribble(snapshots[0].meta)
        check_run(snapshots[1], [rich_event(), unknown_event()])
        await _check(store)

    async def test_7_changing_listed_meta_does_not_change_the_store(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, rich_event(), unknown_event(), meta=_meta())
        for info in (await store.list_runs()).runs:
            scribble(info.meta)
        await _check(store)

    async def test_7_changing_followed_events_does_not_change_the_store(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, rich_event(), unknown_event(), meta=_meta())
        events = store.follow(AGENT, RUN)
        for event in await take(events, 2):
            scribble(event)
        await events.aclose()
        await _check(store)


def _meta() -> dict[str, JsonValue]:
    return {"session": "s-1", "nested": {"list": [{}]}}


async def _check(store: Store) -> None:
    """Assert that every way of reading returns the run as it was appended."""
    originals = [rich_event(), unknown_event()]
    snapshot = await store.load_run(AGENT, RUN)
    check_run(snapshot, originals)
    assert exact(snapshot.meta) == exact(_meta())
    assert [exact(info.meta) for info in (await store.list_runs()).runs] == [exact(_meta())]
    again = await store.append_events(AGENT, RUN, *originals)
    assert again.inserted == 0
