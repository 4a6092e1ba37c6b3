"""What deriving from a file of real runs finds, and how much of it is right: the page ``docs/derive-report.md``.

``python -m tests.memory.derive_report RUNS.jsonl`` writes it. ``RUNS.jsonl`` has one run a line: ``{"task_id", "trial",
"messages"}``, the messages as of OpenAI Chat. The labels by hand are in ``tests/memory/derive_labels.json``.
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
_SHOWN = 110
_EXAMPLES = 6
_PHRASE = re.compile(
    r"\b(?:prefer|always|never|call me|instead|my name|live in|my user ?(?:id|name)|my email)\b", re.IGNORECASE
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


class Run(msgspec.Struct, frozen=True):
    """A line of the file."""

    task_id: int
    trial: int
    messages: list[dict[str, JsonValue]]


class Said(msgspec.Struct, frozen=True):
    """A statement that is worth remembering: in the user's words, and as the memory it should be."""

    said: str
    kind: str
    key: str
    value: str


class Judged(msgspec.Struct, frozen=True):
    """A memory that was found, whether it is right, and why not."""

    seq: int
    kind: str
    key: str
    right: bool
    why: str = ""


class Labelled(msgspec.Struct, frozen=True):
    """A run that was read by hand; ``run`` counts from 0."""

    run: int
    task_id: int
    trial: int
    statements: list[Said]
    memories: list[Judged]


class Labels(msgspec.Struct, frozen=True):
    """The whole sample."""

    about: list[str]
    runs: list[Labelled]


class Derived(msgspec.Struct, frozen=True):
    """What deriving each run brought, and how much deriving it again did."""

    outcomes: list[tuple[Outcome, ...]]
    again: int


def read_runs(path: Path) -> list[Run]:
    """The runs of a file."""
    decode = msgspec.json.Decoder(Run).decode
    return [decode(line) for line in path.read_bytes().splitlines()]


def read_labels() -> Labels:
    """The hand-made labels."""
    return msgspec.json.decode(LABELS.read_bytes(), type=Labels)


def derive_all(runs: Sequence[Run]) -> Derived:
    """Derive every run twice, each for a user of its own."""
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
    """The key of what has one, the category of an episode."""
    data = outcome.record.data if outcome.record is not None else None
    return data.category if isinstance(data, Episode) else outcome.key


def build_page(runs: Sequence[Run]) -> str:
    """The whole page."""
    derived = derive_all(runs)
    found = [
        (number, outcome)
        for number, outcomes in enumerate(derived.outcomes)
        for outcome in outcomes
        if outcome.action == "written"
    ]
    return "\n".join(
        [
            *_introduction(runs, derived, len(found)),
            *_counts(found),
            *_found(found),
            *_refused(runs, derived),
            *_sample(derived),
            "",
        ]
    )


def _introduction(runs: Sequence[Run], derived: Derived, found: int) -> list[str]:
    messages = sum(len(run.messages) for run in runs)
    empty = sum(not outcomes for outcomes in derived.outcomes)
    return [
        "# What `derive` finds without a model",
        "",
        "<!-- Written by tests/memory/derive_report.py: change that, and run it again. -->",
        "",
        *_wrapped(
            f"{len(runs)} runs of an airline's customer service ({messages:,} messages; a model plays the agent, "
            "another the customer; tau-bench, MIT) went through `derive` with the `RuleExtractor`, the default "
            f"redactor and a `MemoryPolicy()`, each as the memory of a user of its own. {found} memories came of it; "
            f"{empty} runs hold nothing that the rules take. Deriving all of it again wrote {derived.again} more."
        ),
        "",
    ]


def _counts(found: Sequence[tuple[int, Outcome]]) -> list[str]:
    counts = Counter((outcome.kind, topic_of(outcome)) for _, outcome in found)
    rows = [f"| {kind} | {topic} | {count} |" for (kind, topic), count in sorted(counts.items())]
    return ["## What it found", "", "| kind | key or category | memories |", "|---|---|---:|", *rows, ""]


