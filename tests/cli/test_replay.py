"""Tests of the commands that replay, compare and fork runs, and show their turns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent_memory_log import PlannerNote, SystemMessage, ToolCall, ToolResult, UserMessage, open_sync_store
from agent_memory_log.transcript import build, provider_names, repair, request, validate
from agent_memory_log.transcript.providers import find_provider
from tests.amlog import COLOUR, Amlog, run, run_on_terminal, without_codes


@pytest.fixture
def amlog(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Amlog:
    command = Amlog(tmp_path, capsys)
    monkeypatch.setenv("AMLOG_STORE", command.url)
    monkeypatch.delenv("AMLOG_DEBUG", raising=False)
    return command


ORDERS = [
    SystemMessage("Be kind."),
    UserMessage("Where is my order?"),
    ToolCall("t1", "orders.find", payload_json='{"id": 7}'),
    ToolResult("t1", "orders.find", result_json='"' + "x" * 100 + '"'),
    UserMessage("And the other one?"),
    ToolCall("t2", "orders.find", payload_json='{"id": 8}'),
]


@pytest.fixture
def orders(amlog: Amlog) -> Amlog:
    amlog.append("a", "r", *ORDERS)
    return amlog


class TestReplay:
    @pytest.mark.parametrize("provider", provider_names())
    def test_replay_writes_the_same_as_the_library(self, orders: Amlog, provider: str) -> None:
        with open_sync_store(orders.url) as store:
            snapshot = store.load_run("a", "r")
        assert orders.ok("replay", "r", "--to", provider).json == build(snapshot, provider)
        small = build(snapshot, provider, max_result_bytes=50)
        assert orders.ok("replay", "r", "--to", provider, "--max-result-bytes", "50").json == small
        assert orders.ok("replay", "a/r", "--to", provider, "--request").json == request(snapshot, provider)
        repaired = orders.ok("replay", "r", "--to", provider, "--repair").json
        assert repaired == repair(build(snapshot, provider), provider).transcript
        assert validate(build(snapshot, provider), provider)
        assert not validate(repaired, provider)
        both = orders.ok("replay", "r", "--to", provider, "--repair", "--request").json
        key = find_provider(provider).messages_key
        assert both.keys() == request(snapshot, provider).keys()
        assert not validate(both[key], provider)

    def test_replay_refuses_an_unknown_provider_or_run(self, orders: Amlog) -> None:
        assert "choose one of anthropic" in orders.error("replay", "r", "--to", "other", status=2)
        assert "no run a/none" in orders.error("replay", "a/none", "--to", "bedrock")
        assert "'--to'" in orders.error("replay", "r", status=2)

    def test_terminal_shows_lost_and_invalid_parts(self, orders: Amlog) -> None:
        arguments = ("replay", "r", "--to", "anthropic", "--max-result-bytes", "50")
        output = without_codes(run_on_terminal(*arguments, AMLOG_STORE=orders.url).out)
        assert "left out: size_limit: event 4: " in output
        assert "invalid: unanswered_call: event 6: " in output
        output = without_codes(run_on_terminal(*arguments, "--repair", AMLOG_STORE=orders.url).out)
        assert "repaired: answered_call: event 6: " in output
        assert "invalid" not in output

    def test_replay_in_a_pipe_writes_no_remarks(self, orders: Amlog) -> None:
        ran = run("replay", "r", "--to", "anthropic", "--max-result-bytes", "50", AMLOG_STORE=orders.url)
        assert (ran.status, ran.err) == (0, "")
        assert ran.json[0] == {"role": "user", "content": "Where is my order?"}


class TestDiff:
    def test_diff_of_equal_runs_counts_their_events(self, orders: Amlog) -> None:
        orders.append("a", "again", *ORDERS)
        assert orders.ok("diff", "r", "again").out == "✔ a/r and a/again are equal: 6 events\n"
        output = orders.ok("diff", "r", "again", "--json").json
        assert output == {"same": True, "common": 6, "a": None, "b": None, "differences": []}

    def test_diff_shows_the_first_difference(self, orders: Amlog) -> None:
        orders.append("a", "other", *ORDERS[:2], ToolCall("t9", "orders.find", payload_json='{"id": 9, "x": 1}'))
        ran = orders("diff", "r", "a/other")
        assert (ran.status, ran.err) == (1, "")
        assert ran.out.splitlines() == [
            "a/r and a/other differ after 2 events",
            '- a/r  #3  call  orders.find  {"id": 7}',
            '+ a/other  #3  call  orders.find  {"id": 9, "x": 1}',
            "  payload.id: - 7, + 9",
            "  payload.x: - nothing, + 1",
        ]
        output: Any = orders("diff", "r", "other", "--json")
        assert (output.status, output.err) == (1, "")
        assert (output.json["same"], output.json["common"]) == (False, 2)
        assert (output.json["a"]["seq"], output.json["b"]["data"]["tool_call_id"]) == (3, "t9")
        assert output.json["differences"] == [{"path": "payload.id", "a": 7, "b": 9}, {"path": "payload.x", "b": 1}]

    def test_diff_shows_a_run_that_ends_earlier(self, orders: Amlog) -> None:
        orders.append("a", "short", *ORDERS[:5])
        ran = orders("diff", "short", "r")
        assert ran.status == 1
        assert "- a/short  ends here\n" in ran.out
        assert orders("diff", "short", "r", "--json").json["a"] is None

    def test_diff_shortens_long_texts_around_the_difference(self, amlog: Amlog) -> None:
        amlog.append("a", "one", UserMessage("x" * 10_000 + "left" + "x" * 10_000))
        amlog.append("a", "two", UserMessage("x" * 10_000 + "right" + "x" * 10_000))
        ran = amlog("diff", "one", "two")
        assert ran.status == 1
        assert "- a/one  #1  user  xxxx" in ran.out
        assert "left" in ran.out
        assert "right" in ran.out
        assert len(ran.out) < 2_000

    def test_diff_counts_the_differences_it_does_not_show(self, amlog: Amlog) -> None:
        amlog.append("a", "one", PlannerNote("n"), UserMessage("x", [*range(1000)]))
        amlog.append("a", "two", PlannerNote("n"), UserMessage("x", [*range(1, 1001)]))
        ran = amlog("diff", "one", "two")
        assert ran.out.endswith(" more\n")
        assert len(ran.out.splitlines()) < 50
        assert len(amlog("diff", "one", "two", "--json").json["differences"]) == 1000

    def test_diff_refuses_a_missing_run(self, orders: Amlog) -> None:
        assert "no run 'none'" in orders.error("diff", "r", "none")
        assert "no run a/none" in orders.error("diff", "a/none", "r")

    def test_diff_uses_colours_only_on_a_terminal(self, orders: Amlog) -> None:
        orders.append("a", "short", *ORDERS[:5])
        output = run_on_terminal("diff", "r", "short", AMLOG_STORE=orders.url)
        assert output.status == 1
        assert COLOUR.search(output.out)
        assert "differ after 5 events" in without_codes(output.out)
        piped = run("diff", "r", "short", AMLOG_STORE=orders.url)
        assert (piped.status, COLOUR.search(piped.out)) == (1, None)

    def test_diff_escapes_logged_text(self, amlog: Amlog) -> None:
        amlog.append("a", "one", PlannerNote("\x1b[31m"))
        amlog.append("a", "two", PlannerNote("\x1b[32m"))
        assert "\x1b" not in amlog("diff", "one", "two").out


class TestFork:
    def test_fork_creates_a_run_that_names_its_origin(self, orders: Amlog) -> None:
        assert orders.ok("fork", "r", "--at", "4", "r-2").out == "✔ a/r-2 begins with 4 events of a/r\n"
        assert orders.ok("fork", "a/r", "--at", "4", "a/r-2").out == "✔ nothing new: a/r-2 is already this fork\n"
        runs = {run_map["run"]: run_map for run_map in orders.ok("runs", "--json").json["runs"]}
        assert runs["r-2"]["meta"] == {"forked_from": {"agent": "a", "run": "r", "seq": 4}}
        assert runs["r-2"]["version"] == 4
        forked = orders.ok("show", "r-2", "--json").json_lines
        assert forked == orders.ok("show", "r", "--json").json_lines[:4]
        assert orders("diff", "r", "r-2", "--json").json["common"] == 4

    def test_fork_json_describes_the_new_run(self, orders: Amlog) -> None:
        output = orders.ok("fork", "r", "--at", "2", "x%2Fy", "--json").json
        assert output == {"name": "a/x%2Fy", "agent": "a", "run": "x/y", "version": 2, "events": 2, "inserted": 2}

    def test_fork_refuses_invalid_arguments(self, orders: Amlog) -> None:
        assert "a/r has seqs 1 to 6, but at is 7" in orders.error("fork", "r", "--at", "7", "new")
        assert "call it a/new" in orders.error("fork", "r", "--at", "2", "b/new", status=2)
        assert "new_run is the same as run (a/r)" in orders.error("fork", "r", "--at", "2", "r")
        assert "holds no events" in orders.error("fork", "a/none", "--at", "2", "new")
        orders.append("a", "there", PlannerNote("x"))
        assert "a/there already exists" in orders.error("fork", "r", "--at", "2", "there")
        assert "--at" in orders.error("fork", "r", "--at", "0", "new", status=2)


class TestTurns:
    def test_every_turn_has_a_heading(self, orders: Amlog) -> None:
        lines = orders.ok("show", "r", "--turns").out.splitlines()
        headings = [line for line in lines if line.startswith("turn ")]
        assert headings == ["turn 1   events 1-4, 1 tool call", "turn 2   events 5-6, 1 tool call, 1 open"]
        first, second = (lines.index(heading) for heading in headings)
        assert [line.split()[0] for line in lines[first + 1 : first + 5]] == ["1", "2", "3", "4"]
        assert [line.split()[0] for line in lines[second + 1 : second + 3]] == ["5", "6"]

    def test_late_result_is_shown_below_its_call(self, amlog: Amlog) -> None:
        late = [UserMessage("x"), ToolCall("t", "slow"), UserMessage("y"), ToolResult("t", "slow", result_json="1")]
        amlog.append("a", "late", *late)
        out = amlog.ok("show", "late", "--turns").out
        assert "answers no open call" not in out
        order = [line.split()[0] for line in out.splitlines() if line.strip()][1:]
        assert order[:7] == ["turn", "1", "2", "4", "turn", "3", "1"]

    def test_turns_json_has_a_line_for_each_turn(self, orders: Amlog) -> None:
        first_turn, second_turn = orders.ok("show", "r", "--turns", "--json").json_lines
        events = orders.ok("show", "r", "--json").json_lines
        assert first_turn == {
            "turn": 1,
            "first_seq": 1,
            "last_seq": 4,
            "tool_calls": 1,
            "open_tool_calls": 0,
            "events": events[:4],
        }
        assert (
            second_turn["turn"],
            second_turn["first_seq"],
            second_turn["open_tool_calls"],
            second_turn["events"],
        ) == (2, 5, 1, events[4:])

    def test_turns_are_shown_in_order_on_a_terminal(self, orders: Amlog) -> None:
        output = without_codes(run_on_terminal("show", "r", "--turns", AMLOG_STORE=orders.url).out)
        assert output.index("turn 1") < output.index("Where is my order?") < output.index("turn 2")
        assert output.index("turn 2") < output.index("And the other one?")

    def test_run_without_user_messages_is_one_turn(self, amlog: Amlog) -> None:
        amlog.append("a", "r", PlannerNote("x"))
        assert "turn 1   event 1\n" in amlog.ok("show", "r", "--turns").out

    @pytest.mark.parametrize("option", [("--type", "tool_call"), ("--after", "1"), ("--limit", "1")])
    def test_turns_refuses_options_that_select_events(self, orders: Amlog, option: tuple[str, str]) -> None:
        assert "--turns shows the whole run" in orders.error("show", "r", "--turns", *option, status=2)
