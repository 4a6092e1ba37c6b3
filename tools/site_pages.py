"""Generates pages of the site: the README and other documents of the root folder, and the API reference.

mkdocs calls ``on_files`` and ``on_config`` (``hooks`` in ``mkdocs.yml``). The API reference has one page for each part
of the package. ``ROOMS`` maps the title of each page to its modules.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]

COPIED = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}

ROOMS = {
    "agent_memory_log": ["front"],
    "Stores": ["store", "capabilities", "opening"],
    "Snapshots and readers": ["snapshot", "reader", "pairing"],
    "Events": ["events.event", "events.payloads", "events.registry", "events.jsonvalue"],
    "Errors": ["errors"],
    "Transfer": [
        "transfer.jsonl",
        "transfer.copying",
        "transfer.forking",
        "transfer.importing",
        "transfer.verifying",
    ],
    "Recording": ["recording"],
    "Transcripts": ["transcript"],
    "Replay": ["replay", "pytest_plugin"],
    "Interchange": ["interchange.atif", "interchange.opentelemetry"],
    "Integrations": [
        "integrations.anthropic_memory",
        "integrations.claude_agent",
        "integrations.google_adk",
        "integrations.langgraph",
        "integrations.openai_agents",
        "integrations.pydantic_ai",
    ],
    "Memory": ["memory"],
    "Memory operations": ["memory.operations"],
    "Memory extraction and policy": ["memory.extraction", "memory.policy"],
    "Agent loops": ["processor"],
    "Recall": ["recall", "recall.adapters.openai_compatible", "recall.adapters.bert"],
    "Models": ["models", "models.settings", "models.openai_chat"],
    "Secrets": ["secrets"],
    "Backend kit": ["backend_kit"],
    "Conformance": ["conformance"],
}


def reference_page(title: str) -> str:
    """Return the path of a page of the API reference."""
    return f"reference/{title.lower().replace(' ', '-').replace('_', '-')}.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages of the API reference to the navigation."""
    navigation = cast("list[dict[str, object]]", config.nav)
    for section in navigation:
        if "API reference" in section:
            section["API reference"] = [{title: reference_page(title)} for title in ROOMS]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for source, target in COPIED.items():
        files.append(File.generated(config, target, content=_on_the_site((ROOT / source).read_text(), config)))
    for title, modules in ROOMS.items():
        blocks = "\n".join(f"::: agent_memory_log.{module}\n" for module in modules)
        files.append(File.generated(config, reference_page(title), content=f"# {title}\n\n{blocks}"))
    return files


def _on_the_site(text: str, config: MkDocsConfig) -> str:
    """Rewrite links relative to the repository's root as links to the site or to the repository."""

    def target(link: re.Match[str]) -> str:
        path = link[2]
        if path in COPIED:
            path = COPIED[path]
        elif path.startswith("docs/"):
            path = path.removeprefix("docs/")
        else:
            path = f"{config.repo_url}blob/main/{path}"
        return f"{link[1]}{path}{link[3]}"

    return re.sub(r'(\]\(|src="|srcset=")(?!https?:|#)([^)"#]+)([)"#])', target, text)
