"""What a payload's values must be before they are written: msgspec writes some, without a word, as something else.

NaN would become null, the key 1 ``"1"``, a set an array. Free-form values (``structured``, ``extra``, …) must be JSON;
a registered payload's other fields anything that msgspec turns into JSON. Text, integers and bytes need no look here:
the encoder and the decoder check those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from typing import Any, get_type_hints

import msgspec

from agent_memory_log.events.fields import Int64, JsonText, without_none
from agent_memory_log.events.jsonvalue import MAX_DEPTH, NotJson, own_json, plain_form

_Check = Callable[[Any, str, int], None]

_FREE_FORM: tuple[object, ...] = (Any, Mapping[str, Any], dict[str, Any])
_CHECKED_BY_MSGSPEC: tuple[object, ...] = (str, int, bool, bytes, Int64, JsonText)


def check_struct(struct: msgspec.Struct, where: str, depth: int = 1) -> None:
    """Check the fields of ``struct``, which stands at ``where`` and whose maps and lists are at level ``depth``.

    Raises ``NotJson``, whose path begins with ``where``.
    """
    for name, check in checks_of(type(struct)):
        value = getattr(struct, name)
        if value is not None:
            check(value, f"{where}.{name}", depth)


@cache
def checks_of(cls: type[msgspec.Struct]) -> tuple[tuple[str, _Check], ...]:
    """The fields of a struct that need a look, with the check of each; None needs none."""
    hints = get_type_hints(cls, include_extras=True)
    return tuple(
        (field.name, _check_for(hint))
        for field in msgspec.structs.fields(cls)
        if (hint := without_none(hints[field.name])) not in _CHECKED_BY_MSGSPEC
    )


def _check_for(hint: object) -> _Check:
    if hint in _FREE_FORM:
        return _check_json
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return _check_inner
    return _check_typed


def _check_json(value: object, where: str, depth: int) -> None:
    try:
        own_json(value, depth)
    except NotJson as error:
        raise NotJson(str(error), where + error.path) from None


def _check_inner(value: object, where: str, depth: int) -> None:
    if isinstance(value, msgspec.Struct):  # anything else is refused when it is read back
        if depth > MAX_DEPTH:
            raise NotJson(f"nests deeper than {MAX_DEPTH} levels", where)
        check_struct(value, where, depth + 1)


def _check_typed(value: object, where: str, depth: int) -> None:
    if (type(value) is float and isfinite(value)) or (type(value) is tuple and not value):
        return  # the commonest, and nothing to look at
    try:
        plain: object = msgspec.to_builtins(value, str_keys=True, enc_hook=plain_form)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"cannot be written: {error}", where) from error
    _check_json(plain, where, depth)
