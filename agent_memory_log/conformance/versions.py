"""Promise 5: an append with an ``expected_version`` that is not the run's version is refused with the actual one."""

from __future__ import annotations

import pytest

from agent_memory_log.conformance.checks import check_run
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, NOON, RUN, said
from agent_memory_log.errors import InvalidArgument, VersionConflict


class Versions(Suite):
    """Tests of ``expected_version``."""

    @contract
    async def test_5_the_right_version_is_accepted(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        given = [said(str(number)) for number in range(4)]
        for number, event in enumerate(given):
            handle = store if number % 2 else other
            result = await handle.append_events(AGENT, RUN, event, expected_version=number)
            assert result.version == number + 1
        check_run(await store.load_run(AGENT, RUN), given)

    @contract
    async def test_5_a_wrong_version_is_refused_with_the_actual_one(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
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

    @contract
    async def test_5_a_version_made_stale_through_another_handle_is_refused(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
        await store.append_events(AGENT, RUN, said("one"))
        await other.append_events(AGENT, RUN, said("two"), expected_version=1)
        with pytest.raises(VersionConflict) as caught:
            await store.append_events(AGENT, RUN, said("three"), expected_version=1)
        assert caught.value.actual == 2
        assert (await store.append_events(AGENT, RUN, said("three"), expected_version=2)).version == 3

    @contract
    async def test_5_redaction_and_deletion_count_in_the_version(self, open_handle: Handles) -> None:
        store, other = await open_handle(), await open_handle()
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

    @contract
    async def test_5_a_version_is_an_integer_from_0(self, open_handle: Handles) -> None:
        store = await open_handle()
        for expected_version in (-1, True, False, 0.0, "0", NOON):
            with pytest.raises(InvalidArgument):
                await store.append_events(AGENT, RUN, said("x"), expected_version=expected_version)  # type: ignore[arg-type]  # that is the point
        assert (await store.load_run(AGENT, RUN)).version == 0
