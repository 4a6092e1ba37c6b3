"""Options whose help, bounds and defaults are those of a field in memory's table of operations."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from msgspec import Meta, structs

from agent_memory_log.memory.records.arguments import Operation


def option(operation: type[Operation[Any]], field: str, *flags: str, metavar: str | None = None) -> Any:  # noqa: ANN401  # as typer says
    """The option that gives a field of an operation."""
    hint = get_type_hints(operation, include_extras=True)[field]
    metas = [part for part in get_args(hint) if isinstance(part, Meta)] if get_origin(hint) is Annotated else []
    meta = metas[0] if metas else Meta()
    help_ = None if meta.description is None else meta.description.replace("``", "")
    return typer.Option(*flags, metavar=metavar, help=help_, min=meta.ge, max=meta.le)


def default(operation: type[Operation[Any]], field: str) -> Any:  # noqa: ANN401  # whatever the field's type is
    """What a field of an operation is unless said."""
    return next(known.default for known in structs.fields(operation) if known.name == field)
