"""Several servers of MCP and a program write to one store for half a minute or more. Nothing is lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.service.mcp.test_stdio import write_together


@pytest.mark.skipif("AMLOG_TORTURE" not in os.environ, reason="takes half a minute: make torture")
async def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    await write_together(f"sqlite:///{tmp_path / 'memory.db'}", servers=6, each=400)
