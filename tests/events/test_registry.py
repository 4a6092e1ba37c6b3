"""Tests of registered payloads. They behave like built-in ones everywhere, or their registration is refused."""

# pyright: reportPrivateUsage=false
# The registry belongs to the process, so the fixture removes the payloads that a test registered.

from __future__ import annotations

import decimal
import enum
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import (
    Event,
    EventData,
    JsonValue,
    UnknownPayload,
    UserMessage,
    decode_event,
    new_event,
    open_sync_store,
    register_payload,
)
from agent_memory_log.errors import DecodeError, EventConflict, InvalidArgument, InvalidEvent
from agent_memory_log.events import registry
from agent_memory_log.events.nested import Bounds
from agent_memory_log.events.registry import decode_payload, encode_payload, payload_from_map, payload_types


class Urgency(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Address(msgspec.Struct, frozen=True):
    street: str
    lines: tuple[str, ...] = ()
    since: date | None = None


class Shipment(EventData, frozen=True):
    event_type = "test_shipment"

    order: str
    due: datetime
    price: decimal.Decimal
    address: Address
    urgency: Urgency = Urgency.LOW
    unit: str = "parcels, each of one kilogram"
    tags: frozenset[str] = frozenset()
    history: tuple[Address, ...] = ()
    by_day: dict[date, int] = {}  # noqa: RUF012  # msgspec copies an empty default
    counts: dict[int, str] = {}  # noqa: RUF012  # as above
    waits: timedelta = timedelta(0)
    number: uuid.UUID | None = None
    weight: float = 0.0
    checked: bool | None = True
    kind: Literal["in", "out"] = "out"
    short: Annotated[str, msgspec.Meta(max_length=5)] = ""
    percent: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    limits: Bounds | None = None
    anything: JsonValue = None
    more: list[Any] = []  # noqa: RUF012  # as above


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    by_type, by_class = dict(registry._by_type), dict(registry._by_class)
    register_payload(Shipment)
    yield
    registry._by_type.clear()
    registry._by_type.update(by_type)
    registry._by_class.clear()
    registry._by_class.update(by_class)


def shipment(**fields: Any) -> Shipment:
    defaults: dict[str, Any] = {
        "order": "o-1",
        "due": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "price": decimal.Decimal("1.10"),
        "address": Address("Main St"),
    }
    return Shipment(**{**defaults, **fields})


FULL = shipment(
    due=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2))),
    address=Address("Main St", ("1st floor", ""), date(2020, 2, 29)),
    urgency=Urgency.HIGH,
    unit="kilograms",
    tags=frozenset({"a", "b"}),
    history=(Address("Elm St"),),
    by_day={date(2026, 1, 1): 3},
    counts={1: "one", -2: "two"},
    waits=timedelta(days=1, microseconds=1),
    number=uuid.UUID(int=5),
    weight=1.5,
    checked=None,
    kind="in",
    short="abcde",
    percent=100,
    limits=Bounds(total=0),
    anything={"a": [1, None]},
    more=[{"x": 1}, "y"],
)


@pytest.mark.parametrize(
    "payload", [shipment(), FULL, shipment(checked=None), shipment(weight=-0.0)], ids=str.split("least full null minus")
)
def test_registered_payload_behaves_like_a_built_in_one(payload: Shipment) -> None:
    built = payload.to_map()
    assert Shipment.from_map(built) == payload
    assert payload_from_map("test_shipment", built) == payload
    text, owned = encode_payload(payload)
    assert owned == payload
    assert decode_payload("test_shipment", text) == payload
    event = new_event(payload, labels={"a": "b"}, event_id="e-1")
    assert event.type == "test_shipment"
    assert Event.from_map(event.to_map()) == event
    with open_sync_store("memory:") as store:
        store.append_events("agent", "run", event)
        assert store.append_events("agent", "run", event).inserted == 0
        (stored,) = store.load_run("agent", "run").log
    assert stored.data == payload
    assert decode_event(stored, Shipment).price == payload.price
    assert str(decode_event(stored, Shipment).price) == str(payload.price)
    assert str(decode_event(stored, Shipment).weight) == str(payload.weight)


