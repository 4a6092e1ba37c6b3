"""Writes the page ``docs/derive-report.md``: the memories that ``derive`` writes for real runs, and their quality.

Run it with ``python -m tests.memory.derive_report RUNS.jsonl``. Each line of ``RUNS.jsonl`` is a run, ``{"task_id",
"trial", "messages"}``, with messages in the format of OpenAI Chat. ``tests/memory/derive_labels.json`` holds the labels
that were made by hand.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from agent_memory_log import JsonValue, open_sync_store
from agent_memory_log.memory import Episode, Outcome, Principal, SyncMemory, SyncMemoryClient
from agent_memory_log.memory.extraction import RuleExtractor
from agent_memory_log.memory.extraction.statements import read_statements
from agent_memory_log.memory.policy import MemoryPolicy, stop_secrets
from agent_memory_log.transcript import parse

PAGE = Path(__file__).resolve().parents[2] / "docs" / "derive-report.md"
LABELS = Path(__file__).with_name("derive_labels.json")

_AGENT = "airline"
_CELL_LENGTH = 110
_EXAMPLES = 6
_PHRASE = re.compile(
    r"\b(?:prefer|always|never|call me|instead|my name|live in|my user ?(?:id|name)|my email)\b", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class Run(msgspec.Struct, frozen=True):
    """A real run: one line of the file that ``read_runs`` reads."""

    task_id: int
    trial: int
    messages: list[dict[str, JsonValue]]


class Statement(msgspec.Struct, frozen=True):
    """A statement that a memory should hold: the user's words and the expected memory."""

    quote: str
    kind: str
    key: str
    value: str


class JudgedMemory(msgspec.Struct, frozen=True):
    """A memory that ``derive`` wrote, judged by hand. If the memory is wrong, ``why`` is the reason."""

    seq: int
    kind: str
    key: str
    right: bool
    why: str = ""


class LabelledRun(msgspec.Struct, frozen=True):
    """The labels of a run that a person read. ``run`` is the index of the run, from 0."""

    run: int
    task_id: int
    trial: int
    statements: list[Statement]
    memories: list[JudgedMemory]


class Labels(msgspec.Struct, frozen=True):
    """The labels of all runs that a person read."""

    about: list[str]
    runs: list[LabelledRun]


class Derived(msgspec.Struct, frozen=True):
    """The outcomes of the first ``derive`` of each run, and the number of outcomes of the second ``derive``."""

    outcomes: list[tuple[Outcome, ...]]
    again: int


def read_runs(path: Path) -> list[Run]:
    """Return the runs of a file with one JSON object on each line."""
    decode = msgspec.json.Decoder(Run).decode
    return [decode(line) for line in path.read_bytes().splitlines()]


def read_labels() -> Labels:
    """Return the labels that a person wrote."""
    return msgspec.json.decode(LABELS.read_bytes(), type=Labels)


def derive_all(runs: Sequence[Run]) -> Derived:
    """Derive every run twice. Each run belongs to another user."""
    with open_sync_store("memory:") as store:
        memory = SyncMemoryClient(
            store, extractor=RuleExtractor(), redactor=stop_secrets, policy=MemoryPolicy(), max_keyed=None
        )
        outcomes: list[tuple[Outcome, ...]] = []
        again = 0
        for number, run in enumerate(runs):
            name = str(number)
            store.append_events(_AGENT, name, *parse(run.messages, "openai-chat", source=name))
            me: SyncMemory = memory.of(Principal(tenant="report", scopes={"user": name}))
            outcomes.append(me.derive(_AGENT, name).outcomes)
            again += len(me.derive(_AGENT, name).outcomes)
        return Derived(outcomes, again)


def topic_of(outcome: Outcome) -> str:
    """Return the category of an episode, and the key of another memory."""
    data = outcome.record.data if outcome.record is not None else None
    return data.category if isinstance(data, Episode) else outcome.key


def build_page(runs: Sequence[Run]) -> str:
    """Return the text of the page."""
    derived = derive_all(runs)
    written = [
        (number, outcome)
        for number, outcomes in enumerate(derived.outcomes)
        for outcome in outcomes
        if outcome.action == "written"
    ]
    return "\n".join(
        [
            *_introduction(runs, derived, len(written)),
            *_sample(derived),
            *_counts(written),
            *_memories(written),
            *_refused(runs, derived),
        ]
    )


def _introduction(runs: Sequence[Run], derived: Derived, written: int) -> list[str]:
    messages = sum(len(run.messages) for run in runs)
    empty = sum(not outcomes for outcomes in derived.outcomes)
    return [
        "# Results of `derive` without a model",
        "",
        "<!-- Written by tests/memory/derive_report.py: change the program and run it again. -->",
        "",
        *_wrapped(
            f"This page shows the memories that `derive` writes for {len(runs)} runs of an airline's customer service "
            f"({messages:,} messages). The runs are from tau-bench (MIT license), in which one model plays the agent "
            "and another the customer. We used the `RuleExtractor`, the default redactor and a `MemoryPolicy()`. Each "
            f"run has its own user. `derive` wrote {written} memories, and none for {empty} of the runs. A second "
            f"`derive` of all runs wrote {derived.again} more."
        ),
        "",
    ]


