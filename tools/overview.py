"""Draws the picture of the README: the log, the layers above it, and the backends below it, light and dark.

``python -m tools.overview`` writes ``docs/overview-light.svg`` and ``docs/overview-dark.svg``; ``--check`` compares.
"""

from __future__ import annotations

import sys
from html import escape

from tools.generated import ROOT, write_or_check

WIDTH, HEIGHT, MARGIN, GAP = 880, 470, 20, 12
FONT = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"

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
    ("above", "Transcripts|Anthropic, OpenAI, Bedrock:|built, validated, repaired"),
    ("above", "Replay, diff, fork|the agent again, without|a model or tools"),
    ("memory", "Memory and search|preferences, facts, episodes;|each cites its events"),
    ("above", "Interchange|ATIF both ways,|OpenTelemetry out"),
)
EVENTS = ("user", "thinking", "tool call", "tool result", "assistant", "user", "…")
CITED = (0, 5)
BACKENDS = ("In memory|tests", "SQLite|one file, the default", "MongoDB|many machines", "Yours|one conformance suite")


def box(x: float, y: float, width: float, height: float, fill: str, lines: str, colors: dict[str, str]) -> str:
    """Return a box whose first line is bold."""
    title, *rest = lines.split("|")
    top = y + height / 2 - 9 * len(rest) + 5
    parts = [
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8" fill="{fill}" stroke="{colors["line"]}"/>',
        f'<text x="{x + width / 2:g}" y="{top:g}" font-weight="600" fill="{colors["ink"]}">{escape(title)}</text>',
    ]
    parts += [
        f'<text x="{x + width / 2:g}" y="{top + 18 * number:g}" font-size="12.5" fill="{colors["soft"]}">{escape(line)}</text>'
        for number, line in enumerate(rest, start=1)
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
    parts = [
        f'<rect x="{MARGIN}" y="{y}" width="{WIDTH - 2 * MARGIN}" height="112" rx="8" fill="{colors["log"]}" stroke="{colors["line"]}"/>',
        f'<text x="{MARGIN + GAP}" y="{y + 98}" text-anchor="start" font-weight="600" fill="{colors["ink"]}">The log of a run</text>',
        f'<text x="{WIDTH - MARGIN - GAP}" y="{y + 98}" text-anchor="end" font-size="12.5" fill="{colors["soft"]}">'
        "typed · append-only · atomic · idempotent · durable</text>",
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
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="{FONT}" font-size="14" text-anchor="middle" role="img">
<title>agent-memory-log: runtimes append events to a log; transcripts, replay, memory and interchange are derived from it</title>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{colors["line"]}"/></marker></defs>
<rect width="{WIDTH}" height="{HEIGHT}" fill="{colors["page"]}"/>
{row(14, 52, [("page", lines) for lines in PEOPLE], colors)}
{arrows}
{row(90, 78, list(LAYERS), colors)}
{log(226, colors)}
{evidence(168, 240, colors)}
<text x="{WIDTH / 2}" y="186" font-size="12.5" fill="{colors["soft"]}">evidence</text>
{row(364, 58, [("below", lines) for lines in BACKENDS], colors)}
<text x="{WIDTH / 2}" y="447" font-size="12.5" fill="{colors["soft"]}">the same interface and the same promises on every backend</text>
</svg>
"""


if __name__ == "__main__":
    sys.exit(write_or_check({ROOT / "docs" / f"overview-{name}.svg": picture(theme) for name, theme in THEMES.items()}))
