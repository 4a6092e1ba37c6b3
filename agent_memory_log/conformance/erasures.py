"""Promise 12: the erasure journal names every event that a caller removed, and nothing else."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_memory_log.conformance.ends import expired_run, until_expired, with_an_end
from agent_memory_log.conformance.harness import Handles, Suite, contract
from agent_memory_log.conformance.samples import AGENT, RUN, user_message
from agent_memory_log.errors import CursorOutOfRange, InvalidArgument, InvalidEvent, StoreClosed
from agent_memory_log.events.event import new_event
from agent_memory_log.events.jsonvalue import JsonValue
from agent_memory_log.events.payloads import Redacted, Redaction
from agent_memory_log.store import Erasure, Erasures, Store

_MANY = 1_300
"""The number of runs in a large request: more than a store can look up in one query."""


@contract
class ErasureJournal(Suite):
    """Tests of ``erasures``."""

    async def test_12_a_new_store_has_an_empty_journal(self, store: Store, other: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        for handle in (store, other):
            assert await handle.erasures() == Erasures(0, ())
            assert await handle.erasures(runs=[]) == Erasures(0, ())

    async def test_12_the_journal_names_redactions_and_deletions(
        self, store: Store, other: Store, open_handle: Handles
    ) -> None:
        await store.append_events(AGENT, RUN, *(user_message(str(number)) for number in range(4)))
        await store.append_events("other", RUN, user_message("one"))
        await store.redact_events(AGENT, RUN, [3, 1], reason="secret")
        await other.delete_run("other", RUN)
        await store.redact_events(AGENT, RUN, [2])
        await other.delete_run(AGENT, RUN)
        expected = (
            Erasure(1, AGENT, RUN, (1, 3)),
            Erasure(2, "other", RUN, up_to=1),
            Erasure(3, AGENT, RUN, (2,)),
            Erasure(4, AGENT, RUN, up_to=6),
        )
        for handle in (store, other, await open_handle()):
            assert await handle.erasures() == Erasures(4, expected)

    async def test_12_the_journal_can_be_read_on_from_a_position(self, store: Store, other: Store) -> None:
        for number in range(5):
            await store.append_events(AGENT, f"{number}", user_message("one"))
            await store.delete_run(AGENT, f"{number}")
        everything = (await store.erasures()).entries
        assert [entry.run for entry in everything] == ["0", "1", "2", "3", "4"]
        for after in range(6):
            assert await other.erasures(after=after) == Erasures(5, everything[after:])
            page = await other.erasures(after=after, limit=2)
            assert page.entries == everything[after : after + 2]
            assert page.position == (everything[after + 1].position if after < 4 else 5)
        with pytest.raises(CursorOutOfRange):
            await other.erasures(after=6)

    async def test_12_the_journal_can_be_read_for_some_runs(self, store: Store, other: Store) -> None:
        names = [(AGENT, "a"), (AGENT, "b"), ("b", "a")]
        for agent, run in names:
            await store.append_events(agent, run, user_message("one"), user_message("two"))
            await store.redact_events(agent, run, [1])
        await store.delete_run(AGENT, "a")
        for runs in ([names[0]], iter([names[0], names[0]]), [names[0], (AGENT, "unknown")]):
            entries = (Erasure(1, *names[0], (1,)), Erasure(4, *names[0], up_to=3))
            assert await other.erasures(runs=runs) == Erasures(4, entries)
        assert await other.erasures(after=1, runs=names[1:]) == Erasures(
            4, (Erasure(2, *names[1], (1,)), Erasure(3, *names[2], (1,)))
        )
        assert await other.erasures(after=3, runs=names[1:]) == Erasures(4, ())
        assert await other.erasures(runs=[]) == Erasures(4, ())
        first = await other.erasures(runs=names[:1], limit=1)
        assert first == Erasures(1, (Erasure(1, *names[0], (1,)),))
        assert (await other.erasures(after=first.position, runs=names[:1])).entries == (Erasure(4, *names[0], up_to=3),)

    async def test_12_the_journal_can_be_read_for_any_number_of_runs(self, store: Store, other: Store) -> None:
        erased = (0, 399, 400, 401, 999, 1000, _MANY - 1)
        for number in erased:
            await store.append_events(AGENT, f"run-{number}", user_message("one"))
            await store.delete_run(AGENT, f"run-{number}")
        runs = [(AGENT, f"run-{number}") for number in range(_MANY)]
        journal = await other.erasures(runs=runs)
        assert [entry.run for entry in journal.entries] == [f"run-{number}" for number in erased]

    async def test_12_calls_that_remove_nothing_are_not_in_the_journal(self, store: Store) -> None:
        await store.append_events(AGENT, RUN, user_message("one"))
        await store.redact_events(AGENT, RUN, [1])
        await store.redact_events(AGENT, RUN, [1])
        await store.redact_events(AGENT, RUN, [])
        await store.delete_run(AGENT, "unknown")
        with pytest.raises(CursorOutOfRange):
            await store.redact_events(AGENT, RUN, [9])
        await store.delete_run(AGENT, RUN)
        await store.delete_run(AGENT, RUN)
        assert [(entry.seqs, entry.up_to) for entry in (await store.erasures()).entries] == [((1,), 0), ((), 2)]

    async def test_12_an_appended_marker_is_in_the_journal(self, store: Store, other: Store) -> None:
        mask = new_event(Redacted(original_type="user_message", reason="then"))
        marker = new_event(Redaction(seqs=(1,), reason="then"))
        await store.append_events(AGENT, RUN, mask, marker)
        await store.append_events(AGENT, RUN, marker)
        assert (await other.erasures()).entries == (Erasure(1, AGENT, RUN, (1,)),)

    async def test_12_an_expiry_is_not_in_the_journal(self, store: Store, other: Store) -> None:
        async def fill(meta: dict[str, JsonValue]) -> None:
            await store.append_events(AGENT, RUN, user_message("one"), meta=meta)

        await with_an_end(store, fill)
        await until_expired(store)
        await store.expire_runs(before=datetime.now(UTC))
        assert await other.erasures() == Erasures(0, ())
        expired = await expired_run(store, other, run="longer")
        await store.delete_run(AGENT, "longer")
        last = (await other.erasures()).entries[-1]  # a store may have noted an attempt that failed before it
        assert (last.run, last.up_to) == ("longer", expired.version)

    async def test_12_many_writers_leave_no_gap_in_the_journal(self, open_handle: Handles) -> None:
        handles = [await open_handle() for _ in range(3)]
        names = [(AGENT, f"{number}") for number in range(12)]
        for agent, run in names:
            await handles[0].append_events(agent, run, user_message("one"), user_message("two"))

        async def erase(number: int) -> None:
            handle = handles[number % len(handles)]
            await handle.redact_events(*names[number], [1])
            await handle.delete_run(*names[number])

        await asyncio.gather(*map(erase, range(len(names))))
        journal = await handles[0].erasures()
        assert [entry.position for entry in journal.entries] == list(range(1, journal.position + 1))
        for agent, run in names:
            of_run = [entry for entry in journal.entries if (entry.agent, entry.run) == (agent, run)]
            assert (1,) in [entry.seqs for entry in of_run]
            assert of_run[-1].up_to == 3

    async def test_12_erasures_refuses_invalid_arguments(self, store: Store) -> None:
        wrong: list[dict[str, Any]] = [
            *({"after": after} for after in (-1, "1", None, 1.0, True)),
            *({"limit": limit} for limit in (0, -1, "1", 1.0, True)),
            *({"runs": runs} for runs in (3, "ab", [("a",)], [3])),
        ]
        for arguments in wrong:
            with pytest.raises(InvalidArgument):
                await store.erasures(**arguments)
        with pytest.raises(InvalidEvent):
            await store.erasures(runs=[("", RUN)])

    async def test_12_erasures_on_a_closed_handle_raises_store_closed(self, store: Store) -> None:
        await store.aclose()
        for runs in (None, [(AGENT, RUN)], []):
            with pytest.raises(StoreClosed):
                await store.erasures(runs=runs)
