# pyright: reportPrivateUsage=false
# The chores run by themselves in pauses, which a test does not wait for.
"""A processor dies before or after each call of its store. The next one leaves the same end state and loses nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from agent_memory_log import AssistantMessage, Store, UserMessage, new_event, open_store
from agent_memory_log.processor.transport.ledger import (
    DeadLetter,
    ExtractionPending,
    ExtractionSettled,
    MessageHandled,
    OutgoingMessage,
)
from agent_memory_log.processor.transport.messages import Incoming
from tests.processor.deployment import AGENT, LEDGERS
from tests.processor.handler import Parts
from tests.processor.test_handling import TEAM, change, event, request


class Crash(BaseException):
    """The end of a process: no handler of errors sees it."""


class CrashingStore:
    """A store whose process ends at one call.

    Args:
        raw: The store.
        left: The number of calls before this one.
        when: Whether the call has its effect.
    """

    def __init__(self, raw: Store, left: int, when: str) -> None:
        self._raw = raw
        self._when = when
        self.left = left

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        method = getattr(self._raw, name)

        async def called(*arguments: Any, **options: Any) -> object:
            self.left -= 1
            if self.left == -1 and self._when == "before":
                raise Crash
            result = await method(*arguments, **options)
            if self.left == -1:
                raise Crash
            return result

        return called


EFFECTS = (MessageHandled, OutgoingMessage, DeadLetter)
"""The events that a crash neither adds nor removes. The number of appends may differ, and so may the others."""

MESSAGES = (
    event("agent.context.compaction.l1", "l1", summary="not read, because there is a run"),
    event("agent.context.compaction.l2", "l2", summary="editor is vim"),
    event("agent.context.compaction.l1", "l1", type="compaction_complete"),
    request("memory.hydrate.request.l1", "l1"),
    Incoming("hydrate_requests", "memory.hydrate.request.l1", b"{", "poison", 9),
    change("postgres"),
)


async def work(store: Store, wires: list[Any], broken: Path) -> None:
    """Do all of the work of a processor, as far as it gets."""
    parts = Parts(store, broken=broken, **TEAM)
    wires.append(parts.wire)
    await parts.chores._take_up()
    for message in MESSAGES:
        await parts.handler.handle(message)
    await parts.chores._look_at_runs()
    broken.unlink(missing_ok=True)
    for name in parts.ledgers.pending():
        assert await parts.handler.settle_extractions(name)
    for loop_id in ("l1", "l2"):
        await parts.chores.end(loop_id)
    await parts.chores._look_at_runs()
    await parts.publisher.retry()


async def crashes(working: Awaitable[None]) -> bool:
    """Return whether a process crashes."""
    try:
        await working
    except Crash:
        return True
    return False


async def end_state(left: int, when: str, broken: Path, *, fails: bool) -> tuple[Mapping[str, object], bool]:
    """Return the end state after a crash, and whether the crash happened."""
    async with open_store("memory:") as raw:
        await raw.append_events(
            AGENT,
            "l1",
            new_event(UserMessage("database is postgres")),
            new_event(AssistantMessage("Let's go with it.")),
        )
        memory = Parts(raw, **TEAM).memory(team="t")
        await memory.remember(key="server", value="big", entities=["postgres"])
        wires: list[Any] = []
        if fails:
            broken.touch()
        store = CrashingStore(raw, left, when)
        has_crashed = await crashes(work(cast("Store", store), wires, broken))
        if has_crashed:
            await work(raw, wires, broken)
        ids: dict[str, str] = {}
        for wire in wires:
            for message_id, (subject, message) in zip(wire.ids, wire.messages, strict=True):
                # A change of the graph may name any loop of its owner.
                kind = f"{subject.rpartition('.')[0]} {message.get('operation', '')} {message.get('source', '')}"
                assert ids.setdefault(message_id, kind) == kind
        ledgers = [
            each for info in (await raw.list_runs(LEDGERS)).runs for each in (await raw.load_run(LEDGERS, info.run)).log
        ]
        assert {each.event_id for each in ledgers if isinstance(each.data, OutgoingMessage)} == ids.keys()
        types = (ExtractionPending, ExtractionSettled)
        pending, settled = (sum(isinstance(each.data, kind) for each in ledgers) for kind in types)
        assert pending == settled
        state: dict[str, object] = {
            "published": Counter(ids.values()),
            "memory": sorted(str(record.data) for record in await memory.list()),
            "ledgers": Counter(each.type for each in ledgers if isinstance(each.data, EFFECTS)),
            "run": Counter(each.type for each in (await raw.load_run(AGENT, "l1")).log),
        }
        return state, has_crashed


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_crash_at_each_call_of_the_store_leaves_the_same_end_state(
    tmp_path: Path, when: str, *, fails: bool
) -> None:
    broken = tmp_path / "broken"
    expected, _ = await end_state(10**9, when, broken, fails=fails)
    left, has_crashed = 0, True
    while has_crashed:
        state, has_crashed = await end_state(left, when, broken, fails=fails)
        assert state == expected, f"call {left}"
        left += 1
    assert left > 50
