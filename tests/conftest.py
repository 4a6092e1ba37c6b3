"""Settings for the whole suite, and the MongoDB server of the tests that need one.

Hypothesis times nothing, as a busy machine would then fail for no reason. Where ``CI`` is set it tries the same
examples each time, as its own profile for CI does: a change is judged there, and the search goes on everywhere else.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import uuid
import warnings
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.mongo.server import GivenServer, MongoServer

settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("unhurried")

# Workers, and the hundreds of processes that tests start, do not each compile all modules anew, whatever is asked for.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def _ignore(_number: int, _frame: object) -> None:
    """Ignore a signal, without having processes that this one starts ignore it."""


# Processes that tests interrupt would inherit what nohup, or a shell for its background jobs, has this one ignore.
for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _ignore)

# The campaigns take many minutes: ``make torture`` asks for them.
collect_ignore = [] if "AMLOG_TORTURE" in os.environ else ["torture"]

_OF_MONGODB = "test_mongo"
_LEFT_SOCKET = "unclosed (<socket|<ssl|transport)"
"""What Python says of one. Of a client that nobody closed, which would be our own mistake, the driver speaks."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A driver leaves a socket to the garbage collector where it was cancelled, or its server away, as it connected."""
    for item in items:
        if item.path.name.startswith(_OF_MONGODB):
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{_LEFT_SOCKET}:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def _collect_left_sockets(request: pytest.FixtureRequest) -> Generator[None]:
    """They go with their module, and not in a test that has nothing to do with them."""
    yield
    if request.path.name.startswith(_OF_MONGODB):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _LEFT_SOCKET, ResourceWarning)
            gc.collect()


@pytest.fixture(scope="session")
def mongo_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[MongoServer | GivenServer]:
    """One server for all tests of a worker, started by the first that asks; ``AMLOG_TEST_MONGO_URI`` names another.

    A test that kills, freezes or restarts its server, or makes it fail or forget, starts a ``MongoServer`` of its own.
    """
    given = os.environ.get("AMLOG_TEST_MONGO_URI")
    if given:
        yield GivenServer(given)
        return
    with MongoServer(tmp_path_factory.mktemp("mongo")) as server:
        yield server


@pytest.fixture
def mongo_database(mongo_server: MongoServer | GivenServer) -> Generator[str]:
    """The name of a database of the test's own, dropped after it."""
    name = f"amlog_test_{uuid.uuid4().hex}"
    yield name
    with mongo_server.client() as client:
        client.drop_database(name)


@pytest.fixture
def mongo_uri(mongo_server: MongoServer | GivenServer, mongo_database: str) -> str:
    """The URI of that database."""
    return mongo_server.uri(mongo_database)
