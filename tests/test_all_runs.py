"""Tests that the asynchronous and the synchronous surface list every run, page by page."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent_memory_log import RunInfo, UserMessage, new_event, open_store, open_sync_store, steps


@pytest.mark.parametrize("page", [1, 2, 3, 500])
async def test_both_surfaces_read_every_page(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "_PAGE", page)
    names = [("a", "1"), ("@own", "1"), ("b", "1"), ("a", "2")]
    async with open_store("memory:") as store:
        with open_sync_store("memory:") as sync_store:
            for agent, run in names:
                event = new_event(UserMessage(message="x"))
                await store.append_events(agent, run, event, reserved=True)
                sync_store.append_events(agent, run, event, reserved=True)
            cases: list[tuple[Callable[[], steps.Steps[list[RunInfo]]], list[tuple[str, str]]]] = [
                (steps.all_runs, [("a", "2"), ("b", "1"), ("a", "1")]),
                (lambda: steps.all_runs(include_reserved=True), names[::-1]),
                (lambda: steps.all_runs("a"), [("a", "2"), ("a", "1")]),
            ]
            for all_runs, expected in cases:
                for infos in (await steps.run_async(all_runs(), store), steps.run_sync(all_runs(), sync_store)):
                    assert [(info.agent, info.run) for info in infos] == expected
