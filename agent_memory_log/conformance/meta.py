"""The meta of a run: kept from the append that creates it, any JSON, never changed by later ones."""

from __future__ import annotations

from agent_memory_log.conformance.checks import exact
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, VALUES, nested, said
from agent_memory_log.events.jsonvalue import MAX_DEPTH, JsonValue


class Meta(Suite):
    """Tests of ``meta``."""

    @contract
    async def test_15_meta_is_kept_with_the_run(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        meta: dict[str, JsonValue] = {"session_id": "s-1", "parent": None, "nested": {"a": [1, 1.0, True]}}
        await store.append_events(AGENT, RUN, said("one"), said("two"), meta=meta)
        await store.append_events(AGENT, "without", said("one"))
        for handle in (store, other):
            assert exact((await handle.load_run(AGENT, RUN)).meta) == exact(meta)
            assert exact((await handle.load_run(AGENT, RUN, after=2)).meta) == exact(meta)
            assert (await handle.load_run(AGENT, "without")).meta == {}
            assert [exact(info.meta) for info in (await handle.list_runs()).runs] == [exact({}), exact(meta)]

    @contract
    async def test_15_meta_of_later_appends_changes_nothing(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(AGENT, RUN, said("one"), meta={"a": 1})
        await store.append_events(AGENT, "without", said("one"))
        for handle in (store, other):
            for run in (RUN, "without"):
                await handle.append_events(AGENT, run, said("more"), meta={"b": 2})
        await store.redact_events(AGENT, RUN, [1])
        assert (await store.load_run(AGENT, RUN)).meta == {"a": 1}
        assert (await store.load_run(AGENT, "without")).meta == {}
        assert [info.meta for info in (await other.list_runs()).runs] == [{}, {"a": 1}]

    @contract
    async def test_15_any_meta_comes_back_unchanged(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        meta: dict[str, JsonValue] = {name: value for name, value in VALUES.items() if name != "as deep as it may be"}
        meta.update({"": 1, "$a": 2, "b.c": 3, "\x00": 4, "_id": 5, "deep": nested(MAX_DEPTH - 1)})
        await store.append_events(AGENT, RUN, said("one"), meta=meta)
        assert exact((await other.load_run(AGENT, RUN)).meta) == exact(meta)
        (info,) = (await other.list_runs()).runs
        assert exact(info.meta) == exact(meta)
