"""The agent frameworks, which only ``make integrations`` and ``make types`` install.

Without a framework, its tests are skipped, except in ``make integrations``. ``tests/conftest.py`` skips a module that
is named after the extra of a framework. A test elsewhere that needs a framework has the mark ``needs(EXTRA)``.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGES = {
    "claude-agent": "claude_agent_sdk",
    "google-adk": "google.adk",
    "langgraph": "langgraph",
    "openai-agents": "agents",
    "pydantic-ai": "pydantic_ai",
    "trio": "trio",
}
"""The import package of each extra, and of trio, on which some frameworks run too."""


def lacking(extra: str) -> str:
    """Return why the tests of a framework are skipped, or ``""``."""
    if extra not in PACKAGES or "AMLOG_INTEGRATIONS" in os.environ or find_spec(PACKAGES[extra]) is not None:
        return ""
    return f"needs the framework of {extra}: make integrations"


def lacking_for(path: Path) -> str:
    """Return why the tests of a module are skipped, or ``""``."""
    name = path.stem.removeprefix("test_").replace("_", "-")
    return next(filter(None, (lacking(extra) for extra in PACKAGES if name.startswith(extra))), "")


def needs(extra: str) -> pytest.MarkDecorator:
    """Return the mark of a test that is skipped without a framework."""
    reason = lacking(extra)
    return pytest.mark.skipif(bool(reason), reason=reason)
