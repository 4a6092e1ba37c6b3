"""Damages the file of a search index in more ways."""

from __future__ import annotations

from tests.recall.test_index_files import file, filled, test_a_damaged_file_gives_the_right_hits_or_none

__all__ = ["file", "filled", "test_a_damaged_file_gives_the_right_hits_or_none"]
