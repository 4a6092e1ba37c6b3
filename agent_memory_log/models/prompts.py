"""Reads prompts. Each prompt is a file in the folder ``prompts`` next to the module that sends it."""

from __future__ import annotations

from importlib.resources import files


def read_prompt(package: str, name: str) -> str:
    """Return the prompt ``prompts/<name>.md`` of a package."""
    return files(package).joinpath("prompts", f"{name}.md").read_text("utf-8").strip()
