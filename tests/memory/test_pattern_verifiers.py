"""What shows that an answer follows a memory: each verifier on both sides of its line."""

from __future__ import annotations

import pytest

from agent_memory_log.memory.pattern import VERIFIERS, MemoryItem
from agent_memory_log.memory.pattern.verifiers import verified


def words(count: int) -> str:
    return " ".join(["word"] * count)


@pytest.mark.parametrize(
    ("key", "value", "answer", "follows"),
    [
        ("update_channel", "email", "More by email.", True),
        ("update_channel", "Email", "More by EMAIL, soon", True),
        ("update_channel", "status page", "See the status\npage.", True),
        ("update_channel", "#ops", "Posted in #ops.", True),
        ("update_channel", "c++", "Posted in c++", True),
        ("update_channel", "email", "More by fax.", False),
        ("update_channel", "email", "See emails.", False),
        ("update_channel", "sms", "The asmsx.", False),
        ("update_channel", " ", "Anything.", None),
        ("response_style", "concise", words(80), True),
        ("response_style", "concise", words(81), False),
        ("response_style", "Concise", "One. Two! Three?", True),
        ("response_style", "concise", "One. Two. Three. Four.", False),
        ("response_style", "concise", "One. Two. Three. And an end without a point", False),
        ("response_style", "concise", "One. Two. Three and 2.5 percent, at 10.15", True),
        ("response_style", "concise", "Wait... what?! Yes.", True),
        ("response_style", "concise", "", True),
        ("response_style", "detailed", words(81), None),
        ("language", "english", "Incident update: all is well.", True),
        ("language", "English", "\nIncident update: all is well.", True),
        ("language", "en", "Incident update:", True),
        ("language", "english", "incident update: all is well.", False),
        ("language", "english", "All is well. Incident update:", False),
        ("language", "german", "Alles gut.", None),
    ],
)
def test_verifiers(key: str, value: str, answer: str, follows: bool | None) -> None:
    assert VERIFIERS[key](value, answer) is follows


def remembered(key: str, value: str, scope: str = "user") -> MemoryItem:
    return MemoryItem("id", "preference", scope, key, value, f"{key}: {value}", 0.8, 180)


def test_what_cannot_be_told_is_left_out() -> None:
    items = [remembered("language", "german"), remembered("mood", "calm"), remembered("Update_Channel ", "email")]
    assert verified(items, "By email.", VERIFIERS) == {"Update_Channel ": True}


def test_following_one_of_several_scopes_is_enough() -> None:
    items = [remembered("update_channel", "fax"), remembered("update_channel", "email", "workspace")]
    assert verified(items, "By email.", VERIFIERS) == {"update_channel": True}
    assert verified(items[::-1], "By email.", VERIFIERS) == {"update_channel": True}
    assert verified(items, "By post.", VERIFIERS) == {"update_channel": False}
