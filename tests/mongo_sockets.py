"""Sockets that a driver leaves to the garbage collector, closed while it connects to a server that is away."""

from __future__ import annotations

import gc
import warnings

LEFT_SOCKETS = "ignore:unclosed:ResourceWarning"
"""For ``pytest.mark.filterwarnings``, in the modules whose tests bring that about."""


def collect_left_sockets() -> None:
    """Collect them now, and not in a test that has nothing to do with them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
