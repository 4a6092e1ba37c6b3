"""Makes the form of a type from its type hint.

A struct is an object with all of its fields. An operation leaves out the fields that have their default, so that an
older server accepts it. ``FORMS`` has the types with a form of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.events.fields import in_quotes
from agent_memory_log.memory.records.arguments import Local, Operation
from agent_memory_log.service.wire.scalars import SCALARS, Form, Schema, decode_object, same, wrong

FORMS: dict[object, Form] = dict(SCALARS)
"""The forms of types that are not made from a type hint."""

COMPONENTS: dict[str, Schema] = {}
"""The schema of each struct for which a form was made, by name."""


@cache
def form_of(hint: Any) -> Form:  # noqa: ANN401, PLR0911  # any type hint; one return for each kind of hint
    """Return the form of a type hint. Raises ``TypeError`` if values of the type cannot travel."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in FORMS:
        return FORMS[hint]
    if origin is Annotated:
        return _described(arguments[0], next(each for each in arguments[1:] if isinstance(each, msgspec.Meta)))
    if origin in (Union, UnionType):
        return _optional(arguments)
    if origin is Literal:
        return _literal(arguments)
    if origin is tuple:
        return _several(form_of(arguments[0])) if arguments[1:] == (...,) else _fixed(tuple(map(form_of, arguments)))
    if isinstance(origin, type) and issubclass(origin, AbstractSet):
        return _set_of(form_of(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _map_of(form_of(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return struct_form(hint)
    raise TypeError(f"{hint!r} has no form in JSON")


def _described(hint: object, meta: msgspec.Meta) -> Form:
    form = form_of(hint)
    bounds = {
        name: bound
        for name, bound in (("minimum", meta.ge), ("maximum", meta.le))
        if bound is not None and math.isfinite(bound)
    }
    schema = dict(form.schema)
    if "anyOf" in schema:
        first, *null = cast("list[Schema]", schema["anyOf"])
        schema["anyOf"] = [{**first, **bounds}, *null]
    else:
        schema.update(bounds)
    if meta.description:
        schema["description"] = meta.description
    return form._replace(schema=schema)


def _optional(arguments: tuple[object, ...]) -> Form:
    (hint,) = (each for each in arguments if each is not NoneType)
    form = form_of(hint)

    def encode(value: object) -> object:
        return None if value is None else form.encode(value)

    def decode(value: object, path: str) -> object:
        return None if value is None else form.decode(value, path)

    return Form(encode, decode, {"anyOf": [form.schema, {"type": "null"}]})


def _literal(names: tuple[str, ...]) -> Form:
    def decode(value: object, path: str) -> str:
        if not isinstance(value, str) or value not in names:
            raise wrong(path, f"one of {', '.join(names)}", value)
        return value

    return Form(same, decode, {"enum": list(names)})


def _items(value: object, path: str, count: int | None = None) -> list[object]:
    items = cast("list[object]", value)
    if not isinstance(value, list) or count not in (None, len(items)):
        raise wrong(path, "an array" if count is None else f"an array of {count} values", items)
    return items


def _several(item: Form) -> Form:
    def encode(values: Iterable[object]) -> list[object]:
        return [item.encode(value) for value in values]

    def decode(value: object, path: str) -> tuple[object, ...]:
        return tuple([item.decode(each, f"{path}[{index}]") for index, each in enumerate(_items(value, path))])

    return Form(encode, decode, {"type": "array", "items": item.schema})


def _fixed(items: tuple[Form, ...]) -> Form:
    def encode(values: tuple[Any, ...]) -> list[Any]:
        return [item.encode(value) for item, value in zip(items, values, strict=True)]

    def decode(value: object, path: str) -> tuple[Any, ...]:
        values = _items(value, path, len(items))
        return tuple(
            item.decode(each, f"{path}[{n}]") for n, (item, each) in enumerate(zip(items, values, strict=True))
        )

    first = items[0].schema
    same_items = all(item.schema == first for item in items)
    of_items = {"items": first} if same_items else {"prefixItems": [item.schema for item in items]}
    return Form(encode, decode, {"type": "array", **of_items, "minItems": len(items), "maxItems": len(items)})


def _set_of(item: Form) -> Form:
    several = _several(item)

    def encode(values: Iterable[Any]) -> object:
        return several.encode(sorted(values))

    def decode(value: object, path: str) -> frozenset[object]:
        return frozenset(several.decode(value, path))

    return Form(encode, decode, {**several.schema, "uniqueItems": True})


def _map_of(item: Form) -> Form:
    def encode(values: Mapping[str, object]) -> dict[str, object]:
        return {key: item.encode(value) for key, value in values.items()}

    def decode(value: object, path: str) -> dict[str, object]:
        return {key: item.decode(each, f"{path}.{key}") for key, each in decode_object(value, path).items()}

    return Form(encode, decode, {"type": "object", "additionalProperties": item.schema})


class _Field(NamedTuple):
    name: str
    form: Form
    default: object


def struct_form(cls: type[msgspec.Struct], name: str | None = None) -> Form:
    """Return the form of a struct. ``name`` is its name in schemas, by default that of the class."""
    hints = get_type_hints(cls, include_extras=True)
    local = {field for field, hint in hints.items() if Local in get_args(hint)}
    fields = {
        field.name: _Field(field.name, form_of(hints[field.name]), _default_of(field))
        for field in msgspec.structs.fields(cls)
        if field.name not in local
    }
    required = [field.name for field in fields.values() if field.default is msgspec.NODEFAULT]
    is_operation = issubclass(cls, Operation)

    def encode(value: msgspec.Struct) -> dict[str, Any]:
        for field in local:
            if getattr(value, field) is not None:
                raise InvalidArgument(f"{field} cannot be sent to a server: configure it there")
        return {
            name: form.encode(item)
            for name, form, default in fields.values()
            if (item := getattr(value, name)) is not default or not is_operation
        }

    def decode(value: object, path: str) -> msgspec.Struct:
        values = decode_object(value, path)
        if not values.keys() <= fields.keys():
            unknown = next(key for key in values if key not in fields)
            raise InvalidArgument(f"{path or 'the body'} has no field {in_quotes(unknown)}, only {', '.join(fields)}")
        below = f"{path}." if path else ""
        for key in required:
            if key not in values:
                raise InvalidArgument(f"{below}{key} is missing")
        return cls(**{key: fields[key].form.decode(item, f"{below}{key}") for key, item in values.items()})

    schema = _schema_of(fields.values(), required, is_operation=is_operation)
    return Form(encode, decode, component(name or cls.__name__, schema))


def _default_of(field: msgspec.structs.FieldInfo) -> object:
    factory = field.default_factory
    return field.default if factory is msgspec.NODEFAULT else factory()


def _schema_of(fields: Iterable[_Field], required: list[str], *, is_operation: bool) -> Schema:
    properties = {
        field.name: {**field.form.schema, "default": field.form.encode(field.default)}
        if is_operation and field.default is not msgspec.NODEFAULT
        else field.form.schema
        for field in fields
    }
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def component(name: str, schema: Schema) -> Schema:
    """Add a schema to ``COMPONENTS`` and return the reference to it. Raises ``TypeError`` if another has the name."""
    if COMPONENTS.setdefault(name, schema) != schema:
        raise TypeError(f"two types are named {name}")
    return {"$ref": f"#/components/schemas/{name}"}