def _found(found: Sequence[tuple[int, Outcome]]) -> list[str]:
    lines = [
        *_wrapped(
            "All preferences and facts but the user ids, and the first episodes of each category, with the run and the "
            "event that each begins with."
        ),
        "",
        "| where | kind | memory |",
        "|---|---|---|",
    ]
    shown: Counter[str] = Counter()
    for number, outcome in found:
        topic = topic_of(outcome)
        shown[topic] += 1
        if topic == "user_id" or (outcome.kind == "episode" and shown[topic] > _EXAMPLES):
            continue
        text = outcome.record.text if outcome.record is not None else ""
        lines.append(f"| {number}:{outcome.evidence[0].seq} | {outcome.kind} | {_cell(text)} |")
    return [*lines, ""]


def _refused(runs: Sequence[Run], derived: Derived) -> list[str]:
    reasons = Counter(one.reason for outcomes in derived.outcomes for one in outcomes if one.action == "blocked")
    boundaries = ", ".join(f"`{reason}` {count}" for reason, count in sorted(reasons.items())) or "nothing"
    lines = [
        "## What it refused",
        "",
        *_wrapped(
            f"Redaction, policy and execution blocked: {boundaries}. The extractor itself left these sentences of "
            "users, which hold one of its phrases, as wishes for this once, questions, conditions or plain narration:"
        ),
        "",
        "| run | sentence |",
        "|---:|---|",
    ]
    lines += [f"| {number} | {_cell(sentence)} |" for number, sentence in _left(runs)]
    return [*lines, ""]


def _left(runs: Sequence[Run]) -> Iterator[tuple[int, str]]:
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
    judged = [one for run in labels.runs for one in run.memories]
    stated = [one for one in judged if one.kind != "episode"]
    episodes = [one for one in judged if one.kind == "episode"]
    said = [(run.run, one) for run in labels.runs for one in run.statements]
    missed = [(number, one) for number, one in said if not was_found(one, derived.outcomes[number])]
    wrong = [(run.run, one) for run in labels.runs for one in run.memories if not one.right]
    return [
        "## How much of it is right",
        "",
        *_wrapped(
            f"{len(labels.runs)} runs, every fifth, were read by hand (`tests/memory/derive_labels.json`): what a user "
            "says outright about themselves and that would still be of use in a later conversation was written down, "
            "and every memory was judged against the run it came from."
        ),
        "",
        "| | right | of | |",
        "|---|---:|---:|---|",
        _share("preferences and facts found that are right (precision)", sum(one.right for one in stated), len(stated)),
        _share("episodes found that are right (precision)", sum(one.right for one in episodes), len(episodes)),
        _share("statements worth remembering that were found (recall)", len(said) - len(missed), len(said)),
        "",
        "Wrong:",
        "",
        *(f"- run {number}, event {one.seq}, `{one.key}`: {one.why}" for number, one in wrong),
        "",
        "Missed, as only the words around them make them clear, or no rule takes them:",
        "",
        *(f"- run {number}: {_cell(one.said)}" for number, one in missed),
        "",
        *_wrapped(
            "The sample says much about user ids and little about preferences, which customers of an airline hardly "
            "state: the table of what was found has every one."
        ),
    ]


def was_found(said: Said, outcomes: Sequence[Outcome]) -> bool:
    """Whether one of the memories of a run is the statement's."""
    return any(
        one.kind == said.kind and one.record is not None and one.record.value.casefold() == said.value.casefold()
        for one in outcomes
    )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_on_hyphens=False)


def _share(what: str, part: int, whole: int) -> str:
    return f"| {what} | {part} | {whole} | {100 * part / whole:.0f} % |"


def _cell(text: str) -> str:
    line = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1] + "…"


if __name__ == "__main__":
    PAGE.write_text(build_page(read_runs(Path(sys.argv[1]))), encoding="utf-8")
