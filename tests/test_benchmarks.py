"""Tests that the benchmarks can write their document, and that each measured log stores its events."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_memory_log import Snapshot
from agent_memory_log.transcript import build, provider_names, validate
from benchmarks import __main__ as benchmarks
from benchmarks import workload
from benchmarks.peers import on_sqlite
from benchmarks.peers.__main__ import measure
from benchmarks.peers.contract import Peer, size_of
from benchmarks.peers.table import Cells, Comparison
from benchmarks.scratch import scratch
from benchmarks.table import write_section
from benchmarks.transcript import numbered_events

_DOCUMENT = Path(__file__).parent.parent / "docs" / "benchmarks.md"


def test_a_section_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    document = tmp_path / "page.md"
    document.write_text("before\n<!-- a -->\nold\n<!-- end of a -->\nafter\n")
    write_section(document, "a", ["new", "lines"])
    assert document.read_text() == "before\n<!-- a -->\nnew\nlines\n<!-- end of a -->\nafter\n"
    with pytest.raises(ValueError, match="no section 'b'"):
        write_section(document, "b", [])


def test_the_document_has_a_section_for_each_table(tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text(_DOCUMENT.read_text())
    names = [*benchmarks.groups(tmp_path, tmp_path), "bench of MongoDB", "peers on SQLite", "peers on MongoDB"]
    for name in names:
        write_section(document, name, [name])


@pytest.mark.parametrize("peer", [peer for peer in on_sqlite.PEERS if not peer.lacking], ids=lambda peer: peer.name)
def test_a_log_stores_its_events(peer: Peer, tmp_path: Path) -> None:
    with peer.open(tmp_path) as log:
        for events in (workload.events(1), workload.events(10)):
            log.append_each([log.messages(events)])
        assert log.load() == 11


@pytest.mark.parametrize("provider", provider_names())
def test_the_measured_transcript_is_valid(provider: str) -> None:
    events = numbered_events(provider, 100)
    assert validate(build(Snapshot("agent", "run", events, version=len(events)), provider), provider) == []


def test_a_table_of_libraries_is_written(tmp_path: Path) -> None:
    peers = on_sqlite.PEERS[:2]
    cells = measure(list(peers), lambda: scratch(tmp_path), size_of, 1)
    (tmp_path / "benchmarks.md").write_text("<!-- peers on SQLite -->\n<!-- end of peers on SQLite -->\n")
    Comparison("SQLite", peers, cells, ["a note"]).write(tmp_path)
    lines = (tmp_path / "benchmarks.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in lines[3:5]] == ["| raw sqlite3 (the floor)", "| agent-memory-log"]
    assert "**1.00** | **1.00** | **1.00**" in lines[3]
    assert (tmp_path / "benchmarks-peers-sqlite.svg").read_text().startswith("<svg")


def test_a_missing_module_is_named() -> None:
    assert Peer("a", ("json", "no_such_package.part"), "", on_sqlite.PEERS[0].open).lacking == "no_such_package.part"
    assert Cells.median([Cells(1, 2, 3, 4), Cells(3, 2, 1, 4), Cells(2, 2, 2, 4)]) == Cells(2, 2, 2, 4)
