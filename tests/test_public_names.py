"""Tests that every public name is exported and documented, and that imports load no optional packages."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import agent_memory_log
from tests.integrations.frameworks import needs

MODULES = (
    "agent_memory_log",
    "agent_memory_log.backend_kit",
    "agent_memory_log.conformance",
    "agent_memory_log.transfer.copying",
    "agent_memory_log.errors",
    "agent_memory_log.transfer.forking",
    "agent_memory_log.interchange.atif",
    "agent_memory_log.interchange.opentelemetry",
    "agent_memory_log.transfer.jsonl",
    "agent_memory_log.integrations.anthropic_memory",
    *(
        pytest.param(f"agent_memory_log.integrations.{extra.replace('-', '_')}", marks=needs(extra))
        for extra in ("claude-agent", "google-adk", "langgraph", "openai-agents", "pydantic-ai")
    ),
    "agent_memory_log.media",
    "agent_memory_log.memory",
    "agent_memory_log.memory.extraction",
    "agent_memory_log.models",
    "agent_memory_log.memory.policy",
    "agent_memory_log.processor",
    "agent_memory_log.recall",
    "agent_memory_log.memory.policy.settings",
    "agent_memory_log.recording",
    "agent_memory_log.replay",
    "agent_memory_log.secrets",
    "agent_memory_log.transcript",
    "agent_memory_log.transfer.verifying",
    "agent_memory_log_inmem",
    "agent_memory_log_sqlite",
)


def _exported(module: ModuleType) -> list[str]:
    names = getattr(module, "__all__", None)
    if names is not None:
        return list(names)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_documented(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__doc__
    exported = _exported(module)
    assert exported
    for public in exported:
        value = getattr(module, public)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        assert inspect.getdoc(value), f"{name}.{public}"
        for method, member in inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else ():
            if not method.startswith("_") and (member.__module__ or "").startswith("agent_memory_log"):
                assert inspect.getdoc(member) or method.startswith("test_"), f"{name}.{public}.{method}"


def test_core_imports_no_driver_and_no_command_line() -> None:
    rooms = (
        "memory",
        "memory.extraction",
        "memory.policy",
        "transcript",
        "transfer.jsonl",
        "transfer.copying",
        "transfer.forking",
        "recording",
        "replay",
        "interchange.atif",
    )
    optional = {
        "sqlite3",
        "pymongo",
        "typer",
        "rich",
        "pydantic",
        "anthropic",
        "openai",
        "botocore",
        "opentelemetry",
        "pytest",
        "httpx2",
        "starlette",
        "uvicorn",
    }
    imports = "".join(f"import agent_memory_log.{room}; " for room in rooms)
    code = f"import sys; {imports}print(sorted({optional!r} & sys.modules.keys()))"
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert process.stdout.strip() == "[]"


def test_package_imports_its_names_at_their_first_use() -> None:
    code = (
        "import sys, agent_memory_log as front; assert 'msgspec' not in sys.modules;"
        "assert not hasattr(front, '__nonsense__'); assert 'msgspec' not in sys.modules;"
        "assert {'open_store', 'Event'} <= set(dir(front));"
        "assert not hasattr(front, 'nonsense');"
        "assert front.errors.VersionConflict is front.VersionConflict;"
        "from agent_memory_log import *; assert open_store is front.open_store"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_version_is_the_installed_version() -> None:
    assert agent_memory_log.__version__ == importlib.metadata.version("agent-memory-log")
    assert "__version__" in dir(agent_memory_log)


def test_import_does_not_load_package_metadata() -> None:
    code = "import sys, agent_memory_log; sys.exit('importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
