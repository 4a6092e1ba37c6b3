"""Settings for the whole suite, and the MongoDB server of the tests that need one.

Hypothesis has no deadline, because a busy machine would fail without a reason. If ``CI`` is set, Hypothesis tries the
same examples in every run, like its own profile for CI. Everywhere else, it searches for new examples. ``make torture``
tries ten times as many examples as ``make test``.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Generator
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from pymongo import MongoClient

from agent_memory_log.backend_kit import expiry
from tests.effort import EXAMPLES, IS_CAMPAIGN
from tests.integrations.frameworks import lacking_for
from tests.mongo.server import GivenServer, MongoServer
from tests.store_clock import StoreClock

settings.register_profile(
    "unhurried",
    deadline=None,
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    # If a test draws from strategies itself, the explain phase loses the message of a failure.
    phases=[phase for phase in Phase if phase is not Phase.explain],
    derandomize="CI" in os.environ,
)
settings.load_profile("unhurried")

# Tests start hundreds of processes. With bytecode files, each of them does not compile all modules again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def _ignore(_number: int, _frame: object) -> None:
    """Ignore a signal in this process, but not in the processes that it starts."""


# If nohup or a shell makes this process ignore a signal, the processes that tests interrupt would inherit that.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _ignore)

# The campaigns take many minutes. ``make torture`` runs them.
collect_ignore = [] if IS_CAMPAIGN else ["torture"]


class _SkippedModule(pytest.Module):
    """A module that is not imported, because its framework is not installed."""

    def collect(self) -> NoReturn:
        pytest.skip(lacking_for(self.path), allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip a module whose framework is not installed."""
    if not lacking_for(module_path):
        return None
    skipped: Any = _SkippedModule  # pytest gives its method no types
    return cast("pytest.Module", skipped.from_parent(parent, path=module_path))


@pytest.fixture(scope="session")
def mongo_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[MongoServer | GivenServer]:
    """Start one server for all tests of a worker, or use the server of ``AMLOG_TEST_MONGO_URI``.

    The server does not wait for the disk. A test that kills, freezes or restarts a server, or sets a fail point, starts
    its own ``MongoServer``.
    """
    uri = os.environ.get("AMLOG_TEST_MONGO_URI")
    if uri:
        yield GivenServer(uri)
        return
    with MongoServer(tmp_path_factory.mktemp("mongo"), sync_on_commit=False) as server:
        yield server


@pytest.fixture(scope="session")
def mongo_client(mongo_server: MongoServer | GivenServer) -> Generator[MongoClient[dict[str, Any]]]:
    """Open one client of the driver for all tests of a worker."""
    with mongo_server.client() as client:
        yield client


@pytest.fixture
def mongo_database(mongo_client: MongoClient[dict[str, Any]]) -> Generator[str]:
    """Return the name of a database that only this test uses. It is dropped after the test."""
    name = f"amlog_test_{uuid.uuid4().hex}"
    yield name
    mongo_client.drop_database(name)


@pytest.fixture
def mongo_uri(mongo_server: MongoServer | GivenServer, mongo_database: str) -> str:
    """Return the URI of the test's database."""
    return mongo_server.uri(mongo_database)


@pytest.fixture
def store_clock(monkeypatch: pytest.MonkeyPatch) -> StoreClock:
    """Return the clock of all stores in this process, which a test can set forward."""
    clock = StoreClock()
    monkeypatch.setattr(expiry, "time", clock)
    return clock
