"""The conformance suite: tests for authors of backends, which every ``Store`` must pass.

The suite needs only pytest. Subclass ``StoreConformance`` and define one fixture:

    import pytest
    from agent_memory_log import open_store
    from agent_memory_log.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def open_handle(self, tmp_path):
            return lambda: open_store(f"mystore:///{tmp_path}/db")

``open_handle`` returns a callable. Each call of the callable returns a new handle on the same data. The data is empty
when a test begins. The suite closes every handle that it opened. A call may return

- an awaitable that gives a ``Store``, such as the result of ``open_store(url)``;
- a ``Store``;
- a ``SyncStore``, such as the result of ``open_sync_store(url)``. The suite runs each call on it in a thread.

The suite calls the callable on the test's event loop. Some tests also call it on other threads, each with its own loop.
The suite needs no plugin for asynchronous tests, and works if one is installed.

The number in a test's name is the number of the promise that it tests:

- 1: An append is atomic.
- 2: Appended events are durable.
- 3: Seqs have no gaps, and a version never decreases.
- 4: Appends are idempotent by event id.
- 5: ``expected_version`` refuses a stale version.
- 6: Snapshots have the right order and selection, and ``Snapshot.extend`` works.
- 7: Callers cannot change stored data through their own objects.
- 8: A read sees every acknowledged append.
- 9: ``follow`` delivers every event once.
- 10: Any content is stored unchanged, and refusals name the field.
- 11: Ids and labels are checked and compared exactly.
- 12: Redaction and deletion remove content, and the erasure journal names them.
- 13: Unknown and registered event types are stored.
- 14: A closed handle, an inherited handle and a handle on another event loop raise ``StoreClosed``.
- 15: ``list_runs`` pages through the runs, and a run keeps its meta.
- 16: A run expires at its ``expires_at``, and ``expire_runs`` removes it.
- 17: ``peek_runs`` returns the heads of runs.
- 18: Reserved agents, types and tombstones are protected.
- 19: ``check`` finds no flaws in an intact store.
- 20: ``find_events`` returns the events that have given ids.

Some promises cannot be tested through the ``Store`` protocol. A backend needs its own tests for killed processes, full
disks, several processes, size limits and newer schemas, and must show that erased text is gone from the disk.
"""

import pkgutil

import pytest

# pytest shows the values of a failing assert only in modules that were registered before their import.
pytest.register_assert_rewrite(*(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")))

from agent_memory_log.conformance.harness import OpenHandle  # noqa: E402  # after the registration above
from agent_memory_log.conformance.suite import StoreConformance  # noqa: E402  # after the registration above

__all__ = ["OpenHandle", "StoreConformance"]
