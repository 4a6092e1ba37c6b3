"""The fields that operations of several modules have, with their descriptions."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta

RecordId = Annotated[str, Meta(description="The id of the record.")]
Scope = Annotated[str | None, Meta(description="The scope. Default: the principal's home scope.")]
Scopes = Annotated[tuple[str, ...] | None, Meta(description="The scopes. Default: all that execution allows.")]
Share = Annotated[float, Meta(description="0 to 1. Numbers outside are clamped.")]
Tags = Annotated[tuple[str, ...], Meta(description="Tags. Search looks at them.")]
ValidFrom = Annotated[datetime | None, Meta(description="The time from which it is true. Default: now.")]
