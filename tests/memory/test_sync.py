"""The clients without ``await`` are the others, less the ``await``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import sync_twin


@pytest.mark.parametrize("source", sync_twin.TWINS, ids=lambda source: source.name)
def test_the_twin_is_what_its_source_makes(source: Path) -> None:
    assert sync_twin.TWINS[source].read_text() == sync_twin.made(source), "run python -m tests.sync_twin"