def test_map_of_a_registered_payload_is_json() -> None:
    assert FULL.to_map()["price"] == "1.10"
    assert FULL.to_map()["due"] == "2026-01-02T03:04:05+02:00"
    assert FULL.to_map()["counts"] == {"1": "one", "-2": "two"}
    assert FULL.to_map()["address"] == {"street": "Main St", "lines": ["1st floor", ""], "since": "2020-02-29"}
    assert FULL.to_map()["checked"] is None
    assert shipment().to_map().keys() == {"order", "due", "price", "address"}


def test_explicit_default_value_gives_the_same_body() -> None:
    spelled = str(b"parcels, each of one kilogram", "ascii")  # equal to the default, but not the same object
    assert shipment(unit=spelled).to_map() == shipment().to_map()
    with open_sync_store("memory:") as store:
        store.append_events("agent", "run", new_event(shipment(), event_id="e-1"))
        assert store.append_events("agent", "run", new_event(shipment(unit=spelled), event_id="e-1")).inserted == 0
        with pytest.raises(EventConflict):
            store.append_events("agent", "run", new_event(shipment(unit="boxes"), event_id="e-1"))


def test_payload_with_sets_has_the_same_map_in_every_process() -> None:
    program = (
        "import tests.events.test_registry as t; t.register_payload(t.Shipment);"
        "tags = frozenset(str(n) for n in range(50));"
        "print(t.shipment(tags=tags, by_day=t.FULL.by_day).to_map())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    with open_sync_store("memory:") as store:
        tags = [str(number) for number in range(50)]
        store.append_events("agent", "run", new_event(shipment(tags=frozenset(tags)), event_id="e-1"))
        again = new_event(shipment(tags=frozenset(reversed(tags))), event_id="e-1")
        assert store.append_events("agent", "run", again).inserted == 0


WRONG: list[tuple[str, Any]] = [
    ("order", 5),
    ("order", None),
    ("order", "\ud800"),
    ("order", datetime(2026, 1, 1, tzinfo=UTC)),
    ("order", uuid.UUID(int=1)),
    ("due", "2026-01-01T00:00:00Z"),
    ("due", 5),
    ("due", datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=30)))),
    ("price", "1.10"),
    ("price", decimal.Decimal("NaN")),
    ("price", True),
    ("address", {"street": "x"}),
    ("address", Bounds()),
    ("urgency", "nope"),
    ("tags", {"a": 1}),
    ("tags", {"\ud800"}),
    ("history", (Address(street=5),)),  # type: ignore[arg-type]  # wrong on purpose
    ("by_day", {"not a day": 1}),
    ("weight", float("nan")),
    ("weight", float("inf")),
    ("weight", 2**60 + 1),
    ("weight", True),
    ("checked", 1),
    ("kind", "sideways"),
    ("short", "abcdef"),
    ("percent", 101),
    ("percent", -1),
    ("anything", {1: 2}),
    ("anything", decimal.Decimal(1)),
    ("more", [{1: "a"}]),
    ("more", [{1, 2}]),
    ("more", [decimal.Decimal(1)]),
    ("more", [float("nan")]),
    ("more", [object()]),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=[f"{name}-{index}" for index, (name, _) in enumerate(WRONG)])
def test_wrong_value_is_refused_by_name_after_valid_ones(name: str, value: Any) -> None:
    for valid in (shipment(), FULL, shipment(percent=5, short="a", kind="in", weight=2, order="x"), FULL, shipment()):
        encode_payload(valid)
    with pytest.raises(InvalidEvent) as caught:
        encode_payload(shipment(**{name: value}))
    assert caught.value.field.startswith(f"data.{name}")
    assert "test_shipment" in str(caught.value)


def test_equal_value_in_another_form_is_stored_in_the_declared_form() -> None:
    other_form = shipment(urgency="high", history=[Address("x")], tags=["a"], weight=2, price=3, more=({"a": (1,)},))
    with pytest.raises(InvalidEvent, match="tags"):
        encode_payload(other_form)
    owned = encode_payload(msgspec.structs.replace(other_form, tags={"a"}))[1]
    assert owned == shipment(
        urgency=Urgency.HIGH,
        history=(Address("x"),),
        tags=frozenset({"a"}),
        weight=2.0,
        price=decimal.Decimal(3),
        more=[{"a": [1]}],
    )


