"""Promises 3 and 12: ``delete_run`` empties a run; its version stays, and its next event goes on from there."""

from __future__ import annotations

import pytest

from agent_memory_log.conformance.checks import all_runs, check_run, seqs_of
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, said
from agent_memory_log.errors import CursorOutOfRange


class Deleting(Suite):
    """Tests of ``delete_run``."""

    @contract
    async def test_12_a_deleted_run_is_empty_through_every_handle(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(AGENT, RUN, said("one"), said("two"), said("three"), meta={"a": 1})
        await other.load_run(AGENT, RUN)
        await store.delete_run(AGENT, RUN)
        for handle in (store, other, await open_handle()):
            for after in (0, 1, 3):
                snapshot = await handle.load_run(AGENT, RUN, after=after)
                assert (list(snapshot.log), snapshot.meta) == ([], {})
            assert await all_runs(handle) == []
            with pytest.raises(CursorOutOfRange):
                await handle.redact_events(AGENT, RUN, [1])

    @contract
    async def test_3_the_version_of_a_deleted_run_stays(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(AGENT, RUN, said("one"), said("two"))
        await store.delete_run(AGENT, RUN)
        for handle in (store, other):
            snapshot = await handle.load_run(AGENT, RUN)
            assert (snapshot.version, snapshot.last_seq, snapshot.first_seq) == (2, 2, 3)
            with pytest.raises(CursorOutOfRange):
                await handle.load_run(AGENT, RUN, after=3)

    @contract
    async def test_3_the_next_seq_of_a_deleted_run_goes_on(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(2)]
        version = 0
        for round_ in range(4):
            given = [said(f"{round_}/{place}") for place in range(round_ + 1)]
            result = await handles[round_ % 2].append_events(AGENT, RUN, *given, expected_version=version)
            assert seqs_of(result.events) == list(range(version + 1, version + round_ + 2))
            snapshot = await handles[0].load_run(AGENT, RUN)
            check_run(snapshot, given, first_seq=version + 1)
            assert snapshot.first_seq == version + 1
            version = result.version
            await handles[1].delete_run(AGENT, RUN)

    @contract
    async def test_3_old_cursors_of_a_deleted_run_stay_meaningful(self, open_handle: Handles) -> None:
        store = await open_handle()
        await store.append_events(AGENT, RUN, said("one"), said("two"), said("three"))
        await store.delete_run(AGENT, RUN)
        await store.append_events(AGENT, RUN, said("four"), said("five"))
        for after, seqs in ((0, [4, 5]), (2, [4, 5]), (3, [4, 5]), (4, [5]), (5, [])):
            assert seqs_of((await store.load_run(AGENT, RUN, after=after)).log) == seqs
        snapshot = await store.load_run(AGENT, RUN, limit=1)
        assert (seqs_of(snapshot.log), snapshot.last_seq) == ([4], 4)

    @contract
    async def test_3_the_event_ids_of_a_deleted_run_are_forgotten(self, open_handle: Handles) -> None:
        store = await open_handle()
        await store.append_events(AGENT, RUN, said("one", event_id="same"), said("two", event_id="other"))
        await store.delete_run(AGENT, RUN)
        result = await store.append_events(AGENT, RUN, said("another body", event_id="same"))
        assert (result.version, result.inserted, seqs_of(result.events)) == (3, 1, [3])
        result = await store.append_events(AGENT, RUN, said("two", event_id="other"))
        assert (result.version, result.inserted) == (4, 1)

    @contract
    async def test_12_the_meta_of_a_deleted_run_is_forgotten(self, open_handle: Handles) -> None:
        store = await open_handle()
        await store.append_events(AGENT, RUN, said("one"), meta={"old": 1})
        await store.delete_run(AGENT, RUN)
        await store.append_events(AGENT, RUN, said("two"))
        assert (await store.load_run(AGENT, RUN)).meta == {}
        await store.delete_run(AGENT, RUN)
        await store.append_events(AGENT, RUN, said("three"), meta={"new": 2})
        assert (await store.load_run(AGENT, RUN)).meta == {"new": 2}

    @contract
    async def test_12_deleting_what_holds_nothing_does_nothing(self, open_handle: Handles) -> None:
        store = await open_handle()
        await store.delete_run(AGENT, RUN)
        assert (await store.load_run(AGENT, RUN)).version == 0
        await store.append_events(AGENT, RUN, said("one"))
        for _ in range(2):
            await store.delete_run(AGENT, RUN)
        snapshot = await store.load_run(AGENT, RUN)
        assert (snapshot.version, snapshot.first_seq) == (1, 2)
        assert (await store.append_events(AGENT, RUN, said("two"))).version == 2

    @contract
    async def test_12_other_runs_are_not_deleted(self, open_handle: Handles) -> None:
        store = await open_handle()
        names = [(AGENT, RUN), (AGENT, "other"), ("other", RUN)]
        given = said("one")
        for agent, run in names:
            await store.append_events(agent, run, given, meta={"a": 1})
        await store.delete_run(AGENT, RUN)
        for agent, run in names[1:]:
            snapshot = await store.load_run(agent, run)
            check_run(snapshot, [given])
            assert snapshot.meta == {"a": 1}
        assert [(info.agent, info.run) for info in await all_runs(store)] == [names[2], names[1]]

    @contract
    async def test_12_a_redacted_run_can_be_deleted(self, open_handle: Handles) -> None:
        store = await open_handle()
        await store.append_events(AGENT, RUN, said("one"), said("two"))
        await store.redact_events(AGENT, RUN, [1])
        await store.delete_run(AGENT, RUN)
        snapshot = await store.load_run(AGENT, RUN)
        assert (list(snapshot.log), snapshot.version) == ([], 3)
        given = said("new")
        await store.append_events(AGENT, RUN, given)
        check_run(await store.load_run(AGENT, RUN), [given], first_seq=4)

    @contract
    async def test_12_a_run_that_another_handle_deleted_can_be_imported_anew(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(AGENT, RUN, said("one"), said("two"))
        await other.delete_run(AGENT, RUN)
        given = said("three")
        await store.append_events(AGENT, RUN, given, first_seq=20)
        check_run(await other.load_run(AGENT, RUN), [given], first_seq=20)
