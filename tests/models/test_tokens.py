"""Tests the estimate of tokens with the counts of real tokenizers, which ``tests/data/token_counts.jsonl`` holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.models.tokens import estimate_tokens

COUNTED: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "token_counts.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("kind", sorted({row["kind"] for row in COUNTED}))
def test_the_estimate_is_never_below_a_real_count_and_at_most_60_percent_above(kind: str) -> None:
    for row in COUNTED:
        if row["kind"] == kind:
            real = max(row["cl100k_base"], row["claude"])
            assert real <= estimate_tokens(row["text"]) <= 1.6 * real, row["text"]


@given(st.text(), st.text())
def test_a_longer_text_has_no_fewer_tokens(text: str, more: str) -> None:
    assert estimate_tokens(text) <= estimate_tokens(text + "\n" + more)
    assert estimate_tokens(text) <= 4 * len(text)


def test_an_empty_text_has_no_tokens() -> None:
    assert estimate_tokens("") == 0
