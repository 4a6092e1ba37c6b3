"""Importing what an extra brings, when it is first needed."""

from __future__ import annotations

from importlib import import_module

from agent_memory_log.errors import InvalidArgument


def import_extra(module: str, extra: str, embedder: str) -> object:
    """The module, which comes with an extra. Raises ``InvalidArgument`` saying what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidArgument(
            f"{embedder} needs {module}, which cannot be imported ({error}): pip install 'agent-memory-log[{extra}]'"
        ) from error
