"""Prompts are files of their own, in the folder ``prompts`` beside the module that sends them."""

from __future__ import annotations

from importlib.resources import files


def read_prompt(package: str, name: str) -> str:
    """The prompt ``prompts/<name>.md`` of a package."""
    return files(package).joinpath("prompts", f"{name}.md").read_text("utf-8").strip()
