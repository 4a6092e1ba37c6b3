"""Draws the picture of the README: the log, the layers above it, and the backends below it.

``python -m tools.overview`` writes ``docs/overview-light.svg`` and ``docs/overview-dark.svg``;
``--check`` only compares.
"""

from __future__ import annotations

import sys
from html import escape

from tools.generated import ROOT, write_or_check

WIDTH, HEIGHT, MARGIN, GAP = 880, 470, 20, 12
FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
TITLE = "Runtimes append events to a log; transcripts, replay, memory and interchange are derived from it"

THEMES = {
    "light": {
        "page": "#ffffff",
        "ink": "#1f2328",
        "soft": "#59636e",
        "line": "#8c959f",
        "log": "#ddf4ff",
        "event": "#ffffff",
        "above": "#f6f8fa",
        "memory": "#fff8c5",
        "below": "#dafbe1",
    },
    "dark": {
        "page": "#0d1117",
        "ink": "#e6edf3",
        "soft": "#9198a1",
        "line": "#6e7681",
        "log": "#0c2d4d",
        "event": "#161b22",
        "above": "#161b22",
        "memory": "#3d2e00",
        "below": "#12361f",
    },
}

PEOPLE = (
    "Agent runtime|records, resumes",
    "Tests|rerun a recorded agent",
    "Planner|reads what it needs",
    "Other tools|read and write runs",
)
LAYERS = (
    ("above", "Transcripts|Anthropic, OpenAI,|Bedrock and Gemini"),
    ("above", "Replay, diff, fork|the agent again, without|a model or tools"),
    ("memory", "Memory and search|preferences, facts, episodes;|each cites its events"),
    ("above", "Interchange|ATIF both ways,|OpenTelemetry out"),
)
EVENTS = ("user", "thinking", "tool call", "tool result", "assistant", "user", "…")
CITED = (0, 5)
BACKENDS = ("In memory|tests", "SQLite|one file, the default", "MongoDB|many machines", "Yours|one conformance suite")


def text(x: float, y: float, words: str, color: str, *, small: bool = False, anchor: str = "middle") -> str:
    """Return a line of text. It is bold unless it is ``small``."""
    style = 'font-size="12.5"' if small else 'font-weight="600"'
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" {style} fill="{color}">{escape(words)}</text>'


def frame(x: float, y: float, width: float, height: float, fill: str, line: str) -> str:
    """Return a rectangle with round corners."""
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {size} rx="8" fill="{fill}" stroke="{line}"/>'


def box(x: float, y: float, width: float, height: float, fill: str, lines: str, colors: dict[str, str]) -> str:
    """Return a box with text in its middle. ``|`` separates the lines, and the first line is bold."""
    title, *rest = lines.split("|")
    middle = x + width / 2
    top = y + height / 2 - 9 * len(rest) + 5
    parts = [frame(x, y, width, height, fill, colors["line"]), text(middle, top, title, colors["ink"])]
    parts += [
        text(middle, top + 18 * number, words, colors["soft"], small=True) for number, words in enumerate(rest, start=1)
    ]
    return "\n".join(parts)


def row(y: float, height: float, boxes: list[tuple[str, str]], colors: dict[str, str]) -> str:
    """Return boxes of equal width side by side."""
    width = (WIDTH - 2 * MARGIN - GAP * (len(boxes) - 1)) / len(boxes)
    return "\n".join(
        box(MARGIN + number * (width + GAP), y, width, height, colors[fill], lines, colors)
        for number, (fill, lines) in enumerate(boxes)
    )


def log(y: float, colors: dict[str, str]) -> str:
    """Return the log: a band with numbered events."""
    inner = WIDTH - 2 * MARGIN - 2 * GAP
    width = (inner - GAP * (len(EVENTS) - 1)) / len(EVENTS)
    promises = "typed · append-only · atomic · idempotent · durable"
    parts = [
        frame(MARGIN, y, WIDTH - 2 * MARGIN, 112, colors["log"], colors["line"]),
        text(MARGIN + GAP, y + 98, "The log of a run", colors["ink"], anchor="start"),
        text(WIDTH - MARGIN - GAP, y + 98, promises, colors["soft"], small=True, anchor="end"),
    ]
    for number, name in enumerate(EVENTS, start=1):
        x = MARGIN + GAP + (number - 1) * (width + GAP)
        seq = f"seq {number}" if name != "…" else ""
        parts.append(box(x, y + 14, width, 58, colors["event"], f"{name}|{seq}", colors))
    return "\n".join(parts)


def evidence(top: float, bottom: float, colors: dict[str, str]) -> str:
    """Return the dashed lines from a memory to the events it cites."""
    columns = len(LAYERS)
    memory_width = (WIDTH - 2 * MARGIN - GAP * (columns - 1)) / columns
    memory = next(number for number, (fill, _) in enumerate(LAYERS) if fill == "memory")
    start = MARGIN + memory * (memory_width + GAP) + memory_width / 2
    event_width = (WIDTH - 2 * MARGIN - 2 * GAP - GAP * (len(EVENTS) - 1)) / len(EVENTS)
    return "\n".join(
        f'<path d="M{start:g} {top:g} C{start:g} {top + 46:g} {end:g} {bottom - 60:g} {end:g} {bottom:g}" fill="none" '
        f'stroke="{colors["soft"]}" stroke-width="1.5" stroke-dasharray="5 4" marker-end="url(#arrow)"/>'
        for end in (MARGIN + GAP + cited * (event_width + GAP) + event_width / 2 for cited in CITED)
    )


def picture(colors: dict[str, str]) -> str:
    """Return the whole picture."""
    arrows = "\n".join(
        f'<path d="M{MARGIN + (number + 0.5) * (WIDTH - 2 * MARGIN) / 4:g} 66 v20" stroke="{colors["line"]}" '
        'stroke-width="1.5" marker-end="url(#arrow)"/>'
        for number in range(4)
    )
    shape = 'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"'
    promise = "the same interface and the same promises on every backend"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="{FONT}" font-size="14">',
        f"<title>{TITLE}</title>",
        f'<defs><marker id="arrow" {shape}><path d="M0 0 L8 4 L0 8 z" fill="{colors["line"]}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{colors["page"]}"/>',
        row(14, 52, [("page", lines) for lines in PEOPLE], colors),
        arrows,
        row(90, 78, list(LAYERS), colors),
        log(226, colors),
        evidence(168, 240, colors),
        text(WIDTH / 2, 186, "evidence", colors["soft"], small=True),
        row(364, 58, [("below", lines) for lines in BACKENDS], colors),
        text(WIDTH / 2, 447, promise, colors["soft"], small=True),
        "</svg>\n",
    ]
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(write_or_check({ROOT / "docs" / f"overview-{name}.svg": picture(theme) for name, theme in THEMES.items()}))