class Simple(EventData, frozen=True):
    event_type = "test_simple"

    needed: str | None
    text: str = ""
    count: int = 0
    ratio: float = 0.0
    maybe: int | None = None
    short: Annotated[str, msgspec.Meta(max_length=3)] = ""
    kind: Literal["a", "b"] = "a"
    word: Urgency = Urgency.HIGH
    mixed: int | str = ""


_scalars = st.one_of(
    st.text(max_size=5),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.none(),
    st.binary(max_size=3),
    st.sampled_from(["a", "b", "low", Urgency.LOW, 2**60 + 1]),
)


@given(st.lists(st.fixed_dictionaries({"needed": st.none() | st.text(max_size=3)}, optional=dict.fromkeys(
    ["text", "count", "ratio", "maybe", "short", "kind", "word", "mixed"], _scalars)), max_size=6))  # fmt: skip
def test_scalars_are_checked_after_any_other_payloads(fields: list[dict[str, Any]]) -> None:
    register_payload(Simple)
    for values in fields:
        payload = Simple(**values)
        text, refused = b"", ""
        owned: EventData = payload
        try:
            text, owned = encode_payload(payload)
        except InvalidEvent as error:
            refused = error.field.removeprefix("data.")
        if not text:
            assert refused in values
            continue
        read = decode_payload("test_simple", text)
        assert read == owned
        assert [type(value) for value in msgspec.structs.astuple(read)] == [
            type(value) for value in msgspec.structs.astuple(owned)
        ]
        assert Simple.from_map(payload.to_map()) == owned


def test_required_fields_that_may_be_null_and_other_defaults_survive() -> None:
    register_payload(Simple)
    assert Simple.from_map(Simple(needed=None).to_map()) == Simple(needed=None)
    with pytest.raises(DecodeError, match="needed"):
        Simple.from_map({})
    assert shipment(checked=None).to_map()["checked"] is None
    assert Shipment.from_map(shipment(checked=None).to_map()).checked is None


class Stop(msgspec.Struct, frozen=True):
    city: str
    number: int
    at: datetime | None


class Parcel(EventData, frozen=True):
    event_type = "test_parcel"

    data: Mapping[str, JsonValue]
    stops: tuple[Stop, ...] = ()
    sent: datetime | None = None
    weight: float = 0.0
    seqs: tuple[int, ...] = ()


_GOOD_PARCEL: Mapping[str, Any] = {
    "data": {"a": "b"},
    "stops": (Stop("x", 1, datetime(2026, 1, 1, tzinfo=UTC)),),
    "sent": datetime(2026, 1, 1, tzinfo=UTC),
    "weight": 1.5,
    "seqs": (1, 2),
}


@pytest.mark.parametrize(
    ("name", "value", "field"),
    [
        ("data", {"a": "\ud800"}, "data.data.a"),
        ("data", {"\ud800": "a"}, "data.data"),
        ("data", {1: "a"}, "data.data"),
        ("data", {"a": float("nan")}, "data.data.a"),
        ("stops", (Stop("\ud800", 1, None),), "data.stops"),
        ("stops", (Stop("x", 1, None), Stop(cast("Any", 5), 1, None)), "data.stops"),
        ("stops", (cast("Any", "text"),), "data.stops"),
        ("weight", float("nan"), "data.weight"),
        ("seqs", (1, cast("Any", "2")), "data.seqs"),
    ],
)
def test_nested_values_are_checked_after_valid_payloads(name: str, value: Any, field: str) -> None:
    register_payload(Parcel)
    for _ in range(2):
        encode_payload(Parcel(**_GOOD_PARCEL))
    with pytest.raises(InvalidEvent) as caught:
        encode_payload(Parcel(**{**_GOOD_PARCEL, name: value}))
    assert caught.value.field.startswith(field)


_stops = st.builds(
    Stop,
    st.text(max_size=3),
    st.integers(),
    st.none() | st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=2))])),
)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"data": st.dictionaries(st.text(max_size=2), st.text(max_size=3) | st.integers())},
            optional={
                "stops": st.lists(_stops).map(tuple),
                "sent": st.datetimes(timezones=st.just(UTC)),
                "weight": st.floats() | st.integers(-5, 5),
                "seqs": st.lists(st.integers() | st.booleans()).map(tuple),
            },
        ),
        max_size=5,
    )
)
def test_payload_without_read_back_equals_the_decoded_one(fields: list[dict[str, Any]]) -> None:
    register_payload(Parcel)
    for values in fields:
        try:
            text, owned = encode_payload(Parcel(**values))
        except InvalidEvent:
            continue
        read = decode_payload("test_parcel", text)
        assert read == owned
        assert msgspec.json.encode(read) == msgspec.json.encode(owned) == text


