"""The store that a class of ours uses in the place of a framework's class.

``SWAP`` is ``memory`` or ``sqlite``. With ``named``, it is what the name of the framework's class says.
"""

from __future__ import annotations

import os
import tempfile


def new_url(own_kind: str) -> str:
    """Return the URL of a new store. ``own_kind`` is what the name of the framework's class says."""
    kind = os.environ["SWAP"]
    if kind == "named":
        kind = own_kind
    return f"sqlite:///{tempfile.mkdtemp()}/runs.db?durability=os" if kind == "sqlite" else "memory:"
