"""The tables of the secret finder are well formed, and are read when they are first needed."""

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


def twice(entries: Iterable[object]) -> list[object]:
    return [entry for entry, count in Counter(entries).items() if count > 1]


def test_no_two_rules_are_the_same() -> None:
    rules: list[Rule] = [*token_rules(), *phrase_rules(), *chain.from_iterable(names().values())]
    assert not twice(rules)


def test_what_is_compared_in_lower_case_is_in_lower_case() -> None:
    hints = [rule.hint for rule in phrase_rules()] + list(names())
    assert [hint for hint in hints if not hint or hint != hint.lower()] == []


def test_words_are_sorted_and_none_stands_twice() -> None:
    for groups in read_table(_MODULE, "words").values():
        listed = [text.split() for text in groups.values()]
        assert listed == [sorted(group) for group in listed]
        assert not twice(chain.from_iterable(listed))
    assert all(word == word.lower() for word in words()["ordinary"] | words()["sentence"])


def test_every_part_of_a_pattern_is_used() -> None:
    parts: dict[str, str | list[str]] = read_table(_MODULE, "parts")["parts"]
    sources = "".join(path.read_text("utf-8") for path in (*SECRETS.glob("data/*.toml"), *SECRETS.glob("*.py")))
    assert [name for name in parts if f"{{{name}}}" not in sources] == []
    for name in parts:
        compiled(f"{{{name}}}")


def test_the_tables_are_not_read_before_a_text_is() -> None:
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
assert sum("pattern" in vars(rule) for rule in phrase_rules()) < 100  # a pattern is compiled when its hint stands there
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
