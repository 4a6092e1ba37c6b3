"""Writes the candidate that replaces a group of records: with the merger's summary, or with the records' sentences.

The candidate passes redaction, policy and execution, as every candidate does. A group whose candidate is refused stays
as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from agent_memory_log.errors import InvalidArgument
from agent_memory_log.memory.governance.grouping import Group, time_of
from agent_memory_log.memory.learning.judging import judge_one
from agent_memory_log.memory.records.candidates import Candidate
from agent_memory_log.memory.records.kinds import Episode, RecordData, fold_key
from agent_memory_log.memory.records.protocols import Merger, Summarizer
from agent_memory_log.memory.records.record import envelope_of
from agent_memory_log.memory.search.excerpts import SENTENCE
from agent_memory_log.memory.stream.context import Context
from agent_memory_log.memory.stream.state import Live
from agent_memory_log.memory.upkeep.mentions import words_in
from agent_memory_log.steps import Steps, work

MOST_CHARACTERS = 1_000
"""The most characters of a text that is made of sentences."""


def candidate_for(
    context: Context, scope: str, group: Group, parts: Sequence[Live], *, may_ask: bool
) -> Steps[Candidate | None]:
    """Return the candidate that says the same as the parts. Returns None if the merger or a check refuses it.

    Without ``may_ask``, as in a dry run, the merger is not asked.
    """
    newest = max(parts, key=lambda live: (time_of(live), live.seq))
    data, text = newest.data, ""
    if group.kind == "profile":
        data = msgspec.structs.replace(data, key=group.topic, value=_values(parts, group.topic))
    elif group.kind == "duplicates":
        text = max((live.memory.text for live in reversed(parts)), key=lambda each: len(set(words_in(each))))
    else:
        texts = [live.memory.text for live in sorted(parts, key=time_of)]
        text = yield from _summary(context.hooks.merger if may_ask else None, texts)
        if not text:
            return None
    try:
        judged = judge_one(context, Candidate(data, scope, **_envelope(parts, newest, data, text)), "derive")
    except InvalidArgument:
        return None
    return None if judged.reason or judged.candidate.scope != scope else judged.candidate


def _envelope(parts: Sequence[Live], newest: Live, data: RecordData, text: str) -> dict[str, Any]:
    memories = [live.memory for live in parts]
    return envelope_of(
        newest.memory,
        text=text,
        confidence=min(memory.confidence for memory in memories),
        importance=max(memory.importance for memory in memories),
        evidence=_united(memory.evidence for memory in memories),
        entities=_united(memory.entities for memory in memories),
        tags=_united(memory.tags for memory in memories),
        links=_united(memory.links for memory in memories),
        valid_from=data.occurred_at if isinstance(data, Episode) else time_of(newest),
    )


def _united(groups: Iterable[Sequence[object]]) -> tuple[object, ...]:
    return tuple(dict.fromkeys(item for group in groups for item in group))


def _values(parts: Sequence[Live], topic: str) -> str:
    """Return the values of several keys as one value, such as ``seat: aisle; meal: vegan``."""
    ordered = sorted(parts, key=lambda live: fold_key(live.memory.key))
    return "; ".join(f"{live.memory.key.strip()[len(topic) + 1 :]}: {live.data.record_value}" for live in ordered)


def _summary(merger: Merger | None, texts: Sequence[str]) -> Steps[str]:
    """Return the merger's summary, or ``""`` if it has no summary. Without a summarizer, return the sentences."""
    if not isinstance(merger, Summarizer):
        return (yield from work(lambda: sentences_of(texts)))
    try:
        summary: object = yield from work(lambda: merger.summarize(texts))
    except Exception:  # noqa: BLE001  # a merger is user code; the next round asks it again
        return ""
    return summary.strip() if isinstance(summary, str) else ""


def sentences_of(texts: Sequence[str], most: int = MOST_CHARACTERS) -> str:
    """Return the sentences of several texts in their order, each once, in at most ``most`` characters.

    If they do not fit, the sentences with the most words that no chosen sentence has come first. A word that few
    sentences have counts more.
    """
    sentences = [match[0].strip() for text in texts for match in SENTENCE.finditer(text) if match[0].strip()]
    words = {sentence: frozenset(words_in(sentence)) for sentence in sentences}
    unique = list({own: sentence for sentence, own in reversed(words.items())}.values())[::-1]
    counts = Counter(word for sentence in unique for word in words[sentence])
    chosen: set[str] = set()
    seen: set[str] = set()
    left = most
    by_weight = sorted(unique, key=lambda sentence: -sum(1 / counts[word] for word in words[sentence]))
    for sentence in by_weight:
        if len(sentence) < left and not words[sentence] <= seen:
            chosen.add(sentence)
            seen |= words[sentence]
            left -= len(sentence) + 1
    if not chosen:
        return sentences[0][:most]
    return " ".join(sentence for sentence in unique if sentence in chosen)
