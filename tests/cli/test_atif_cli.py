"""Tests of ``amlog import atif``, ``amlog export --to atif`` and ``--to otel``, and of ``docs/interchange.md``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import atif
import msgspec
import pytest

from agent_memory_log import ToolCall, ToolResult, UserMessage
from tests.amlog import Amlog
from tests.documents import blocks_of, run_blocks

DEMO = "ops-agent/2026-03-06-slow-checkout"
DOCUMENT: dict[str, Any] = {"schema_version": "ATIF-v1.8", "agent": {"name": "theirs", "version": "1"}, "steps": []}
STEP = {"step_id": 1, "source": "user", "message": "Hi"}


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    command = Amlog(tmp_path, capsys)
    monkeypatch.setenv("AMLOG_STORE", command.url)
    monkeypatch.delenv("AMLOG_DEBUG", raising=False)
    return command


def trajectory(**fields: Any) -> bytes:
    return msgspec.json.encode({**DOCUMENT, "steps": [STEP], **fields})


class TestAtif:
    def test_export_and_import_give_the_same_store(self, amlog: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
        amlog.load_samples()
        target = str(amlog.folder / "demo.json")
        assert amlog.ok("export", DEMO, "--to", "atif", "-o", target).out == ""
        atif.Trajectory.model_validate_json(Path(target).read_text())
        before = amlog.ok("export", DEMO).out
        monkeypatch.setenv("AMLOG_STORE", f"sqlite:///{amlog.folder / 'other.db'}")
        assert amlog.ok("import", "atif", target).out == f"✔ imported 45 events into {DEMO}\n"
        assert amlog.ok("export", DEMO).out == before
        assert amlog.ok("import", "atif", target, "--json").json["inserted"] == 0

    def test_export_returns_the_imported_foreign_document(self, amlog: Amlog) -> None:
        inner = {**DOCUMENT, "trajectory_id": "t", "steps": [{**STEP, "message": "inner"}]}
        document = trajectory(session_id="s", subagent_trajectories=[inner], notes="n")
        ran = amlog.ok("import", "atif", amlog.file("one.json", document), "--json")
        assert [run["name"] for run in ran.json["runs"]] == ["theirs/s", "theirs/s:t"]
        assert amlog.ok("export", "s", "--to", "atif").json == msgspec.json.decode(document)

    def test_runs_without_a_name_get_the_file_name(self, amlog: Amlog) -> None:
        files = [amlog.file("one.json", trajectory()), amlog.file("two.json", trajectory(trajectory_id="t"))]
        ran = amlog.ok("import", "atif", *files, "--agent", "mine", "--json")
        assert [run["name"] for run in ran.json["runs"]] == ["mine/one", "mine/t"]

    def test_export_includes_the_runs_of_sub_agents(self, amlog: Amlog) -> None:
        amlog.append("a", "outer", ToolCall("c", "ask"), ToolResult("c", "ask", result_json="1"))
        amlog.append("b", "inner", UserMessage("x"), meta={"parent_run": {"agent": "a", "run": "outer"}})
        amlog.append("b", "deeper", UserMessage("y"), meta={"parent_run": {"agent": "b", "run": "inner"}})
        document = amlog.ok("export", "outer", "--to", "atif").json
        (inner,) = document["subagent_trajectories"]
        assert [run["trajectory_id"] for run in inner["subagent_trajectories"]] == ["b/deeper"]

    def test_no_server_data_leaves_out_server_data(self, amlog: Amlog) -> None:
        amlog.append("a", "r", ToolCall("c", "f"), ToolResult("c", "f", server_data='"theirs alone"'))
        assert "theirs alone" in amlog.ok("export", "r", "--to", "atif").out
        assert "theirs alone" not in amlog.ok("export", "r", "--to", "atif", "--no-server-data").out

    def test_error_names_an_invalid_file_and_stores_nothing(self, amlog: Amlog) -> None:
        good, bad = amlog.file("good.json", trajectory()), amlog.file("bad.json", trajectory(steps=[7]))
        message = amlog.error("import", "atif", good, bad)
        assert message == f"{bad}: trajectory.steps[0]: expected `object`, got `int`"
        assert amlog.error("import", "atif", amlog.file("no.json", "{")).startswith(
            f"{amlog.folder}/no.json is not JSON"
        )
        assert amlog.error("import", "atif", amlog.file("list.json", "[]")).endswith("must be a map, got list []")
        assert not (amlog.folder / "runs.db").exists()

    def test_import_refuses_a_document_without_steps(self, amlog: Amlog) -> None:
        assert "nothing to import" in amlog.error("import", "atif", amlog.file("x.json", trajectory(steps=[])))


class TestSpans:
    def test_export_writes_one_line_of_otlp(self, amlog: Amlog) -> None:
        amlog.load_samples()
        (line,) = amlog.ok("export", DEMO, "--to", "otel").json_lines
        spans = line["resourceSpans"][0]["scopeSpans"][0]["spans"]
        assert spans[0]["name"] == "invoke_agent ops-agent"
        assert len(spans) == 13
        assert amlog.ok("export", DEMO, "--to", "otel").json_lines == [line]

    def test_export_writes_content_only_on_request(self, amlog: Amlog) -> None:
        amlog.append("a", "r", UserMessage("what I said"))
        assert "what I said" not in amlog.ok("export", "r", "--to", "otel").out
        assert "what I said" in amlog.ok("export", "r", "--to", "otel", "--content").out

    def test_error_names_the_missing_extra(self, amlog: Amlog, monkeypatch: pytest.MonkeyPatch) -> None:
        amlog.append("a", "r", UserMessage("x"))
        monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.json.file.trace_exporter", None)
        assert "agent-memory-log[otel]" in amlog.error("export", "r", "--to", "otel")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--all", "--to", "atif"),
        ("--agent", "a", "--to", "otel"),
        ("r", "--content"),
        ("r", "--to", "atif", "--content"),
        ("r", "--to", "otel", "--no-server-data"),
        ("r", "--to", "csv"),
    ],
)
def test_export_refuses_contradictory_options(amlog: Amlog, arguments: tuple[str, ...]) -> None:
    amlog.append("a", "r", UserMessage("x"))
    assert "--" in amlog.error("export", *arguments, status=2)


def test_examples_of_the_interchange_page_run(tmp_path: Path) -> None:
    assert len(run_blocks(blocks_of("docs/interchange.md"), tmp_path, AMLOG_STORE="sqlite:///runs.db")) == 4