class Moving(tzinfo):
    hours = 1

    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(hours=self.hours)

    def dst(self, _: datetime | None) -> None:
        return None

    def tzname(self, _: datetime | None) -> None:
        return None


def test_time_zone_object_of_the_caller_is_not_kept() -> None:
    register_payload(Parcel)
    encode_payload(Parcel({"a": "b"}, sent=datetime(2026, 1, 1, tzinfo=UTC)))
    zone = Moving()
    _, owned = encode_payload(Parcel({"a": "b"}, sent=datetime(2026, 1, 1, 12, tzinfo=zone)))
    zone.hours = 2
    assert owned == Parcel({"a": "b"}, sent=datetime(2026, 1, 1, 11, tzinfo=UTC))


def test_map_of_text_is_copied() -> None:
    register_payload(Parcel)
    for _ in range(3):
        given_map: dict[str, JsonValue] = {"a": "b"}
        _, owned = encode_payload(Parcel(given_map))
        given_map["a"] = "c"
        assert owned == Parcel({"a": "b"})


class Node(msgspec.Struct, frozen=True):
    child: Node | None = None
    anything: JsonValue = None


class Tree(EventData, frozen=True):
    event_type = "test_tree"

    root: Node | None = None
    roots: tuple[Node, ...] = ()


def test_depth_is_counted_through_nested_structs() -> None:
    register_payload(Tree)
    node = Node(anything=[])
    for _ in range(62):
        node = Node(child=node)
    deepest = Tree(root=node)
    assert Tree.from_map(deepest.to_map()) == deepest == encode_payload(deepest)[1]
    for tree in (Tree(root=Node(child=node)), Tree(roots=(node,))):
        for attempt in (encode_payload, EventData.to_map):
            with pytest.raises(InvalidEvent, match="64 levels"):
                attempt(tree)
    for _ in range(3000):
        node = Node(child=node)
    for tree in (Tree(root=node), Tree(roots=(node,))):
        for attempt in (encode_payload, EventData.to_map):
            with pytest.raises(InvalidEvent) as caught:
                attempt(tree)
            assert caught.value.field.startswith("data.root")


class Loose(EventData):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]  # it inherits frozen
    """A subclass without ``frozen=True``. It inherits ``frozen`` from ``EventData``."""

    event_type = "test_loose"

    text: str = ""


class Thawed(EventData, frozen=False):  # type: ignore[misc]  # pyright: ignore[reportGeneralTypeIssues]  # msgspec takes it
    event_type = "test_thawed"

    text: str = ""


def test_mutable_payload_is_not_shared_with_the_store() -> None:
    register_payload(Thawed)
    with open_sync_store("memory:") as store:
        for _ in range(3):
            payload = Thawed(text="before")
            event = new_event(payload)
            (returned,) = store.append_events("agent", "run", event).events
            payload.text = "after"
            assert decode_event(returned, Thawed).text == "before"
            decode_event(returned, Thawed).text = "later"
        assert [decode_event(event, Thawed).text for event in store.load_run("agent", "run").log] == ["before"] * 3


def test_subclass_is_frozen_by_default() -> None:
    register_payload(Loose)
    with pytest.raises(AttributeError):
        Loose().text = "x"  # frozen at run time


class Strict(EventData, frozen=True):
    event_type = "test_strict"

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


def test_post_init_error_becomes_a_decode_error() -> None:
    register_payload(Strict)
    assert Strict.from_map({"low": 1, "high": 2.0}) == Strict(low=1, high=2)
    with pytest.raises(DecodeError, match="test_strict: low is above high"):
        Strict.from_map({"low": 3, "high": 2})
    with pytest.raises(DecodeError, match="test_strict: low is above high"):
        decode_payload("test_strict", '{"low":3,"high":2}')


