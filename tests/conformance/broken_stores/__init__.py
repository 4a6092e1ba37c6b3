"""Stores that each break one promise. They show that the contract suite can fail.

Each class is an in-memory store with one defect, and names the tests that must catch it. A module holds the defects of
one part of the contract. ``base.py`` holds their common base.
"""

from tests.conformance.broken_stores import (  # the modules register their defects
    appending,
    checking,
    erasing,
    expiring,
    finding,
    following,
    handles,
    identifying,
    isolating,
    journaling,
    listing,
    loading,
    losing,
    newest,
    peeking,
    refusing,
    repeating,
    reserving,
)
from tests.conformance.broken_stores.base import DEFECTS, Defect

__all__ = [
    "DEFECTS",
    "Defect",
    "appending",
    "checking",
    "erasing",
    "expiring",
    "finding",
    "following",
    "handles",
    "identifying",
    "isolating",
    "journaling",
    "listing",
    "loading",
    "losing",
    "newest",
    "peeking",
    "refusing",
    "repeating",
    "reserving",
]
