"""Reads recorded traffic with providers: ``tests/data/provider_traffic.jsonl.gz``, whose README names its source."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

_FILE = Path(__file__).parents[1] / "data" / "provider_traffic.jsonl.gz"
_MESSAGES_KEYS = {"gemini": "contents", "openai-responses": "input"}
_OWN_HOSTS = ("api.anthropic.com", "api.openai.com", "bedrock-runtime.", "generativelanguage.googleapis.com")
_VERTEX = "aiplatform.googleapis.com"  # a region may precede it


@dataclass(frozen=True, eq=False)
class Exchange:
    """One request to a provider, and its answer.

    Attributes:
        name: The recording that it is from, and its place in the recording.
        provider: The provider's name.
        host: The host that answered: the provider's own, or another vendor that speaks the same language.
        status: The HTTP status.
        messages: The messages of the request.
        arguments: The other arguments of the request.
        answer: The body of the answer, or the events of the stream. None for an answer that is not the model's, such as
            a number of tokens.
    """

    name: str
    provider: str
    host: str
    status: int
    messages: Sequence[dict[str, Any]]
    arguments: Mapping[str, Any]
    answer: dict[str, Any] | list[dict[str, Any]] | None

    @property
    def is_complete(self) -> bool:
        """Return whether the model has finished the answer: a model in the background has not."""
        return not isinstance(self.answer, dict) or self.answer.get("status") not in {"queued", "in_progress"}

    @property
    def is_own_host(self) -> bool:
        """Return whether the provider itself answered, and not another vendor."""
        return self.host.startswith(_OWN_HOSTS) or self.host.endswith(_VERTEX)


@cache
def exchanges() -> Sequence[Exchange]:
    """Return all exchanges whose request has messages."""
    with gzip.open(_FILE, "rt", encoding="utf-8") as lines:
        return tuple(exchange for line in lines if (exchange := _exchange(json.loads(line))) is not None)


def _exchange(line: dict[str, Any]) -> Exchange | None:
    request = dict(line["request"] or {})
    messages = request.pop(_MESSAGES_KEYS.get(line["provider"], "messages"), [])
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    answer = line.get("events") or line.get("response")
    if line["status"] != 200 or not isinstance(answer, (dict, list)) or "token" in line["path"].lower():
        answer = None
    return Exchange(
        f"{line['source'].removeprefix('models/').removeprefix('cassettes/')} {line['n']}",
        line["provider"],
        line["host"],
        line["status"],
        messages,
        request,
        cast("dict[str, Any] | list[dict[str, Any]] | None", answer),
    )
