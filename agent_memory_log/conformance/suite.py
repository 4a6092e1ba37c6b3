"""The suite put together: one class of all the tests."""

from __future__ import annotations

import pytest

from agent_memory_log.conformance.appends import Appends
from agent_memory_log.conformance.checking import Checking
from agent_memory_log.conformance.concurrency import Concurrency
from agent_memory_log.conformance.content import Content
from agent_memory_log.conformance.erasing import Erasing
from agent_memory_log.conformance.evolution import Evolution
from agent_memory_log.conformance.expiring import Expiring
from agent_memory_log.conformance.extending import Extending
from agent_memory_log.conformance.following import Following
from agent_memory_log.conformance.handles import HandleLife
from agent_memory_log.conformance.harness import OpenHandle
from agent_memory_log.conformance.idempotency import Idempotency
from agent_memory_log.conformance.ids import Ids
from agent_memory_log.conformance.isolation import Isolation
from agent_memory_log.conformance.listing import Listing
from agent_memory_log.conformance.loading import Loading
from agent_memory_log.conformance.peeking import Peeking
from agent_memory_log.conformance.refusals import Refusals
from agent_memory_log.conformance.sequence import Sequence


class StoreConformance(
    Appends,
    Sequence,
    Concurrency,
    Idempotency,
    Loading,
    Extending,
    Isolation,
    Following,
    Content,
    Refusals,
    Ids,
    Erasing,
    Evolution,
    HandleLife,
    Listing,
    Expiring,
    Peeking,
    Checking,
):
    """All the tests; subclass it and give the fixture ``open_handle``, as the package's docstring shows.

    ``patience`` is how many seconds a test waits for the store before it fails; set it in the subclass.
    """

    @pytest.fixture
    def open_handle(self) -> OpenHandle:
        """Override this: a callable, each call of which opens a new handle on the same, at first empty, data."""
        raise NotImplementedError("give the test class a fixture open_handle: see agent_memory_log.conformance")
