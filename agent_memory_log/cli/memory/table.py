"""Makes options from memory's table of operations, so that their help, bounds and defaults are the same."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from msgspec import Meta, structs

from agent_memory_log.memory.records.arguments import Operation


def option(operation: type[Operation[Any]], field: str, *flags: str, metavar: str | None = None) -> Any:  # noqa: ANN401  # the return type of typer.Option
    """Return the option for a field of an operation, with the field's description and bounds."""
    hint = get_type_hints(operation, include_extras=True)[field]
    metas = [part for part in get_args(hint) if isinstance(part, Meta)] if get_origin(hint) is Annotated else []
    meta = metas[0] if metas else Meta()
    help_ = None if meta.description is None else meta.description.replace("``", "")
    return typer.Option(*flags, metavar=metavar, help=help_, min=meta.ge, max=meta.le)


def default(operation: type[Operation[Any]], field: str) -> Any:  # noqa: ANN401  # the type of the field
    """Return the default of a field of an operation."""
    return next(info.default for info in structs.fields(operation) if info.name == field)
