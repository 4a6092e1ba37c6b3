"""Temporary folders for measurements."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch(parent: Path) -> Generator[Path]:
    """Yield a new folder, and remove it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="amlog-bench-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
