"""Runs LangGraph's conformance suite for checkpointers, which is a function and not a file of tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.report import ProgressCallbacks
from swapped_store import new_url

from agent_memory_log.integrations.langgraph import MemoryLogSaver


async def test_conformance() -> None:
    @checkpointer_test(name="MemoryLogSaver")
    async def saver() -> AsyncGenerator[MemoryLogSaver]:
        with MemoryLogSaver(new_url("memory")) as opened:
            yield opened

    report = await validate(saver, progress=ProgressCallbacks.quiet())
    assert report.results.keys() == {capability.value for capability in Capability}
    assert {name: result.failures for name, result in report.results.items() if not result.passed} == {}
