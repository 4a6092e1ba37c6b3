"""Tests that the contract suite catches every broken store, and that each test of the suite catches one or more."""

from __future__ import annotations

import pytest

from agent_memory_log.conformance import OpenHandle, StoreConformance
from agent_memory_log_inmem import MemoryStore
from tests.conformance.broken_stores import DEFECTS, Defect
from tests.conformance.broken_stores.base import BrokenStore, SharedData


class _ShortPatience(StoreConformance):
    """The contract suite with a short patience, because a broken store may never do what a test waits for."""

    patience = 0.5


_TESTS = tuple(name for name in dir(_ShortPatience) if name.startswith("test_"))


def _fails(test: str, open_handle: OpenHandle) -> bool:
    try:
        getattr(_ShortPatience(), test)(open_handle)
    except (Exception, pytest.fail.Exception):
        return True
    return False


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.store.__name__)
def test_suite_catches_the_broken_store(defect: Defect) -> None:
    missed = [test for test in defect.caught_by if not _fails(test, defect.open_handle())]
    assert not missed


def test_base_of_the_broken_stores_passes_the_suite() -> None:
    def opener(kind: type[MemoryStore]) -> OpenHandle:
        data = SharedData()
        return lambda: kind(data)

    assert not [test for test in _TESTS if _fails(test, opener(BrokenStore))]


def test_every_test_of_the_suite_catches_a_broken_store() -> None:
    assert set(_TESTS) == {test for defect in DEFECTS for test in defect.caught_by}
