"""Reads tables of constants from TOML files in the ``data`` folder of a package."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

_PART = re.compile(r"\{([a-z][a-z0-9_]*)\}")


def read_table(module: str, name: str) -> dict[str, Any]:
    """Return the contents of ``data/<name>.toml``, in the folder of ``module``: ``read_table(__name__, "words")``."""
    package = module.rpartition(".")[0]
    return tomllib.loads(files(package).joinpath("data", f"{name}.toml").read_text("utf-8"))


def with_parts(pattern: str, parts: Mapping[str, str | list[str]]) -> str:
    """Return ``pattern`` with each ``{name}`` replaced by the part of that name. A list becomes a group of
    alternatives.
    """

    def part_of(match: re.Match[str]) -> str:
        part = parts[match[1]]
        return with_parts(part if isinstance(part, str) else f"(?:{'|'.join(part)})", parts)

    return _PART.sub(part_of, pattern)
