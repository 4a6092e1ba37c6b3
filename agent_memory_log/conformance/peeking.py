"""Promise 17: ``peek_runs`` returns the same heads of runs as ``load_run`` at that moment."""

from __future__ import annotations

from typing import Any

import pytest

from agent_memory_log.conformance.checks import all_runs
from agent_memory_log.conformance.ends import FAR_ENDS, expired_run, until_expired, with_an_end
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, user_message
from agent_memory_log.errors import InvalidArgument, InvalidEvent, StoreClosed
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.store import RunHead, Store

_MANY = 2_100
"""The number of runs in a large request: more than a store can read in one query."""


@contract
class Peeking(Suite):
    """Tests of ``peek_runs``."""

    async def test_17_every_handle_sees_every_change_of_a_run(
        self, store: Store, other: Store, open_handle: Handles
    ) -> None:
        seen: list[RunHead | None] = [await self._check(store, other)]
        for handle, last in ((store, other), (other, store)):
            await handle.append_events(AGENT, RUN, user_message("one"))
            seen.append(await self._check(last, handle))
            await handle.append_events(AGENT, RUN, user_message("two"), user_message("three"), meta={"a": 1})
            seen.append(await self._check(last, handle))
            # A redaction before the last event is visible only as a higher version.
            await handle.redact_events(AGENT, RUN, [(await handle.load_run(AGENT, RUN)).first_seq])
            seen.append(await self._check(last, handle))
            await handle.delete_run(AGENT, RUN)
            seen.append(await self._check(last, handle))
        assert seen[:5] == [RunHead(0, 1), RunHead(1, 1), RunHead(3, 1), RunHead(4, 1), RunHead(4, 5)]
        assert seen[5:] == [RunHead(5, 5), RunHead(7, 5), RunHead(8, 5), RunHead(8, 9)]
        assert await self._check(await open_handle()) == RunHead(8, 9)

    async def test_17_a_run_created_again_has_another_head(self, store: Store, other: Store) -> None:
        for begin in range(1, 4):
            await other.append_events(AGENT, RUN, user_message("an event at the same seq"), meta={"memory": begin})
            assert await self._check(store) == RunHead(begin, begin)
            await other.delete_run(AGENT, RUN)

    async def test_17_calls_that_store_nothing_leave_the_head_unchanged(self, store: Store, other: Store) -> None:
        original = user_message("one")
        await store.append_events(AGENT, RUN, original, user_message("two"), meta={"a": 1})
        await store.redact_events(AGENT, RUN, [2])
        for handle in (store, other):
            await handle.append_events(AGENT, RUN, original, meta={"a": 2})
            await handle.redact_events(AGENT, RUN, [2])
            await handle.append_events(AGENT, "another", user_message("one"))
            await handle.delete_run("another", RUN)
            assert await self._check(other, store) == RunHead(3, 1)

    async def test_17_peek_runs_returns_the_first_seq_of_a_run(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"), user_message("two"), first_seq=8)
        assert await self._check(store, other) == RunHead(9, 8)
        await other.delete_run(AGENT, RUN)
        await other.append_events(AGENT, RUN, user_message("three"), first_seq=20)
        assert await self._check(store, other) == RunHead(20, 20)

    async def test_17_peek_runs_returns_heads_in_the_order_of_its_argument(self, store: Store, other: Store) -> None:
        names = [("b", "1"), (AGENT, RUN), ("a", "2"), ("@own", RUN)]
        for count, (agent, run) in enumerate(names, 1):
            await other.append_events(
                agent, run, *(user_message(str(number)) for number in range(count)), reserved=True
            )
        requested = [*names, (AGENT, "unknown"), *reversed(names), names[1], ("unknown", RUN)]
        counts = [1, 2, 3, 4, 0, 4, 3, 2, 1, 2, 0]
        for handle in (store, other):
            peek = handle.peek_runs
            for runs in (requested, tuple(requested), iter(requested)):
                assert await peek(runs) == tuple(RunHead(count, 1) for count in counts)
            assert await peek(()) == ()
            assert type(await peek(requested)) is tuple
        assert sorted((info.agent, info.run) for info in await all_runs(store, include_reserved=True)) == sorted(names)

    async def test_17_ids_are_compared_exactly(self, store: Store) -> None:
        names = [
            "run",
            "Run",
            "run ",
            "r\0n",
            "r",
            "ru'n",
            '"',
            "{}",
            "$run",
            "%",
            "_un",
            "rün",
            "ru\u0308n",
            "0",
            "00",
        ]
        for count, name in enumerate(names, 1):
            events = [user_message(str(number)) for number in range(count)]
            await store.append_events(name, "x", *events)
            await store.append_events("x", name, *events)
        expected = tuple(RunHead(count, 1) for count in range(1, len(names) + 1))
        assert await store.peek_runs([(name, "x") for name in names]) == expected
        assert await store.peek_runs([("x", name) for name in names]) == expected
        near = [("ru", "nx"), ("runx", "x"), ("x", "RUN"), ("x", "run  "), ("x", "r\0"), ("x", "*")]
        assert await store.peek_runs(near) == (RunHead(0, 1),) * len(near)

    async def test_17_peek_runs_accepts_any_number_of_runs(self, store: Store, other: Store) -> None:
        heads = dict.fromkeys((0, 1, 498, 499, 500, 998, 999, 1000, 1001, 2000, _MANY - 1), RunHead(1, 1))
        for number in heads:
            await store.append_events(AGENT, f"run-{number}", user_message("one"))
        runs = [(AGENT, f"run-{number}") for number in range(_MANY)]
        peeked = await other.peek_runs(runs)
        assert len(peeked) == _MANY
        for number in heads:
            assert peeked[number] == RunHead(1, 1), f"run {number} of {_MANY}"
        assert peeked.count(RunHead(0, 1)) == _MANY - len(heads)

    async def test_17_an_expired_run_has_no_head(self, store: Store, other: Store, open_handle: Handles) -> None:
        for run, end in enumerate(FAR_ENDS):
            await store.append_events(AGENT, f"{run}", user_message("one"), meta={"expires_at": end})
        far = [(AGENT, f"{run}") for run in range(len(FAR_ENDS))]

        async def fill(meta: dict[str, JsonValue]) -> None:
            await store.append_events(AGENT, RUN, user_message("one"), meta=meta)
            await other.peek_runs([(AGENT, RUN)])

        await with_an_end(store, fill)
        await until_expired(store)
        expired = await expired_run(store, other, run="longer")
        for handle in (other, store, await open_handle()):
            peeked = await handle.peek_runs([(AGENT, "longer"), *far, (AGENT, RUN)])
            assert peeked == (None, *(RunHead(1, 1) for _ in far), None)
        await store.delete_run(AGENT, "longer")
        assert await self._check(store, other, run="longer") == RunHead(expired.version, expired.version + 1)
        await other.append_events(AGENT, "longer", user_message("anew"))
        assert await self._check(store, other, run="longer") == RunHead(expired.version + 1, expired.version + 1)

    async def test_17_peek_runs_refuses_invalid_arguments(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        valid = (AGENT, RUN)
        wrong: list[Any] = [
            *(
                None,
                3,
                AGENT,
                "ab",
                valid,
                ["ab"],
                [valid, None],
                [valid, 3],
                [valid, (AGENT,)],
                [(AGENT, RUN, 1)],
            ),
            *([valid, {AGENT, RUN}], [[AGENT, RUN]], {AGENT: RUN}),
        ]
        for runs in wrong:
            with pytest.raises(InvalidArgument):
                await store.peek_runs(runs)
        wrong = ["", None, 3, b"x", ["x"], "\ud800", "x" * 513]
        for wrong_id in wrong:
            for field, pair in (("agent", (wrong_id, RUN)), ("run", (AGENT, wrong_id))):
                with pytest.raises(InvalidEvent) as caught:
                    await store.peek_runs([valid, pair])
                assert caught.value.field == field

    async def test_17_peek_runs_on_a_closed_handle_raises_store_closed(self, store: Store) -> None:
        await store.aclose()
        for runs in ([(AGENT, RUN)], []):
            with pytest.raises(StoreClosed):
                await store.peek_runs(runs)

    async def _check(self, *handles: Store, agent: str = AGENT, run: str = RUN) -> RunHead | None:
        """Assert that all handles peek and load the same head of a run, and return it."""
        positions: set[tuple[int, int]] = set()
        for handle in handles:
            (head,) = await handle.peek_runs([(agent, run)])
            assert head is not None
            snapshot = await handle.load_run(agent, run)
            assert (head.version, head.first_seq) == (snapshot.version, snapshot.first_seq)
            positions.add((head.version, head.first_seq))
        assert len(positions) == 1
        return RunHead(*positions.pop())
