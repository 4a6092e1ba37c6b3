"""Places for a measurement that are gone after it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch(parent: Path) -> Generator[Path]:
    """A folder that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="amlog-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
