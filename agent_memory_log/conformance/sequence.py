"""Promises 3 and 5: seqs have no gaps, and a conflict over a stale ``expected_version`` names the actual version."""

from __future__ import annotations

import pytest

from agent_memory_log.conformance.checks import check_run, seqs_of
from agent_memory_log.conformance.harness import Suite, contract
from agent_memory_log.conformance.samples import AGENT, NOON, RUN, planner_note, user_message
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, VersionConflict
from agent_memory_log.store import MAX_FIRST_SEQ, Store


@contract
class Sequence(Suite):
    """Tests of seqs, ``first_seq`` and ``expected_version``."""

    async def test_3_seqs_start_at_1_and_have_no_gaps(self, store: Store, other: Store) -> None:
        seqs: list[int] = []
        for size in (1, 3, 1, 2):
            for handle in (store, other):
                result = await handle.append_events(AGENT, RUN, *(user_message("x") for _ in range(size)))
                seqs += seqs_of(result.events)
                assert result.version == seqs[-1]
        assert seqs == list(range(1, 15))
        assert seqs_of((await store.load_run(AGENT, RUN)).log) == seqs

    async def test_3_each_run_has_its_own_seqs(self, store: Store) -> None:
        names = [("one", "run"), ("one", "other"), ("two", "run")]
        for round_ in range(1, 4):
            for agent, run in names:
                result = await store.append_events(agent, run, user_message(f"{agent}/{run}/{round_}"))
                assert (result.version, seqs_of(result.events)) == (round_, [round_])
        for agent, run in names:
            snapshot = await store.load_run(agent, run)
            assert [event.data.to_map() for event in snapshot.log] == [
                {"message": f"{agent}/{run}/{round_}"} for round_ in range(1, 4)
            ]
            assert (snapshot.agent, snapshot.run, snapshot.version) == (agent, run, 3)

    async def test_3_a_refused_append_leaves_no_gap(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        with pytest.raises(VersionConflict):
            await store.append_events(AGENT, RUN, user_message("two"), user_message("three"), expected_version=5)
        assert seqs_of((await store.append_events(AGENT, RUN, user_message("two"))).events) == [2]

    async def test_3_append_ignores_the_seq_of_an_event(self, store: Store) -> None:
        first = await store.append_events(
            "elsewhere", RUN, user_message("one"), user_message("two"), user_message("three")
        )
        result = await store.append_events(AGENT, RUN, first.events[2], first.events[0])
        assert seqs_of(result.events) == [1, 2]
        check_run(await store.load_run(AGENT, RUN), [first.events[2], first.events[0]])

    async def test_3_first_seq_sets_the_first_seq_of_an_empty_run(self, store: Store, other: Store) -> None:
        originals = [user_message("one"), planner_note("two")]
        result = await store.append_events(AGENT, RUN, *originals, first_seq=5, expected_version=0)
        assert (result.version, result.inserted, seqs_of(result.events)) == (6, 2, [5, 6])
        originals.append(user_message("three"))
        assert (await other.append_events(AGENT, RUN, originals[2])).version == 7
        snapshot = await store.load_run(AGENT, RUN)
        check_run(snapshot, originals, first_seq=5)
        assert (snapshot.version, snapshot.last_seq, snapshot.first_seq) == (7, 7, 5)
        for after, seqs in ((3, [5, 6, 7]), (4, [5, 6, 7]), (5, [6, 7]), (7, [])):
            assert seqs_of((await other.load_run(AGENT, RUN, after=after)).log) == seqs
        with pytest.raises(CursorOutOfRange):
            await store.load_run(AGENT, RUN, after=8)
        with pytest.raises(CursorOutOfRange):
            await store.redact_events(AGENT, RUN, [4])

    async def test_3_first_seq_1_is_the_same_as_the_default(self, store: Store) -> None:
        originals = [user_message("one"), user_message("two")]
        result = await store.append_events(AGENT, RUN, *originals, first_seq=1)
        assert (result.version, seqs_of(result.events)) == (2, [1, 2])
        check_run(await store.load_run(AGENT, RUN), originals)

    async def test_3_append_refuses_first_seq_for_a_run_with_events(self, store: Store) -> None:
        original = user_message("one")
        await store.append_events(AGENT, RUN, original)
        for first_seq in (1, 2, 10):
            with pytest.raises(VersionConflict) as caught:
                await store.append_events(AGENT, RUN, user_message("two"), first_seq=first_seq)
            assert caught.value.actual == 1
        check_run(await store.load_run(AGENT, RUN), [original])

    async def test_3_append_refuses_first_seq_up_to_the_version_of_a_deleted_run(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"), user_message("three"))
        await store.delete_run(AGENT, RUN)
        for first_seq in (1, 3):
            with pytest.raises(VersionConflict) as caught:
                await store.append_events(AGENT, RUN, user_message("new"), first_seq=first_seq)
            assert caught.value.actual == 3
        originals = [user_message("new"), user_message("newer")]
        result = await store.append_events(AGENT, RUN, *originals, first_seq=6)
        assert (result.version, seqs_of(result.events)) == (7, [6, 7])
        check_run(await store.load_run(AGENT, RUN), originals, first_seq=6)

    async def test_3_a_repeated_import_with_first_seq_stores_nothing(self, store: Store) -> None:
        originals = [user_message("one"), user_message("two")]
        await store.append_events(AGENT, RUN, *originals, first_seq=5)
        again = await store.append_events(AGENT, RUN, *originals, first_seq=5)
        assert (again.version, again.inserted, seqs_of(again.events)) == (6, 0, [5, 6])

    async def test_3_append_refuses_a_first_seq_that_is_not_a_positive_integer(self, store: Store) -> None:
        for first_seq in (0, -1, True, 1.0, "1"):
            with pytest.raises(InvalidArgument):
                await store.append_events(AGENT, RUN, user_message("x"), first_seq=first_seq)  # type: ignore[arg-type]  # the test passes a wrong type
        assert (await store.load_run(AGENT, RUN)).version == 0

    async def test_3_append_refuses_a_first_seq_above_the_limit(self, store: Store) -> None:
        for first_seq in (MAX_FIRST_SEQ + 1, 2**32 - 1, 2**53 - 1, 2**63):
            with pytest.raises(InvalidArgument, match="first_seq"):
                await store.append_events(AGENT, RUN, user_message("x"), first_seq=first_seq)
        originals = [user_message("one"), user_message("two")]
        await store.append_events(AGENT, RUN, originals[0], first_seq=MAX_FIRST_SEQ)
        assert (await store.append_events(AGENT, RUN, originals[1])).version == MAX_FIRST_SEQ + 1
        check_run(await store.load_run(AGENT, RUN), originals, first_seq=MAX_FIRST_SEQ)

    async def test_5_append_accepts_the_current_version(self, store: Store, other: Store) -> None:
        originals = [user_message(str(number)) for number in range(4)]
        for number, event in enumerate(originals):
            handle = store if number % 2 else other
            result = await handle.append_events(AGENT, RUN, event, expected_version=number)
            assert result.version == number + 1
        check_run(await store.load_run(AGENT, RUN), originals)

    async def test_5_a_version_conflict_names_the_actual_version(self, store: Store, other: Store) -> None:
        originals = [user_message("one"), user_message("two"), user_message("three")]
        with pytest.raises(VersionConflict) as caught:
            await store.append_events(AGENT, RUN, originals[0], expected_version=1)
        assert (caught.value.expected, caught.value.actual) == (1, 0)
        await store.append_events(AGENT, RUN, *originals)
        for handle in (store, other):
            for expected in (0, 2, 4, 10**12):
                with pytest.raises(VersionConflict) as caught:
                    await handle.append_events(AGENT, RUN, user_message("new"), expected_version=expected)
                assert (caught.value.expected, caught.value.actual) == (expected, 3)
        check_run(await store.load_run(AGENT, RUN), originals)

    async def test_5_an_append_on_another_handle_makes_a_version_stale(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        await other.append_events(AGENT, RUN, user_message("two"), expected_version=1)
        with pytest.raises(VersionConflict) as caught:
            await store.append_events(AGENT, RUN, user_message("three"), expected_version=1)
        assert caught.value.actual == 2
        assert (await store.append_events(AGENT, RUN, user_message("three"), expected_version=2)).version == 3

    async def test_5_versions_from_before_a_redaction_or_deletion_are_stale(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        await other.redact_events(AGENT, RUN, [1])
        with pytest.raises(VersionConflict) as caught:
            await store.append_events(AGENT, RUN, user_message("two"), expected_version=1)
        assert caught.value.actual == 2
        await other.delete_run(AGENT, RUN)
        with pytest.raises(VersionConflict) as caught:
            await store.append_events(AGENT, RUN, user_message("two"), expected_version=0)
        assert caught.value.actual == 2
        assert (await store.append_events(AGENT, RUN, user_message("two"), expected_version=2)).version == 3

    async def test_5_append_refuses_a_version_that_is_not_a_natural_number(self, store: Store) -> None:
        for expected_version in (-1, True, False, 0.0, "0", NOON):
            with pytest.raises(InvalidArgument):
                await store.append_events(AGENT, RUN, user_message("x"), expected_version=expected_version)  # type: ignore[arg-type]  # the test passes a wrong type
        assert (await store.load_run(AGENT, RUN)).version == 0
