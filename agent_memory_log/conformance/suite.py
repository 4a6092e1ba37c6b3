"""The suite put together: one class of all the tests."""

from __future__ import annotations

import pytest

from agent_memory_log.conformance.appends import Appends
from agent_memory_log.conformance.concurrency import Concurrency
from agent_memory_log.conformance.content import Content
from agent_memory_log.conformance.deleting import Deleting
from agent_memory_log.conformance.durability import Durability
from agent_memory_log.conformance.evolution import Evolution
from agent_memory_log.conformance.expiring import Expiring
from agent_memory_log.conformance.expiring_runs import ExpiringRuns
from agent_memory_log.conformance.extending import Extending
from agent_memory_log.conformance.following import Following
from agent_memory_log.conformance.following_changes import FollowingChanges
from agent_memory_log.conformance.handles import HandleLife
from agent_memory_log.conformance.harness import OpenHandle
from agent_memory_log.conformance.idempotency import Idempotency
from agent_memory_log.conformance.ids import Ids
from agent_memory_log.conformance.isolation import Isolation
from agent_memory_log.conformance.listing import Listing
from agent_memory_log.conformance.loading import Loading
from agent_memory_log.conformance.meta import Meta
from agent_memory_log.conformance.peeking import Peeking
from agent_memory_log.conformance.redacting import Redacting
from agent_memory_log.conformance.refusals import Refusals
from agent_memory_log.conformance.reserving import Reserving
from agent_memory_log.conformance.sequence import Sequence
from agent_memory_log.conformance.versions import Versions


class StoreConformance(
    Appends,
    Durability,
    Sequence,
    Concurrency,
    Idempotency,
    Versions,
    Loading,
    Extending,
    Isolation,
    Following,
    FollowingChanges,
    Content,
    Refusals,
    Ids,
    Redacting,
    Deleting,
    Evolution,
    HandleLife,
    Listing,
    Meta,
    Expiring,
    ExpiringRuns,
    Peeking,
    Reserving,
):
    """All the tests; subclass it and give the fixture ``open_handle``, as the package's docstring shows.

    ``patience`` is how many seconds a test waits for the store before it fails; set it in the subclass.
    """

    @pytest.fixture
    def open_handle(self) -> OpenHandle:
        """Override this: a callable, each call of which opens a new handle on the same, at first empty, data."""
        raise NotImplementedError("give the test class a fixture open_handle: see agent_memory_log.conformance")
