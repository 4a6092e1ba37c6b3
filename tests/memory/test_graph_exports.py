"""Exports of the graph, as networkx and rdflib read them, with hostile names."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from io import BytesIO
from urllib.parse import unquote

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdflib import RDF, RDFS, Graph, Literal, URIRef
from rdflib.term import Node as Term

from agent_memory_log import open_sync_store
from agent_memory_log.memory import Evidence, Relation, SyncMemory, SyncMemoryClient, alias_key
from tests.memory.stores import SetClock, somebody

HOSTILE = (
    'Ana "A" <b>&amp;]]>',
    "a\\b\n\r\tc",
    "<!-- -->",
    "> .\n<x> <y> <z> .",
    "\x00\x1f\x7f\ufffe",
    "%41 é 名 😀",
    "'",
    "n0",
)
TEXTS = st.sampled_from(HOSTILE) | st.text(min_size=1).filter(str.strip)
TRIPLES = st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=8, unique=True)


def memory() -> SyncMemory:
    return SyncMemoryClient(open_sync_store("memory:"), clock=SetClock()).of(somebody())


def as_xml_reads(text: str) -> str:
    """Return a text as XML can hold it: characters that it cannot hold are replaced."""
    return re.sub("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)


def read_graphml(data: bytes) -> nx.MultiDiGraph[str]:
    graph = nx.read_graphml(BytesIO(data), force_multigraph=True)
    assert isinstance(graph, nx.MultiDiGraph)
    return graph


def read_ntriples(data: bytes) -> Graph:
    return Graph().parse(data=data.decode(), format="nt")


def label(graph: Graph, node: Term) -> str:
    return str(next(graph.objects(node, RDFS.label)))


@settings(deadline=None)
@given(TRIPLES)
def test_both_formats_hold_every_relation(triples: list[tuple[str, str, str]]) -> None:
    me = memory()
    stored = [me.remember(Relation(*triple)).record for triple in triples]
    relations = {record.id: record.data for record in stored if record is not None}
    expected = sorted(
        (alias_key(relation.subject), relation.predicate, alias_key(relation.object))
        for relation in relations.values()
        if isinstance(relation, Relation)
    )

    of_networkx = read_graphml(me.export_graph("graphml"))
    edges = [
        (of_networkx.nodes[source], edge["type"], of_networkx.nodes[target], edge["record"])
        for source, target, edge in of_networkx.edges(data=True)
        if edge["record"] in relations and of_networkx.nodes[source]["type"] == "entity"
    ]
    assert len({node for node, fields in of_networkx.nodes(data=True) if "record" in fields}) == len(relations)
    for source, predicate, target, record in edges:
        relation = relations[record]
        assert isinstance(relation, Relation)
        assert predicate == as_xml_reads(relation.predicate)
        assert {source["name"], target["name"]} <= {as_xml_reads(text) for triple in triples for text in triple}
    relation_edges = [edge for edge in edges if edge[1] != "mentions"]
    assert len(relation_edges) == len(relations)

    of_rdflib = read_ntriples(me.export_graph("ntriples"))
    statements = list(of_rdflib.subjects(RDF.type, RDF.Statement))
    assert len(statements) == len(relations)
    read: list[tuple[str, str, str]] = []
    for statement in statements:
        subject, predicate, end = (
            next(of_rdflib.objects(statement, part)) for part in (RDF.subject, RDF.predicate, RDF.object)
        )
        assert (subject, predicate, end) in of_rdflib
        assert isinstance(predicate, URIRef)
        read.append((alias_key(label(of_rdflib, subject)), _decoded(predicate), alias_key(label(of_rdflib, end))))
    assert sorted(read) == expected


def _decoded(predicate: URIRef) -> str:
    return unquote(str(predicate).removeprefix("urn:agent-memory-log:predicate:"))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_stays_a_text(text: str) -> None:
    me = memory()
    me.add(f"x {text}", tags=(text,), entity_refs=(text, "Ana"))
    graph = read_graphml(me.export_graph())
    note_texts = [fields["name"] for _, fields in graph.nodes(data=True) if fields["type"] == "note"]
    assert note_texts == [as_xml_reads(f"x {text}")]
    labels = {str(value) for value in read_ntriples(me.export_graph("ntriples")).objects(None, RDFS.label)}
    assert f"x {text}" in labels


def test_validity_and_evidence_are_exported() -> None:
    me = memory()
    begin, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
    record = me.remember(
        Relation("Ana", "works_at", "Acme"), valid_from=begin, valid_until=end, evidence=(Evidence("a", "r/1", 3),)
    ).record
    assert record is not None
    (edge,) = [data for *_, data in read_graphml(me.export_graph()).edges(data=True)]
    assert (edge["valid_from"], edge["valid_until"]) == (begin.isoformat(), end.isoformat())
    graph = read_ntriples(me.export_graph("ntriples"))
    subject = URIRef(f"urn:agent-memory-log:record:{record.id}")
    vocabulary = "urn:agent-memory-log:vocabulary:"
    assert (subject, URIRef(f"{vocabulary}valid_from"), Literal(begin)) in graph
    assert (subject, URIRef(f"{vocabulary}evidence"), Literal("a/r%2F1#3")) in graph
    assert (subject, URIRef(f"{vocabulary}kind"), Literal("relation")) in graph


def test_an_empty_memory_has_an_empty_graph() -> None:
    me = memory()
    assert not read_graphml(me.export_graph()).nodes
    assert len(read_ntriples(me.export_graph("ntriples"))) == 0
