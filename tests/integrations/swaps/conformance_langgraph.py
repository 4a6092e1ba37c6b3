"""Runs LangGraph's conformance suite for checkpointers, which is a function and not a file of tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import count
from pathlib import Path

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability
from langgraph.checkpoint.conformance.report import ProgressCallbacks

from agent_memory_log.integrations.langgraph import MemoryLogSaver


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
async def test_conformance(scheme: str, tmp_path: Path) -> None:
    numbers = count()

    @checkpointer_test(name="MemoryLogSaver")
    async def saver() -> AsyncGenerator[MemoryLogSaver]:
        url = "memory:" if scheme == "memory" else f"sqlite:///{tmp_path}/{next(numbers)}.db"
        with MemoryLogSaver(url) as opened:
            yield opened

    report = await validate(saver, progress=ProgressCallbacks.quiet())
    assert report.results.keys() == {capability.value for capability in Capability}
    assert {name: result.failures for name, result in report.results.items() if not result.passed} == {}
