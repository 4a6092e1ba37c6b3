"""Writes the graph of memory as GraphML and as N-Triples.

Both formats are written by hand, because they are small and names are hostile: every text is escaped. The ids of nodes
in GraphML are numbers. IRIs of N-Triples are percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final
from urllib.parse import quote
from xml.sax.saxutils import escape

from agent_memory_log.memory.records.record import Record, place_name
from agent_memory_log.memory.records.reports.graphs import ENTITY, Edge
from agent_memory_log.memory.relations.views import View

_GRAPHML_HEAD: Final = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n'
)
_NODE_KEYS: Final = ("name", "type", "record", "created", "valid_from", "valid_until")
_EDGE_KEYS: Final = ("type", "record", "valid_from", "valid_until")

_NOT_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that XML cannot hold, even escaped. They become U+FFFD."""

_URN: Final = "urn:agent-memory-log:"
_RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_LABEL: Final = "http://www.w3.org/2000/01/rdf-schema#label"
_DATE_TIME: Final = "http://www.w3.org/2001/XMLSchema#dateTime"
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"'}
_ESCAPED: Final = re.compile('[\\\\"\\x00-\\x1f\\x7f]')


def graphml(view: View) -> bytes:
    """Return the graph as GraphML. Each node has a name and a type: the kind of a record, or ``entity``."""
    records = {record.id: record for record in view.records()}
    edges = list(view.edges())
    ids = dict.fromkeys((*records, *(node for edge in edges for node in (edge.source, edge.target))))
    numbers = {node: f"n{number}" for number, node in enumerate(ids)}
    lines = [
        f'<key id="{part}_{key}" for="{part}" attr.name="{key}" attr.type="string"/>\n'
        for part, keys in (("node", _NODE_KEYS), ("edge", _EDGE_KEYS))
        for key in keys
    ]
    lines.append('<graph edgedefault="directed">\n')
    for node, number in numbers.items():
        record = records.get(node)
        values = (view.node(node).name, "entity") if record is None else _values(record)
        lines.append(f'<node id="{number}">{_data("node", _NODE_KEYS, values)}</node>\n')
    for edge in edges:
        values = (edge.type, edge.record, _time(edge.valid_from), _time(edge.valid_until))
        ends = f'source="{numbers[edge.source]}" target="{numbers[edge.target]}"'
        lines.append(f"<edge {ends}>{_data('edge', _EDGE_KEYS, values)}</edge>\n")
    return (_GRAPHML_HEAD + "".join(lines) + "</graph>\n</graphml>\n").encode()


def _values(record: Record) -> tuple[str, ...]:
    times = (record.created, record.valid_from, record.valid_until)
    return (record.text, record.kind, record.id, *map(_time, times))


def _data(part: str, keys: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = zip(keys, values, strict=False)
    return "".join(f'<data key="{part}_{key}">{_xml(value)}</data>' for key, value in pairs if value)


def _xml(text: str) -> str:
    """Return a text as the content of an element. A carriage return as a character would be read as a line feed."""
    return escape(_NOT_XML.sub("\ufffd", text), {"\r": "&#13;"})


def _time(time: datetime | None) -> str:
    return "" if time is None else time.isoformat()


def ntriples(view: View) -> bytes:
    """Return the graph as N-Triples.

    A relation is a triple of two entities, and its record is an ``rdf:Statement`` about it, with validity and evidence.
    """
    lines: list[str] = []
    entities: dict[str, None] = {}
    for edge in view.edges():
        lines.append(_triple(_iri_of(edge.source), _iri("predicate", edge.type), _iri_of(edge.target)))
        entities |= dict.fromkeys(node for node in (edge.source, edge.target) if node.startswith(ENTITY))
        if edge.source.startswith(ENTITY):
            lines.extend(_statement(edge))
    lines.extend(_triple(_iri_of(node), f"<{_LABEL}>", _literal(view.node(node).name)) for node in entities)
    for record in view.records():
        lines.extend(_of_record(record))
    return "".join(lines).encode()


def _statement(edge: Edge) -> Iterator[str]:
    """Yield the triples that say which triple the record of a relation states."""
    record = _iri_of(edge.record)
    yield _triple(record, f"<{_RDF}type>", f"<{_RDF}Statement>")
    yield _triple(record, f"<{_RDF}subject>", _iri_of(edge.source))
    yield _triple(record, f"<{_RDF}predicate>", _iri("predicate", edge.type))
    yield _triple(record, f"<{_RDF}object>", _iri_of(edge.target))


def _of_record(record: Record) -> Iterator[str]:
    subject = _iri_of(record.id)
    yield _triple(subject, f"<{_LABEL}>", _literal(record.text))
    yield _triple(subject, _iri("vocabulary", "kind"), _literal(record.kind))
    for name in ("created", "valid_from", "valid_until"):
        time: datetime | None = getattr(record, name)
        if time is not None:
            yield _triple(subject, _iri("vocabulary", name), f"{_literal(time.isoformat())}^^<{_DATE_TIME}>")
    for evidence in record.evidence:
        yield _triple(subject, _iri("vocabulary", "evidence"), _literal(place_name(evidence)))


def _triple(subject: str, predicate: str, target: str) -> str:
    return f"{subject} {predicate} {target} .\n"


def _iri(room: str, name: str) -> str:
    return f"<{_URN}{room}:{quote(name, safe='')}>"


def _iri_of(node: str) -> str:
    return _iri("entity", node.removeprefix(ENTITY)) if node.startswith(ENTITY) else _iri("record", node)


def _literal(text: str) -> str:
    escaped = _ESCAPED.sub(lambda match: _ESCAPES.get(match[0], f"\\u{ord(match[0]):04X}"), text)
    return f'"{escaped}"'
