"""The contract suite: the tests that every ``Store`` must pass, for the authors of backends.

It needs pytest and nothing else, and a backend passes it by giving one fixture:

    import pytest
    from agent_memory_log import open_store
    from agent_memory_log.conformance import StoreConformance

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def open_handle(self, tmp_path):
            return lambda: open_store(f"mystore:///{tmp_path}/db")

``open_handle`` gives a callable. Each call of it returns a new handle on the same data, which is empty when the test
begins; the suite closes every handle it opened. A call may return

- what ``open_store(url)`` returns, or any other awaitable that gives a ``Store``;
- a ``Store``;
- a ``SyncStore``, as ``open_sync_store(url)`` returns: the same tests prove it, each call running in a thread.

The callable is called on the event loop of the test, and by some tests on other threads with loops of their own. No
plugin for asynchronous tests is needed, and one that is installed does not disturb.

A test's name begins with the number of the promise it proves:

1. atomic appends; 2. durable; 3. gapless seqs, and a version that never goes back; 4. idempotent by event id;
5. ``expected_version``; 6. order, selection and ``Snapshot.extend``; 7. isolated from what callers change; 8. fresh
reads; 9. ``follow``; 10. any content, and refusals that name the field; 11. ids and labels; 12. redaction and deletion;
13. unknown and registered event types; 14. handles; 15. ``list_runs`` and a run's meta; 16. a run's end, and
``expire_runs``; 17. ``peek_runs``; 18. what is the library's own; 19. ``check`` of a store that is whole.

What cannot be proved through the ``Store`` protocol is for a backend's own tests: what survives a killed process or a
full disk, several processes, size limits, newer schemas, and that erased text is gone from the disk.
"""

import pkgutil

import pytest

# A failing assert shows its values only in modules that pytest was told of before they are imported.
pytest.register_assert_rewrite(*(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")))

from agent_memory_log.conformance.harness import OpenHandle  # noqa: E402  # after the registration above
from agent_memory_log.conformance.suite import StoreConformance  # noqa: E402  # after the registration above

__all__ = ["OpenHandle", "StoreConformance"]