@pytest.mark.parametrize("event_type", ["memory_record", "memory_later"])
def test_reserved_types_are_refused(event_type: str) -> None:
    kind = msgspec.defstruct("Mine", [], bases=(EventData,), namespace={"event_type": event_type}, frozen=True)
    assert issubclass(kind, EventData)
    with pytest.raises(InvalidArgument, match="reserved"):
        register_payload(kind)


def test_invalid_payload_classes_are_refused() -> None:
    class Nameless(EventData, frozen=True):
        text: str = ""

    class Numbered(EventData, frozen=True):
        event_type = 5  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]  # wrong on purpose

    class Surrogate(EventData, frozen=True):
        event_type = "\ud800"

    class Listed(EventData, frozen=True, array_like=True):
        event_type = "test_listed"

    class Impossible(EventData, frozen=True):
        event_type = "test_impossible"

        value: dict[str, int] | Mapping[str, str]

    class Conflicting(EventData, frozen=True):
        event_type = "user_message"

    class Other(EventData, frozen=True):
        event_type = "test_shipment"

    class Inherits(UserMessage, frozen=True):
        more: str = ""

    for kind, message in (
        (Nameless, "event_type"),
        (Numbered, "event_type"),
        (Surrogate, "surrogate"),
        (Listed, "array_like"),
        (Impossible, "test_impossible|Impossible"),
        (Conflicting, "is already registered for UserMessage"),
        (Other, "is already registered for Shipment"),
        (Inherits, "is already registered for UserMessage"),
        (EventData, "event_type"),
        (UnknownPayload, "event_type"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            register_payload(kind)
    other_values: list[Any] = [UserMessage(), "user_message", None, int, Bounds, 5]
    for value in other_values:
        with pytest.raises(InvalidArgument, match="subclass of EventData"):
            register_payload(value)
    assert "test_impossible" not in payload_types()


def test_error_for_unregistered_payload_names_register_payload() -> None:
    class Forgotten(EventData, frozen=True):
        event_type = "test_forgotten"

    with pytest.raises(InvalidEvent, match="register_payload") as caught:
        encode_payload(Forgotten())
    assert caught.value.field == "data"


def _reloaded() -> type[EventData]:
    class Handoff(EventData, frozen=True):
        event_type = "test_handoff"

        to_agent: str

    return Handoff


def test_reloaded_class_replaces_the_old_one() -> None:
    first, second = _reloaded(), _reloaded()
    assert register_payload(first) is first
    old = new_event(payload_from_map("test_handoff", {"to_agent": "a"}))
    assert register_payload(second) is second
    assert register_payload(second) is second
    assert type(payload_from_map("test_handoff", {"to_agent": "a"})) is second
    assert type(decode_event(old, second)) is second
    with open_sync_store("memory:") as store:
        store.append_events("agent", "run", old)
        assert type(store.load_run("agent", "run").log[0].data) is first or second


def test_decode_event_converts_events_read_before_the_registration() -> None:
    event = Event.from_map({"type": "test_handoff", "timestamp": "2026-01-01T00:00:00Z", "data": {"to_agent": "b"}})
    assert isinstance(event.data, UnknownPayload)
    handoff = register_payload(_reloaded())
    assert decode_event(event, handoff) == handoff.from_map({"to_agent": "b"})
    with pytest.raises(DecodeError, match="test_handoff"):
        decode_event(event, Shipment)
    bad = msgspec.structs.replace(event, data=UnknownPayload(type="test_handoff", data={}))
    with pytest.raises(DecodeError, match="to_agent"):
        decode_event(bad, handoff)


def test_event_type_may_be_an_enum_member() -> None:
    class Kinds(str, enum.Enum):  # noqa: UP042  # str() of this enum is not its value
        NOTE = "test_enum_note"

    class EnumNote(EventData, frozen=True):
        event_type = Kinds.NOTE

        text: str = ""

    register_payload(EnumNote)
    event = new_event(EnumNote(text="x"))
    assert type(event.type) is str
    assert event.to_map()["type"] == "test_enum_note"
    assert Event.from_map(event.to_map()) == event


def test_register_payload_as_decorator_returns_the_class() -> None:
    @register_payload
    class Decorated(EventData, frozen=True):
        event_type = "test_decorated"

        items: Sequence[int] = ()

    assert Decorated.__name__ == "Decorated"
    assert payload_types()["test_decorated"] is Decorated
