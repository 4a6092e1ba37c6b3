"""Promises 3 and 5: seqs have no gaps, and a stale ``expected_version`` is refused with the actual one."""

from __future__ import annotations

import pytest

from agent_memory_log.conformance.checks import check_run, seqs_of
from agent_memory_log.conformance.harness import Suite, contract
from agent_memory_log.conformance.samples import AGENT, NOON, RUN, noted, said
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, VersionConflict
from agent_memory_log.store import MAX_FIRST_SEQ, Store


@contract
class Sequence(Suite):
    """Tests of seqs, ``first_seq`` and ``expected_version``."""

    async def test_3_seqs_start_at_1_and_have_no_gaps(self, store: Store, other: Store) -> None:
        seqs: list[int] = []
        for size in (1, 3, 1, 2):
            for handle in (store, other):
                result = await handle.append_events(AGENT, RUN, *(said("x") for _ in range(size)))
                seqs += seqs_of(result.events)
                assert result.version == seqs[-1]
        assert seqs == list(range(1, 15))
        assert seqs_of((await store.load_run(AGENT, RUN)).log) == seqs

    async def test_3_every_run_counts_for_itself(self, store: Store) -> None:
        names = [("one", "run"), ("one", "other"), ("two", "run")]
        for round_ in range(1, 4):
            for agent, run in names:
                result = await store.append_events(agent, run, said(f"{agent}/{run}/{round_}"))
                assert (result.version, seqs_of(result.events)) == (round_, [round_])
        for agent, run in names:
            snapshot = await store.load_run(agent, run)
            assert [event.data.to_map() for event in snapshot.log] == [
                {"message": f"{agent}/{run}/{round_}"} for round_ in range(1, 4)
            ]
            assert (snapshot.agent, snapshot.run, snapshot.version) == (agent, run, 3)

    async def test_3_a_refused_append_leaves_no_gap(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, said("one"))
        with pytest.raises(VersionConflict):
            await store.append_events(AGENT, RUN, said("two"), said("three"), expected_version=5)
        assert seqs_of((await store.append_events(AGENT, RUN, said("two"))).events) == [2]

    async def test_3_a_seq_the_caller_gives_is_not_looked_at(self, store: Store) -> None:
        first = await store.append_events("elsewhere", RUN, said("one"), said("two"), said("three"))
        result = await store.append_events(AGENT, RUN, first.events[2], first.events[0])
        assert seqs_of(result.events) == [1, 2]
        check_run(await store.load_run(AGENT, RUN), [first.events[2], first.events[0]])

    async def test_3_first_seq_places_the_events_of_an_empty_run(self, store: Store, other: Store) -> None:
        given = [said("one"), noted("two")]
        result = await store.append_events(AGENT, RUN, *given, first_seq=5, expected_version=0)
        assert (result.version, result.inserted, seqs_of(result.events)) == (6, 2, [5, 6])
        given.append(said("three"))
        assert (await other.append_events(AGENT, RUN, given[2])).version == 7
        snapshot = await store.load_run(AGENT, RUN)
        check_run(snapshot, given, first_seq=5)
        assert (snapshot.version, snapshot.last_seq, snapshot.first_seq) == (7, 7, 5)
        for after, seqs in ((3, [5, 6, 7]), (4, [5, 6, 7]), (5, [6, 7]), (7, [])):
            assert seqs_of((await other.load_run(AGENT, RUN, after=after)).log) == seqs
        with pytest.raises(CursorOutOfRange):
            await store.load_run(AGENT, RUN, after=8)
        with pytest.raises(CursorOutOfRange):
            await store.redact_events(AGENT, RUN, [4])

    async def test_3_first_seq_1_is_how_a_run_begins_anyway(self, store: Store) -> None:
        given = [said("one"), said("two")]
        result = await store.append_events(AGENT, RUN, *given, first_seq=1)
        assert (result.version, seqs_of(result.events)) == (2, [1, 2])
        check_run(await store.load_run(AGENT, RUN), given)

    async def test_3_first_seq_is_refused_where_the_run_holds_events(self, store: Store) -> None:
        given = said("one")
        await store.append_events(AGENT, RUN, given)
        for first_seq in (1, 2, 10):
            with pytest.raises(VersionConflict) as caught:
                await store.append_events(AGENT, RUN, said("two"), first_seq=first_seq)
            assert caught.value.actual == 1
        check_run(await store.load_run(AGENT, RUN), [given])

    async def test_3_first_seq_is_refused_at_or_below_the_version_of_a_deleted_run(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, said("one"), said("two"), said("three"))
        await store.delete_run(AGENT, RUN)
        for first_seq in (1, 3):
            with pytest.raises(VersionConflict) as caught:
                await store.append_events(AGENT, RUN, said("new"), first_seq=first_seq)
            assert caught.value.actual == 3
        given = [said("new"), said("newer")]
        result = await store.append_events(AGENT, RUN, *given, first_seq=6)
        assert (result.version, seqs_of(result.events)) == (7, [6, 7])
        check_run(await store.load_run(AGENT, RUN), given, first_seq=6)

    async def test_3_first_seq_does_not_disturb_a_repeated_import(self, store: Store) -> None:
        given = [said("one"), said("two")]
        await store.append_events(AGENT, RUN, *given, first_seq=5)
        again = await store.append_events(AGENT, RUN, *given, first_seq=5)
        assert (again.version, again.inserted, seqs_of(again.events)) == (6, 0, [5, 6])

    async def test_3_first_seq_is_an_integer_from_1(self, store: Store) -> None:
        for first_seq in (0, -1, True, 1.0, "1"):
            with pytest.raises(InvalidArgument):
                await store.append_events(AGENT, RUN, said("x"), first_seq=first_seq)  # type: ignore[arg-type]  # that is the point
        assert (await store.load_run(AGENT, RUN)).version == 0

    async def test_3_first_seq_leaves_room_for_more(self, store: Store) -> None:
        for first_seq in (MAX_FIRST_SEQ + 1, 2**32 - 1, 2**53 - 1, 2**63):
            with pytest.raises(InvalidArgument, match="first_seq"):
                await store.append_events(AGENT, RUN, said("x"), first_seq=first_seq)
        given = [said("one"), said("two")]
        await store.append_events(AGENT, RUN, given[0], first_seq=MAX_FIRST_SEQ)
        assert (await store.append_events(AGENT, RUN, given[1])).version == MAX_FIRST_SEQ + 1
        check_run(await store.load_run(AGENT, RUN), given, first_seq=MAX_FIRST_SEQ)

    async def test_5_the_right_version_is_accepted(self, store: Store, other: Store) -> None:
        given = [said(str(number)) for number in range(4)]
        for number, event in enumerate(given):
            handle = store if number % 2 else other
            result = await handle.append_events(AGENT, RUN, event, expected_version=number)
            assert result.version == number + 1
        check_run(await store.load_run(AGENT, RUN), given)

    async def test_5_a_wrong_version_is_refused_with_the_actual_one(self, store: Store, other: Store) -> None:
        given = [said("one"), said("two"), said("three")]
        with pytest.raises(VersionConflict) as caught:
            await store.append_events(AGENT, RUN, given[0], expected_version=1)
        assert (caught.value.expected, caught.value.actual) == (1, 0)
        await store.append_events(AGENT, RUN, *given)
        for handle in (store, other):
            for expected in (0, 2, 4, 10**12):
                with pytest.raises(VersionConflict) as caught:
                    await handle.append_events(AGENT, RUN, said("new"), expected_version=expected)
                assert (caught.value.expected, caught.value.actual) == (expected, 3)
        check_run(await store.load_run(AGENT, RUN), given)

    async def test_5_a_version_made_stale_through_another_handle_is_refused(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, said("one"))
        await other.append_events(AGENT, RUN, said("two"), expected_version=1)
        with pytest.raises(VersionConflict) as caught:
            await store.append_events(AGENT, RUN, said("three"), expected_version=1)
        assert caught.value.actual == 2
        assert (await store.append_events(AGENT, RUN, said("three"), expected_version=2)).version == 3

    async def test_5_redaction_and_deletion_count_in_the_version(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, said("one"))
        await other.redact_events(AGENT, RUN, [1])
        with pytest.raises(VersionConflict) as caught:
            await store.append_events(AGENT, RUN, said("two"), expected_version=1)
        assert caught.value.actual == 2
        await other.delete_run(AGENT, RUN)
        with pytest.raises(VersionConflict) as caught:
            await store.append_events(AGENT, RUN, said("two"), expected_version=0)
        assert caught.value.actual == 2
        assert (await store.append_events(AGENT, RUN, said("two"), expected_version=2)).version == 3

    async def test_5_a_version_is_an_integer_from_0(self, store: Store) -> None:
        for expected_version in (-1, True, False, 0.0, "0", NOON):
            with pytest.raises(InvalidArgument):
                await store.append_events(AGENT, RUN, said("x"), expected_version=expected_version)  # type: ignore[arg-type]  # that is the point
        assert (await store.load_run(AGENT, RUN)).version == 0