def _counts(written: Sequence[tuple[int, Outcome]]) -> list[str]:
    counts = Counter((outcome.kind, topic_of(outcome)) for _, outcome in written)
    rows = [f"| {kind} | {topic} | {count} |" for (kind, topic), count in sorted(counts.items())]
    return ["## Memories by kind", "", "| kind | key or category | memories |", "|---|---|---:|", *rows, ""]


def _memories(written: Sequence[tuple[int, Outcome]]) -> list[str]:
    lines = [
        "## Examples of memories",
        "",
        *_wrapped(
            "The table has all preferences, all facts except user ids, and the first episodes of each category. The "
            "first column has the run and the seq of the first event of the evidence."
        ),
        "",
        "| run:seq | kind | memory |",
        "|---|---|---|",
    ]
    rows: Counter[str] = Counter()
    for number, outcome in written:
        topic = topic_of(outcome)
        rows[topic] += 1
        if topic == "user_id" or (outcome.kind == "episode" and rows[topic] > _EXAMPLES):
            continue
        text = outcome.record.text if outcome.record is not None else ""
        lines.append(f"| {number}:{outcome.evidence[0].seq} | {outcome.kind} | {_cell(text)} |")
    return [*lines, ""]


def _refused(runs: Sequence[Run], derived: Derived) -> list[str]:
    reasons = Counter(
        outcome.reason for outcomes in derived.outcomes for outcome in outcomes if outcome.action == "blocked"
    )
    boundaries = ", ".join(f"`{reason}` {count}" for reason, count in sorted(reasons.items())) or "no memory"
    lines = [
        "## Sentences without a memory",
        "",
        *_wrapped(
            f"The redactor, the policy and the checks of the store blocked {boundaries}. The extractor skipped the "
            'users\' sentences below. Each contains a phrase such as "prefer" or "my user ID", but is a wish for '
            "one occasion, a question, a condition or a plain report."
        ),
        "",
        "| run | sentence |",
        "|---:|---|",
    ]
    lines += [f"| {number} | {_cell(sentence)} |" for number, sentence in _skipped(runs)]
    return [*lines, ""]


def _skipped(runs: Sequence[Run]) -> Iterator[tuple[int, str]]:
    for number, run in enumerate(runs):
        for message in run.messages:
            text = message.get("content")
            if message.get("role") != "user" or not isinstance(text, str):
                continue
            for sentence in _SENTENCE.split(text):
                if _PHRASE.search(sentence) and not read_statements(sentence):
                    yield number, sentence


def _sample(derived: Derived) -> list[str]:
    labels = read_labels()
    memories = [(run.run, memory) for run in labels.runs for memory in run.memories]
    keyed = [memory.right for _, memory in memories if memory.kind != "episode"]
    episodes = [memory.right for _, memory in memories if memory.kind == "episode"]
    statements = [(run.run, statement) for run in labels.runs for statement in run.statements]
    missed = [
        (number, statement) for number, statement in statements if not has_memory(statement, derived.outcomes[number])
    ]
    return [
        "## Precision and recall",
        "",
        *_wrapped(
            f"Every fifth run ({len(labels.runs)} runs) was read and labelled by hand in "
            "`tests/memory/derive_labels.json`. The labels contain every direct statement of a user about themselves "
            "that is useful in a later conversation. They also judge every memory against its run."
        ),
        "",
        "| | count | of | share |",
        "|---|---:|---:|---|",
        _share("correct preferences and facts (precision)", sum(keyed), len(keyed)),
        _share("correct episodes (precision)", sum(episodes), len(episodes)),
        _share("statements with a memory (recall)", len(statements) - len(missed), len(statements)),
        "",
        "The wrong memories:",
        "",
        *(
            f"- run {number}, event {memory.seq}, `{memory.key}`: {memory.why}"
            for number, memory in memories
            if not memory.right
        ),
        "",
        "The missed statements. Their meaning depends on other messages, or no rule covers them:",
        "",
        *(f"- run {number}: {_cell(statement.quote)}" for number, statement in missed),
        "",
        *_wrapped(
            "Most labelled statements are user ids. Customers of an airline seldom state preferences, so the sample "
            "shows little about them. The table of examples has every preference."
        ),
        "",
    ]


def has_memory(statement: Statement, outcomes: Sequence[Outcome]) -> bool:
    """Return whether a memory of the run has the kind and the value of the statement."""
    return any(
        outcome.kind == statement.kind
        and outcome.record is not None
        and outcome.record.value.casefold() == statement.value.casefold()
        for outcome in outcomes
    )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_on_hyphens=False)


def _share(title: str, count: int, total: int) -> str:
    return f"| {title} | {count} | {total} | {100 * count / total:.0f} % |"


def _cell(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= _CELL_LENGTH else line[: _CELL_LENGTH - 1] + "…"


if __name__ == "__main__":
    PAGE.write_text(build_page(read_runs(Path(sys.argv[1]))), encoding="utf-8")
