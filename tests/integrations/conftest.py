"""The stores on which the tests of integrations run."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["memory", "sqlite", "mongo"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty store of each backend."""
    if request.param == "mongo":
        return str(request.getfixturevalue("mongo_uri"))
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db"
