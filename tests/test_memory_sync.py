"""The client without ``await`` is the other one, less the ``await``."""

from __future__ import annotations

from tests import sync_twin


def test_the_twin_is_what_its_source_makes() -> None:
    assert sync_twin.TWIN.read_text() == sync_twin.made(), "run python -m tests.sync_twin"
