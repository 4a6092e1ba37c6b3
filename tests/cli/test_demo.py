"""The demo, as the process a person starts: it proves what it says, on a terminal and off one."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import msgspec

from agent_memory_log import UserMessage, new_event, open_store, open_sync_store
from agent_memory_log.cli.demo_checks import look_after_kill, prove_whole
from agent_memory_log.cli.demo_sample import sample_runs
from agent_memory_log.cli.demo_writer import Acknowledged
from tests.amlog import COLOUR, PATIENCE, run, run_on_terminal, start, without_codes

CHECKS = 10


def test_off_a_terminal_it_is_plain_and_all_holds(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'demo.db'}"
    ran = run("demo", "--store", url)
    assert (ran.status, ran.err) == (0, "")
    assert "\x1b" not in ran.out
    assert re.search(r"killed: process \d+, signal 9 after \d+ of 126 events", ran.out)
    assert len(re.findall(r"^✔", ran.out, re.MULTILINE)) == CHECKS
    assert "✔  chat messages come back the same" in ran.out
    with open_sync_store(url) as store:
        for one in sample_runs():
            assert [event.event_id for event in store.load_run(one.agent, one.run).log] == [
                event.event_id for event in one.events
            ]
    commands = re.findall(
        r"^   \S*(?:amlog|agent_memory_log\.cli) (\w.*?)  +", ran.out.split("Try next")[1], re.MULTILINE
    )
    assert [command.split()[0] for command in commands] == ["runs", "show", "export"]
    for command in commands[:2]:
        assert run(*command.split(), AMLOG_STORE=url).status == 0
    again = run("demo", "--store", url)
    assert again.status == 1
    assert again.err == "amlog: that store already holds the demo's runs: give it a new one\n"


def test_on_a_terminal_it_is_coloured(tmp_path: Path) -> None:
    ran = run_on_terminal("demo", TMPDIR=str(tmp_path))
    assert ran.status == 0
    assert COLOUR.search(ran.out)
    out = without_codes(ran.out)
    assert "126/126" in out
    assert len(re.findall(r"^ ✔ ", out, re.MULTILINE)) == CHECKS


def test_json(tmp_path: Path) -> None:
    ran = run("demo", "--json", "--store", f"sqlite:///{tmp_path / 'demo.db'}")
    assert ran.status == 0
    assert ran.json["ok"] is True
    assert len(ran.json["checks"]) == CHECKS
    assert all(one["ok"] for one in ran.json["checks"])


def test_a_store_that_dies_with_the_process_is_refused() -> None:
    ran = run("demo", "--store", "memory:")
    assert ran.status == 2
    assert "outlives" in ran.err


def test_an_interrupt_ends_it_and_its_writer(tmp_path: Path) -> None:
    process = start("demo", "--store", f"sqlite:///{tmp_path / 'demo.db'}")
    assert process.stdout is not None
    while b"1  A process appends" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (130, b"")


async def test_it_can_fail() -> None:
    runs = sample_runs()
    async with open_store("memory:") as store:
        for one in runs:
            await store.append_events(one.agent, one.run, *one.events, meta=one.meta)
        assert all(proof.ok for proof in await prove_whole(store, runs))
        first = runs[0]
        heard = [
            Acknowledged(first.agent, first.run, seq, event.event_id, event.type, inserted=True)
            for seq, event in enumerate(first.events, 1)
        ]
        lost = [*heard, msgspec.structs.replace(heard[0], event_id="lost")]
        moved = [msgspec.structs.replace(heard[0], seq=2), *heard[1:]]
        assert [proof.ok for proof in (await look_after_kill(store, runs[:1], heard)).proofs] == [True, True]
        assert [proof.ok for proof in (await look_after_kill(store, runs[:1], heard[:-1])).proofs] == [True, True]
        assert [proof.ok for proof in (await look_after_kill(store, runs[:1], heard[:-2])).proofs] == [False, True]
        assert [proof.ok for proof in (await look_after_kill(store, runs[:1], lost)).proofs] == [False, True]
        assert [proof.ok for proof in (await look_after_kill(store, runs[:1], moved)).proofs] == [False, True]

        await store.append_events(first.agent, first.run, new_event(UserMessage(message="stored twice")))
        assert [proof.ok for proof in (await look_after_kill(store, runs[:1], heard)).proofs] == [True, False]
        failed = [proof.check for proof in await prove_whole(store, runs) if not proof.ok]
        assert failed == ["every event is stored once, in order", "chat messages come back the same"]
