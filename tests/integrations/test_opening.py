from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log import UserMessage, new_event, open_store, open_sync_store
from agent_memory_log.errors import InvalidArgument, StoreClosed
from agent_memory_log.integrations.names import joined_id
from agent_memory_log.integrations.opening import StoreOwner, needs_extra
from tests.integrations.frameworks import needs


def test_owner_closes_the_store_that_it_opened(tmp_path: Path) -> None:
    with StoreOwner(f"sqlite:///{tmp_path}/runs.db") as owner:
        owner.store.append_events("agent", "run", new_event(UserMessage(message="hello")))
    owner.close()
    with pytest.raises(StoreClosed):
        owner.store.load_run("agent", "run")


async def test_owner_leaves_an_open_store_open() -> None:
    with open_sync_store("memory:") as store:
        async with StoreOwner(store) as owner:
            assert owner.store is store
        assert store.load_run("agent", "run").version == 0


async def test_owner_refuses_another_value(tmp_path: Path) -> None:
    async with open_store("memory:") as store:
        with closing(sqlite3.connect(":memory:")) as connection:
            for value in (None, tmp_path / "runs.db", connection, store):
                with pytest.raises(InvalidArgument, match="expected the URL of a store or an open SyncStore, got "):
                    StoreOwner(cast("Any", value))


def test_a_missing_framework_names_the_command() -> None:
    message = r"No module named 'no_such_framework'.*pip install 'agent-memory-log\[some-extra\]'"
    with pytest.raises(ImportError, match=message) as caught, needs_extra("some-extra"):
        import no_such_framework  # type: ignore[import-not-found]  # noqa: F401, PLC0415  # pyright: ignore[reportMissingImports, reportUnusedImport]  # it must be missing
    assert caught.value.name == "no_such_framework"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=needs(name.replace("_", "-")))
        for name in ("anthropic_memory", "claude_agent", "langgraph", "openai_agents", "pydantic_ai")
    ],
)
def test_an_integration_needs_no_other_extra(name: str) -> None:
    blocked = "for name in ('numpy', 'babel', 'Stemmer', 'stop_words', 'pymongo', 'typer'): sys.modules[name] = None"
    program = f"import sys\n{blocked}\nimport agent_memory_log.integrations.{name}"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_ids_are_readable_and_short_enough() -> None:
    assert joined_id("thread", "user/42", "") == "thread/user%2F42/"
    assert len(joined_id("thread", "x" * 512)) == 512


PARTS = st.lists(st.text(alphabet="/%~25Fa\x00\ud800", max_size=4) | st.text("ab", min_size=600, max_size=602))


@given(PARTS, PARTS)
def test_different_parts_give_different_ids(first: list[str], second: list[str]) -> None:
    assert len(joined_id("x", *first)) <= 512
    assert (joined_id("x", *first) == joined_id("x", *second)) == (first == second)
