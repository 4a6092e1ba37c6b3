"""Combines all tests of the suite in one class."""

from __future__ import annotations

import pytest

from agent_memory_log.conformance.appends import Appends
from agent_memory_log.conformance.checking import Checking
from agent_memory_log.conformance.concurrency import Concurrency
from agent_memory_log.conformance.content import Content
from agent_memory_log.conformance.erasing import Erasing
from agent_memory_log.conformance.erasures import ErasureJournal
from agent_memory_log.conformance.evolution import Evolution
from agent_memory_log.conformance.expiring import Expiring
from agent_memory_log.conformance.extending import Extending
from agent_memory_log.conformance.finding import Finding
from agent_memory_log.conformance.following import Following
from agent_memory_log.conformance.handles import HandleLife
from agent_memory_log.conformance.harness import OpenHandle
from agent_memory_log.conformance.idempotency import Idempotency
from agent_memory_log.conformance.ids import Ids
from agent_memory_log.conformance.isolation import Isolation
from agent_memory_log.conformance.listing import Listing
from agent_memory_log.conformance.loading import Loading
from agent_memory_log.conformance.newest import Newest
from agent_memory_log.conformance.peeking import Peeking
from agent_memory_log.conformance.refusals import Refusals
from agent_memory_log.conformance.sequence import Sequence


class StoreConformance(
    Appends,
    Sequence,
    Concurrency,
    Idempotency,
    Loading,
    Newest,
    Extending,
    Isolation,
    Following,
    Content,
    Refusals,
    Ids,
    Erasing,
    ErasureJournal,
    Evolution,
    HandleLife,
    Listing,
    Expiring,
    Peeking,
    Finding,
    Checking,
):
    """All tests of the suite. Subclass it and define the fixture ``open_handle``, as the package's docstring shows.

    Attributes:
        patience: The seconds that a test may take before it fails. The default is 30; a subclass may set another.
    """

    @pytest.fixture
    def open_handle(self) -> OpenHandle:
        """Return a callable that opens a new handle at each call. Override this fixture.

        All handles of a test share the same data, which is empty when the test begins.
        """
        raise NotImplementedError(
            "the test class has no fixture open_handle; define it as agent_memory_log.conformance shows"
        )
