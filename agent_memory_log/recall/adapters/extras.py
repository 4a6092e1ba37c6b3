"""Imports the modules of an extra on first use, and loads their models."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TypeVar

from agent_memory_log.errors import InvalidArgument, ModelUnavailable

_Model = TypeVar("_Model")


def import_extra(module: str, extra: str, embedder: str) -> object:
    """Return a module that comes with an extra. Raises ``InvalidArgument`` with the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidArgument(
            f"{embedder} needs {module}, which cannot be imported ({error}): pip install 'agent-memory-log[{extra}]'"
        ) from error


def load_model(load: Callable[[], _Model], model: str) -> _Model:
    """Return the result of ``load``. Raises ``ModelUnavailable``, chained to the original error, if it fails."""
    try:
        return load()
    except Exception as error:
        raise ModelUnavailable(f"the model {model} cannot be loaded: {error}") from error
