"""Runs the programs and the amlog commands of docs/memory.md, in order, on the store that they create."""

from __future__ import annotations

from pathlib import Path

from agent_memory_log.memory import ClientSettings
from tests.documents import blocks_of, run_blocks
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "memory.md").read_text()


def test_programs_and_commands_run(tmp_path: Path) -> None:
    blocks = blocks_of("docs/memory.md")
    assert [language for language, _ in blocks].count("python") == 12
    outputs = run_blocks(blocks, tmp_path)
    assert len(outputs) == 9
    assert all(outputs)


def test_the_program_about_upkeep_runs(tmp_path: Path) -> None:
    run_blocks(blocks_of("docs/upkeep.md"), tmp_path)


def test_every_key_of_the_configuration_is_described() -> None:
    for key in ClientSettings.__struct_fields__:
        assert f"`{key}`" in PAGE
        assert f"`AMLOG_{key.upper()}`" in PAGE
