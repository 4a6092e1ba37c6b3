"""Tests of the example's verifiers, with answers that follow a memory and answers that do not."""

from __future__ import annotations

import pytest

from examples.capture_and_apply.verifiers import VERIFIERS


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
        ("language", "english", "incident update: all is well.", True),
        ("language", "english", "**Incident update:** all is well.", True),
        ("language", "english", "## Incident update: all is well.", True),
        ("update_channel", "email", "More by **email**, or by _email_.", True),
        ("update_channel", "#ops", "Posted in **#ops**.", True),
        ("update_channel", "snake_case", "Posted in `snake_case`.", True),
        ("response_style", "concise", "**One.** Two. *Three.* **Four.**", False),
        ("language", "english", "All is well. Incident update:", False),
        ("language", "german", "Alles gut.", None),
    ],
)
def test_verifier_decides_whether_an_answer_follows_the_memory(
    key: str, value: str, answer: str, follows: bool | None
) -> None:
    assert VERIFIERS[key](value, answer) is follows
