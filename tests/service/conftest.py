"""The server of the tests that need one."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.service.servers import ManyStores


@pytest.fixture(scope="session")
def many_stores() -> Generator[ManyStores]:
    """Start one server for all tests of a worker."""
    with ManyStores() as server:
        yield server
