"""Tests of the commands on the graph of memory: trace, neighbours, paths and graph."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import networkx as nx
import pytest

from agent_memory_log import open_sync_store
from agent_memory_log.memory import Principal, Relation, SyncMemory, SyncMemoryClient
from tests.amlog import Amlog

OWNER = ("--tenant", "acme", "--user", "42")


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    command = Amlog(tmp_path, capsys)
    monkeypatch.setenv("AMLOG_STORE", command.url)
    return command


@pytest.fixture
def me(amlog: Amlog) -> Generator[SyncMemory]:
    with open_sync_store(amlog.url) as store:
        memory = SyncMemoryClient(store).of(Principal("acme", {"user": "42"}))
        begin = datetime(2020, 1, 1, tzinfo=UTC)
        memory.remember(Relation("Ana", "works_at", "Acme\x1b[31m"), valid_from=begin)
        memory.remember(Relation("Bob", "works_at", "Acme\x1b[31m"))
        yield memory


def test_trace_shows_where_a_memory_comes_from(amlog: Amlog, me: SyncMemory) -> None:
    parent = me.add("Ana moved").record
    assert parent is not None
    child = me.add("Ana lives in Paris", causal_parent_id=parent.id).record
    assert child is not None
    me.delete(parent.id)
    text = amlog.ok("memory", "trace", child.id, *OWNER).out
    assert text.splitlines() == ["Ana lives in Paris", "  derived_from Ana moved (archived)"]
    result = amlog.ok("memory", "trace", child.id, *OWNER, "--json").json
    assert [(step["link"], step["of"], step["record"]["id"]) for step in result["steps"]] == [
        ("", "", child.id),
        ("derived_from", child.id, parent.id),
    ]
    assert "no memory 'nobody'" in amlog.error("memory", "trace", "nobody", *OWNER)


@pytest.mark.usefixtures("me")
def test_neighbours_and_paths_show_edges(amlog: Amlog) -> None:
    text = amlog.ok("memory", "neighbours", "ANA", *OWNER).out
    assert "\x1b" not in text
    assert text.split() == ["Ana", "works_at", r"Acme\x1b[31m", "from", "2020-01-01"]
    graph = amlog.ok("memory", "neighbours", "Ana", *OWNER, "--depth", "2", "--json").json
    assert [node["name"] for node in graph["nodes"]] == ["Ana", "Acme\x1b[31m", "Bob"]
    assert (len(graph["edges"]), graph["complete"]) == (2, True)
    assert "nothing is known" in amlog("memory", "neighbours", "Eva", *OWNER).err
    assert "--limit" in amlog("memory", "neighbours", "Ana", *OWNER, "--limit", "1").err
    paths = amlog.ok("memory", "paths", "Ana", "Bob", *OWNER, "--json").json["paths"]
    assert [[edge["source"] for edge in path] for path in paths] == [["entity:ana", "entity:bob"]]
    assert len(amlog.ok("memory", "paths", "Ana", "Bob", *OWNER).out.splitlines()) == 2
    assert "no path" in amlog("memory", "paths", "Ana", "Bob", *OWNER, "--as-of", "2019-01-01T00:00:00Z").err
    assert "--valid-at" in amlog.error("memory", "paths", "Ana", "Bob", *OWNER, "--valid-at", "soon", status=2)


@pytest.mark.usefixtures("me")
def test_graph_writes_both_formats(amlog: Amlog) -> None:
    graph = nx.read_graphml(BytesIO(amlog.ok("memory", "graph", *OWNER).out.encode()))
    assert {"Ana", "Bob"} <= {graph.nodes[node]["name"] for node in graph}
    lines = amlog.ok("memory", "graph", *OWNER, "--format", "ntriples").out.splitlines()
    assert all(line.startswith("<urn:agent-memory-log:") and line.endswith(" .") for line in lines)
