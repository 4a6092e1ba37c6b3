"""Tests of ``amlog demo`` as a process, on a terminal and in a pipe."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agent_memory_log import Event, UserMessage, new_event, open_store, open_sync_store
from agent_memory_log.cli.demo import check_survival, check_whole
from agent_memory_log.cli.demo_writer import Acknowledged, sample_run
from tests.amlog import COLOUR, PATIENCE, environment, run, run_on_terminal, start, without_codes

CHECKS = 8


def test_demo_output_is_plain_and_all_checks_pass(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'demo.db'}"
    ran = run("demo", "--store", url)
    assert (ran.status, ran.err) == (0, "")
    assert "\x1b" not in ran.out
    assert re.search(r"killed: process \d+, signal 9 after \d+ of 45 events", ran.out)
    assert len(re.findall(r"^✔", ran.out, re.MULTILINE)) == CHECKS
    assert "✔  export, import, export: same bytes" in ran.out
    sample = sample_run()
    with open_sync_store(url) as store:
        stored = [event.event_id for event in store.load_run(sample.agent, sample.run).log]
    assert stored == [event.event_id for event in sample.events]
    commands = re.findall(
        r"^   \S+(?: -m agent_memory_log\.cli)? (\w.*?)  +", ran.out.split("Try next")[1], re.MULTILINE
    )
    assert [command.split()[0] for command in commands] == ["runs", "show", "export"]
    for command in commands[:2]:
        assert run(*command.split(), AMLOG_STORE=url).status == 0
    again = run("demo", "--store", url)
    assert again.status == 1
    assert again.err == "amlog: the store already contains the demo's run: give an empty store\n"


def test_demo_uses_colours_on_a_terminal(tmp_path: Path) -> None:
    ran = run_on_terminal("demo", TMPDIR=str(tmp_path))
    assert ran.status == 0
    assert COLOUR.search(ran.out)
    out = without_codes(ran.out)
    assert "appending" in out
    assert len(re.findall(r"^ ✔ ", out, re.MULTILINE)) == CHECKS


def test_demo_json_lists_all_checks(tmp_path: Path) -> None:
    ran = run("demo", "--json", "--store", f"sqlite:///{tmp_path / 'demo.db'}")
    assert ran.status == 0
    assert ran.json["ok"] is True
    assert len(ran.json["checks"]) == CHECKS
    assert all(check["ok"] for check in ran.json["checks"])


def test_demo_refuses_a_store_in_memory() -> None:
    ran = run("demo", "--store", "memory:")
    assert ran.status == 2
    assert "outlives" in ran.err


def test_writer_names_an_error_of_the_store(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "agent_memory_log.cli.demo_writer", "0"],
        env=environment(AMLOG_STORE=f"sqlite:///{tmp_path}"),
        capture_output=True,
        check=False,
        timeout=PATIENCE,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (1, f"amlog: {tmp_path} is a folder; name a file in it\n")


def test_interrupt_ends_the_demo_and_its_writer(tmp_path: Path) -> None:
    process = start("demo", "--store", f"sqlite:///{tmp_path / 'demo.db'}")
    assert process.stdout is not None
    while b"1  A process appends" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, b"")


async def test_checks_detect_lost_moved_and_changed_events() -> None:
    sample = sample_run()
    async with open_store("memory:") as store:
        await store.append_events(sample.agent, sample.run, *sample.events, meta=sample.meta)
        assert all(check.ok for check in await check_whole(store, sample))
        stored = (await store.load_run(sample.agent, sample.run)).log
        all_lines = [Acknowledged(event.seq, event.event_id, inserted=True) for event in stored]
        lost = [*all_lines, msgspec.structs.replace(all_lines[0], event_id="lost")]
        moved = [msgspec.structs.replace(all_lines[0], seq=2), *all_lines[1:]]

        def survived(acknowledged: list[Acknowledged], stored: Sequence[Event] = stored) -> list[bool]:
            return [check.ok for check in check_survival(sample.events, stored, acknowledged)]

        assert survived(all_lines) == [True, True]
        assert survived(all_lines[:-1]) == [True, True]
        assert survived(all_lines[:-2]) == [False, True]
        assert survived(lost) == [False, True]
        assert survived(moved) == [False, True]
        other = msgspec.structs.replace(stored[0], data=UserMessage(message="cut"))
        assert survived(all_lines, [other, *stored[1:]]) == [True, False]

        await store.append_events(sample.agent, sample.run, new_event(UserMessage(message="stored twice")))
        assert survived(all_lines, (await store.load_run(sample.agent, sample.run)).log) == [True, False]
        failed = [check.check for check in await check_whole(store, sample) if not check.ok]
        assert failed == ["every event is stored once, in order"]
