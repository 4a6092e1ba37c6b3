"""Tests that need a process: pipes, signals, exit statuses, terminals, and the error without the ``cli`` extra."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len

from agent_memory_log import PlannerNote, ToolCall, UserMessage, open_sync_store
from tests.amlog import COLOUR, PATIENCE, append, environment, run, run_on_terminal, start, without_codes

HOSTILE = "\x1b[31mred\x1b[0m \x1b]0;title\x07 [red]markup[/red] :smile:\r\n   9  call  fake\u202e\x9b2J\x00"
INVISIBLE = "\xad \u200b \u200d \u200e \u2028 \u2060 \u2069 \ufeff \x85 \x9b \U000e0041 \U000e0100"
# The first line of ``HOSTILE`` as ``amlog`` prints it, without the line end.
ESCAPED = r"\x1b[31mred\x1b[0m \x1b]0;title\x07 [red]markup[/red] :smile:"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'runs.db'}"


def test_amlog_is_an_installed_program() -> None:
    program = Path(sys.executable).with_name("amlog")
    if not program.exists():
        pytest.skip("the package is not installed beside this interpreter")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.startswith("amlog ")


def test_error_names_the_missing_extra() -> None:
    for missing in ("typer", "rich"):
        code = (
            f"import sys; sys.modules[{missing!r}] = None; from agent_memory_log.cli.main import main; sys.exit(main())"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        expected = "amlog: the command line needs typer and rich: pip install 'agent-memory-log[cli]'\n"
        assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)


def test_command_does_not_import_other_commands(url: str) -> None:
    append(url, "a", "r", UserMessage(message="x"))
    code = (
        "import sys; from agent_memory_log.cli.main import main; status = main(['runs']); "
        "print([name for name in sys.modules if name.startswith("
        "('agent_memory_log.memory', 'agent_memory_log.secrets', 'agent_memory_log.cli.export', "
        "'agent_memory_log.service', 'httpx2'))]); sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
        env=environment(AMLOG_STORE=url),
    )
    assert done.stdout.endswith("\n[]\n")


class TestErrors:
    def test_error_is_one_line_with_a_status(self, tmp_path: Path) -> None:
        missing = run("runs", "--store", f"sqlite:///{tmp_path}/x.db")
        assert (missing.status, missing.out, missing.err.count("\n")) == (1, "", 1)
        usage = run("runs", "--nonsense")
        assert (usage.status, usage.out) == (2, "")
        assert usage.err == "amlog: No such option: --nonsense (see amlog runs --help)\n"
        unknown = run("nonsense")
        assert (unknown.status, unknown.err) == (2, "amlog: No such command 'nonsense' (see amlog --help)\n")
        suggestion = "amlog: No such command 'shwo'. Did you mean 'show'? (see amlog --help)\n"
        assert run("shwo").err == suggestion

    def test_debug_shows_the_traceback(self, tmp_path: Path) -> None:
        arguments = ("runs", "--store", f"sqlite:///{tmp_path}")
        assert "Traceback" not in run(*arguments).err
        for ran in (run(*arguments, "--debug"), run("--debug", *arguments), run(*arguments, AMLOG_DEBUG="1")):
            assert ran.status == 1
            assert "Traceback" in ran.err
            assert ran.err.splitlines()[-1].startswith("amlog: ")

    def test_error_escapes_quoted_text(self, url: str) -> None:
        append(url, "a", "r", PlannerNote(note="n"))
        assert "\x1b" not in run("show", "\x1b[31m", "--store", url).err
        assert run("show", "no\nrun", "--store", url).err.count("\n") == 1

    def test_full_disk_is_reported(self, url: str) -> None:
        append(url, "a", "r", PlannerNote(note="n"))
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "agent_memory_log.cli", "show", "r", "--store", url],
                stdout=full,
                stderr=subprocess.PIPE,
                check=False,
                timeout=PATIENCE,
                env=environment(),
            )
        assert (done.returncode, done.stderr) == (1, b"amlog: No space left on device\n")

    def test_command_works_without_standard_output(self, url: str) -> None:
        append(url, "a", "r", PlannerNote(note="n"))
        program = f"exec {sys.executable} -m agent_memory_log.cli show r --store {url} >&-"
        done = subprocess.run(["sh", "-c", program], stderr=subprocess.PIPE, check=False, timeout=PATIENCE)
        assert (done.returncode, done.stderr) == (0, b"")


class TestPipes:
    def test_piped_output_is_plain_and_complete(self, url: str) -> None:
        long = "word " * 5000
        append(url, "agent-" + "x" * 200, "run", UserMessage(message=long + "end"), PlannerNote(note="n"))
        output = run("show", "run", "--store", url)
        assert long + "end\n" in output.out
        listed = run("runs", "--store", url)
        assert "agent-" + "x" * 200 in listed.out
        for ran in (output, listed, run("stats", "--store", url), run("verify", "--store", url), run("--help")):
            assert "\x1b" not in ran.out
            assert ran.err == ""

    def test_show_ends_when_its_reader_leaves(self, url: str) -> None:
        append(url, "a", "r", *(UserMessage(message="x" * 1000) for _ in range(2000)))
        for extra in ([], ["--json"]):
            process = start("show", "r", "--store", url, *extra)
            assert process.stdout is not None
            assert process.stdout.readline()
            process.stdout.close()
            assert process.stderr is not None
            assert process.stderr.read() == b""
            process.stderr.close()
            assert process.wait(PATIENCE) == 141

    def test_export_ends_when_its_reader_leaves(self, url: str) -> None:
        append(url, "a", "r", *(UserMessage(message="x" * 1000) for _ in range(2000)))
        process = start("export", "--all", "--store", url)
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait(PATIENCE) == 141

    def test_import_reads_standard_input(self, url: str) -> None:
        chat = b'{"messages":[{"role":"user","content":"hi"}]}\n'
        ran = run("import", "openai-chat", "-", "--agent", "a", "--store", url, stdin=chat)
        assert (ran.status, ran.out) == (0, "✔ imported 1 event into a/stdin-0001\n")
        exported = run("export", "--all", "--store", url).out
        again = run("import", "jsonl", "-", "--store", url, "--json", stdin=exported.encode())
        assert (again.json["read"], again.json["inserted"]) == (1, 0)

    def test_output_escapes_characters_that_the_encoding_lacks(self, url: str) -> None:
        append(url, "a", "r", UserMessage(message="日本 ✔"), ToolCall("1", "t"))
        ran = run("show", "r", "--store", url, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
        assert (ran.status, ran.err) == (0, "")
        assert r"\u65e5\u672c \u2714" in ran.out

    def test_json_keeps_its_values_in_an_ascii_encoding(self, url: str) -> None:
        append(url, "a", "r", UserMessage(message="é 日本 😀"))
        for command in (("show", "r", "--json"), ("export", "r")):
            ran = run(*command, "--store", url, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
            assert "é 日本 😀" in str([msgspec.json.decode(line) for line in ran.out.splitlines()])

    def test_table_aligns_wide_characters(self, url: str) -> None:
        append(url, "日本", "r", UserMessage(message="hi"))
        append(url, "ab", "r", UserMessage(message="hi"))
        lines = run("runs", "--store", url).out.splitlines()
        assert len({cell_len(line[: line.rindex(" 1 ")]) for line in lines[1:]}) == 1

    def test_hostile_text_stays_on_its_line(self, url: str) -> None:
        append(url, "a", "r", UserMessage(message=HOSTILE), meta={"k\x1b[2J": HOSTILE})
        out = run("show", "r", "--store", url).out
        assert len(out.splitlines()) == 4
        assert ESCAPED in out
        assert all(char.isprintable() or char == "\n" for char in out + run("runs", "--store", url).out)

    def test_json_keeps_the_value_of_hostile_text(self, url: str) -> None:
        append(url, "a", "r", UserMessage(message=HOSTILE))
        ran = run("show", "r", "--store", url, "--json")
        assert all(char.isprintable() or char == "\n" for char in ran.out)
        assert ran.json_lines[0]["data"]["message"] == HOSTILE


class TestTail:
    def test_tail_shows_stored_and_new_events_until_interrupted(self, url: str) -> None:
        append(url, "a", "r", UserMessage(message="one"), UserMessage(message="two"))
        process = start("tail", "r", "--store", url)
        assert process.stdout is not None
        assert b"one" in process.stdout.readline()
        assert b"two" in process.stdout.readline()
        append(url, "a", "r", UserMessage(message="three"))
        assert b"three" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE) == (b"", b"")
        assert process.returncode == 130

    def test_tail_follows_a_future_run_after_a_seq(self, url: str) -> None:
        append(url, "a", "other", PlannerNote(note="n"))
        process = start("tail", "a/later", "--store", url, "--json")
        assert process.stdout is not None
        append(url, "a", "later", UserMessage(message="first"))
        assert b'"message":"first"' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        process = start("tail", "a/later", "--store", url, "--json", "--after", "1")
        assert process.stdout is not None
        append(url, "a", "later", UserMessage(message="second"))
        assert b'"message":"second"' in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)

    def test_tail_ends_when_its_reader_leaves(self, url: str) -> None:
        append(url, "a", "r", UserMessage(message="one"))
        process = start("tail", "r", "--store", url)
        assert process.stdout is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()

    def test_tail_reports_a_deleted_run(self, url: str) -> None:
        append(url, "a", "r", UserMessage(message="one"))
        process = start("tail", "r", "--store", url)
        assert process.stdout is not None
        assert process.stdout.readline()
        with open_sync_store(url) as store:
            store.delete_run("a", "r")
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1
        assert err.startswith(b"amlog: ")
        assert b"deleted" in err
        assert err.count(b"\n") == 1


class TestTerminal:
    def test_timeline_is_coloured_and_fits_the_terminal(self, url: str) -> None:
        append(url, "a", "r", UserMessage(message="long " * 200), ToolCall("1", "find", payload_json="{}"))
        ran = run_on_terminal("show", "r", "--store", url, columns=70)
        assert ran.status == 0
        assert COLOUR.search(ran.out)
        lines = without_codes(ran.out).splitlines()
        assert max(map(len, lines)) <= 70
        assert any(line.endswith("…") for line in lines)
        assert any("open: no result yet" in line for line in lines)
        full = without_codes(run_on_terminal("show", "r", "--full", "--store", url, columns=70).out)
        assert full.count("long") == 200

    def test_no_color_turns_colours_off(self, url: str) -> None:
        append(url, "a", "r", UserMessage(message="hi"))
        for command in (["show", "r"], ["runs"], ["verify"]):
            ran = run_on_terminal(*command, "--store", url, NO_COLOR="1")
            assert ran.status == 0
            assert not COLOUR.search(ran.out)

    def test_terminal_output_escapes_hostile_text(self, url: str) -> None:
        append(url, "a", "r", UserMessage(message=HOSTILE), PlannerNote(note="n"), meta={"k": HOSTILE})
        for command in (["show", "r"], ["show", "r", "--full"], ["runs"]):
            out = run_on_terminal(*command, "--store", url, NO_COLOR="1", columns=200).out
            assert ESCAPED in out
            assert all(char.isprintable() or char in "\r\n" for char in out)
        lines = run_on_terminal("show", "r", "--full", "--store", url, NO_COLOR="1").out.splitlines()
        assert any(line.endswith(r"   9  call  fake\u202e\x9b2J\x00") and line.startswith(" " * 16) for line in lines)

    def test_terminal_output_escapes_invisible_characters(self, url: str) -> None:
        append(url, f"agent{INVISIBLE}", "r", UserMessage(message=INVISIBLE), meta={"k": INVISIBLE})
        escaped = INVISIBLE.encode("unicode_escape").decode()
        for command in (["show", "r"], ["runs"]):
            out = run_on_terminal(*command, "--store", url, NO_COLOR="1", columns=600).out
            assert escaped in out
            assert all(char.isprintable() or char in "\r\n" for char in out)

    @pytest.mark.parametrize("command", [["export", "r"], ["export", "r", "--to", "atif"], ["show", "r", "--json"]])
    def test_json_on_a_terminal_is_escaped_and_keeps_its_values(self, url: str, command: list[str]) -> None:
        text = INVISIBLE + "\x1b[2J"
        append(url, "a", "r", UserMessage(message=text))
        # A dumb terminal cannot move its cursor, but it still obeys other control characters.
        out = run_on_terminal(*command, "--store", url, TERM="dumb").out
        assert all(char.isprintable() or char in "\r\n" for char in out)
        lines = [out] if "atif" in command else out.splitlines()
        assert repr(text) in str([msgspec.json.decode(line) for line in lines])

    def test_traceback_escapes_hostile_text(self, url: str) -> None:
        append(url, "a", "r", PlannerNote(note="n"))
        assert "\x9b" not in run("show", "\x9b2J\u200b", "--store", url, "--debug").err

    def test_progress_bar_is_removed_at_the_end(self, url: str) -> None:
        append(url, "a", "r", *(PlannerNote(note="n") for _ in range(1000)))
        out = run_on_terminal("verify", "--store", url).out
        assert "verifying" in out
        assert "\x1b[2K" in out
        assert "1 run, 1,000 events: 0 errors" in without_codes(out)

    @pytest.mark.parametrize(("answer", "status", "runs_left"), [("n\n", 1, 1), ("\n", 1, 1), ("y\n", 0, 0)])
    def test_delete_asks_on_a_terminal(self, url: str, answer: str, status: int, runs_left: int) -> None:
        append(url, "a", "r", PlannerNote(note="n"))
        ran = run_on_terminal("delete", "r", "--store", url, answer=answer)
        assert ran.status == status
        assert "Delete a/r with 1 event permanently? [y/N]:" in without_codes(ran.out)
        with open_sync_store(url) as store:
            assert len(store.list_runs().runs) == runs_left

    def test_redact_asks_on_a_terminal(self, url: str) -> None:
        append(url, "a", "r", PlannerNote(note="secret"))
        ran = run_on_terminal("redact", "r", "1", "--store", url, answer="y\n")
        assert ran.status == 0
        assert "Redact 1 event (1) of a/r permanently? [y/N]:" in without_codes(ran.out)
        assert "secret" not in run("show", "r", "--store", url).out

    def test_help_is_drawn_on_a_terminal(self) -> None:
        out = without_codes(run_on_terminal("--help").out)
        assert "╭─ Inspect" in out
        assert "Show a run as a timeline." in out

    def test_end_of_input_does_not_confirm_delete(self, url: str) -> None:
        append(url, "a", "r", PlannerNote(note="n"))
        ran = run_on_terminal("delete", "r", "--store", url, answer="\x04")
        assert ran.status == 1
        assert "Traceback" not in ran.out
