"""Tests that the tables of the secret finder are well formed and are read at first use."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import chain

from agent_memory_log.secrets.parts import compiled, words
from agent_memory_log.secrets.rules import Rule, names, phrase_rules, token_rules
from agent_memory_log.tables import read_table
from tests.processes import ROOT

_MODULE = compiled.__module__
SECRETS = ROOT / "agent_memory_log" / "secrets"


def duplicates(entries: Iterable[object]) -> list[object]:
    return [entry for entry, count in Counter(entries).items() if count > 1]


def test_rules_are_unique() -> None:
    rules: list[Rule] = [*token_rules(), *phrase_rules(), *chain.from_iterable(names().values())]
    assert not duplicates(rules)


def test_hints_and_names_are_lower_case() -> None:
    hints = [rule.hint for rule in phrase_rules()] + list(names())
    assert [hint for hint in hints if not hint or hint != hint.lower()] == []


def test_words_are_sorted_unique_and_lower_case() -> None:
    for groups in read_table(_MODULE, "words").values():
        listed = [text.split() for text in groups.values()]
        assert listed == [sorted(group) for group in listed]
        assert not duplicates(chain.from_iterable(listed))
    assert all(word == word.lower() for word in words()["ordinary"] | words()["sentence"])


def test_every_pattern_part_is_used_and_compiles() -> None:
    parts: dict[str, str | list[str]] = read_table(_MODULE, "parts")["parts"]
    sources = "".join(path.read_text("utf-8") for path in (*SECRETS.glob("data/*.toml"), *SECRETS.glob("*.py")))
    assert [name for name in parts if f"{{{name}}}" not in sources] == []
    for name in parts:
        compiled(f"{{{name}}}")


def test_tables_are_read_at_first_use() -> None:
    program = """
import sys, agent_memory_log
with agent_memory_log.open_sync_store("memory:"):
    assert "agent_memory_log.secrets" not in sys.modules
from agent_memory_log import tables
from agent_memory_log.secrets import redact_text
reads = []
loads = tables.tomllib.loads
tables.tomllib.loads = lambda text: reads.append(text) or loads(text)
from agent_memory_log.secrets.rules import phrase_rules
assert not reads
redact_text("hello")
redact_text("my password is hunter2")
redact_text("my pin is 4821")
assert len(reads) == len(set(reads)) == 7
assert sum("pattern" in vars(rule) for rule in phrase_rules()) < 100  # a pattern is compiled when a text has its hint
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
