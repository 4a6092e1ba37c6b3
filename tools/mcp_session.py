"""Writes the session in ``docs/mcp.md``: it starts ``amlog mcp``, calls its tools, and copies the answers.

``python -m tools.mcp_session`` writes the session; ``--check`` only compares. Ids, times and digests differ in each
session, so the page has fixed ones in their place.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from typing import Any

import msgspec
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

from tools.generated import ROOT, write_or_check

PAGE = ROOT / "docs" / "mcp.md"
BEGIN = "<!-- Written by tools/mcp_session.py: run `make generate`. -->\n"
END = "<!-- The end of the written part. -->\n"
SECONDS = 60
"""The time for one answer."""

TURNS = (
    ("user", "Please answer in German from now on."),
    ("assistant", "Gern."),
    ("user", "How do I list a folder?"),
    ("assistant", "Mit `ls`."),
)
FIRST: tuple[tuple[str, dict[str, Any]], ...] = (
    ("memory_set", {"key": "editor", "value": "vim"}),
    (
        "memory_ingest_conversation",
        {"turns": [{"role": role, "text": text} for role, text in TURNS], "source_id": "monday"},
    ),
)
LATER: tuple[tuple[str, dict[str, Any]], ...] = (
    ("memory_context", {"query": "Which language does the user want?"}),
    ("memory_search", {"query": "editor", "kinds": ["preference"]}),
    ("memory_update", {"id": "unknown", "value": "emacs"}),
    ("memory_forget", {"key": "editor"}),
)
_CHANGING = (
    (r'"(id|superseded)":"[\w-]{16,24}"', r'"\1":"A7rK2mXq0Bd9000001"'),
    (r'"event_id":"\w+"', '"event_id":"5b1f0c…"'),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "2026-11-23T09:30:00Z"),
    (r"(?m)^- \d{4}-\d\d-\d\d ", "- 2026-11-23 "),
    (r'("(?:score|words|confidence)":-?\d+\.\d)\d+', r"\1"),
)


async def session(folder: str, calls: tuple[tuple[str, dict[str, Any]], ...]) -> str:
    """Call tools of a server in a process of its own, and return the calls and answers."""
    arguments = ["-m", "agent_memory_log.cli", "mcp", "--store", f"sqlite:///{folder}/memory.db"]
    command = StdioServerParameters(command=sys.executable, args=[*arguments, "--tenant", "acme", "--user", "42"])
    parts: list[str] = []
    async with Client(command, read_timeout_seconds=SECONDS) as client:
        for name, values in calls:
            result = await client.call_tool(name, values)
            (content,) = result.content
            assert isinstance(content, TextContent)
            parts.append(f"> {name} {msgspec.json.encode(values).decode()}\n{content.text}")
    return "\n\n".join(parts)


async def written_part() -> str:
    """Return the part of the page with two sessions, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        first, later = await session(folder, FIRST), await session(folder, LATER)
    text = f"The first session:\n\n```\n{first}\n```\n\nA later session, with a new process:\n\n```\n{later}\n```\n"
    for pattern, replacement in _CHANGING:
        text = re.sub(pattern, replacement, text)
    return text


if __name__ == "__main__":
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    sys.exit(write_or_check({PAGE: f"{head}{BEGIN}\n{asyncio.run(written_part())}\n{END}{tail}"}))
