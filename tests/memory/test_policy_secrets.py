"""The default redactor refuses secrets of known forms in every field, and accepts text that only looks similar.

The tests build the secrets from parts, so that no file of the repository contains one.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory_log.memory import Candidate, Episode, Fact, Preference, Refusal, UnknownKind
from agent_memory_log.memory.policy import stop_secrets
from agent_memory_log.secrets import find_secrets

WORD = "a1B2c3D4" * 8

SECRETS = [
    ("private_key", "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIE"),
    ("private_key", "-----BEGIN " + "PRIVATE KEY-----"),
    ("private_key", "-----BEGIN " + "PGP PRIVATE KEY BLOCK-----"),
    ("aws_access_key", "AKIA" + "ABCDEFGHIJKLMN23"),
    ("openai_key", "sk-" + WORD),
    ("anthropic_key", "sk-ant-api03-" + WORD),
    ("stripe_key", "sk_live_" + WORD[:24]),
    ("stripe_key", "rk_test_" + WORD[:24]),
    ("google_key", "AIza" + WORD[:35]),
    ("sendgrid_key", "SG." + WORD[:22] + "." + WORD[:43]),
    ("github_token", "ghp_" + WORD[:36]),
    ("github_token", "github_pat_" + WORD[:40]),
    ("gitlab_token", "glpat-" + WORD[:20]),
    ("slack_token", "xoxb-" + "123456789012-abcdef"),
    ("npm_token", "npm_" + WORD[:36]),
    ("huggingface_token", "hf_" + WORD[:34]),
    ("telegram_token", "12345678:AA" + WORD[:33]),
    ("jwt", "eyJ" + WORD[:20] + ".eyJ" + WORD[:20] + "." + WORD[:20]),
    ("credential", "Authorization: Bearer " + WORD[:40]),
    ("url_password", "postgres://ada:" + "hunter2@db.example.com/prod"),
    ("url_password", "redis://:" + "hunter2@cache:6379"),
    ("password", "password: hunter2"),
    ("password", "My Password is hunter2"),
    ("api_key", "api_key=abcd1234"),
    ("secret", '"client_secret": "abcd1234"'),
    ("card_number", "4111 1111 1111 1111"),
    ("card_number", "4111-1111-1111-1111"),
    ("card_number", "378282246310005"),
    ("card_number", "5555555555554444, 12/28"),
    ("card_number", "4111 1111 1111 1111 123"),
    ("card_number", "2026 4111 1111 1111 1111"),
    ("card_number", "\uff14\uff11\uff11\uff11 1111 1111 1111"),  # full-width digits
]  # fmt: skip

HARMLESS = [
    "english",
    "I prefer short answers",
    "sk-learn over keras",
    "skis, not snowboards",
    "4111 1111 1111 1112",
    "0000 0000 0000 0000",
    "order 1234567890123456",
    "2026-11-22T09:30:00.000000",
    "+49 30 1234567 and +1 555 0100 200",
    "https://example.com:8080/a@b",
    "https://user@example.com/path",
    "password managers: 1Password",
    "the password is not stored here",
    "ghp_short",
    "a bearer of good news and of very long sentences indeed",
    "credit_card_9879898",
    "postgres without passwords",
    "eyJ.eyJ.eyJ",
]


@pytest.mark.parametrize(("kind", "secret"), SECRETS)
def test_secret_is_refused_in_every_field(kind: str, secret: str) -> None:
    reason = Refusal(f"secret:{kind}")
    for text in (secret, f"note: {secret}, please", f"first line\n{secret}\nlast line"):
        assert stop_secrets(Candidate(Fact("note", text))) == reason
        assert stop_secrets(Candidate(Preference(text, "yes"))) == reason
        assert stop_secrets(Candidate(Episode("error"), text=text)) == reason
        assert stop_secrets(Candidate(Fact("a", "b"), tags=("x", text))) == reason
        assert stop_secrets(Candidate(Fact("a", "b"), entities=(text,))) == reason
        assert stop_secrets(Candidate(UnknownKind("contact", {"a": [{"b": text}]}))) == reason


def test_key_can_mark_its_value_as_a_secret() -> None:
    assert stop_secrets(Candidate(Fact("Password", "hunter2"))) == Refusal("secret:password")
    assert stop_secrets(Candidate(Fact("openai_api_key", "abcd1234"))) == Refusal("secret:api_key")
    assert stop_secrets(Candidate(UnknownKind("x", {"card": 4111111111111111}))) == Refusal("secret:card_number")


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_text_passes_unchanged(text: str) -> None:
    candidate = Candidate(Fact("note", text), text=text, tags=(text,))
    assert stop_secrets(candidate) is candidate


@given(st.text(alphabet=st.sampled_from("aZ09 -._:/@sk\n\0é"), max_size=60))
def test_reason_never_contains_the_secret(text: str) -> None:
    refusal = stop_secrets(Candidate(Fact("note", f"{text} password: hunter2")))
    assert isinstance(refusal, Refusal)
    assert re.fullmatch(r"secret:[a-z_]+", refusal.reason)


@given(st.integers(min_value=10**14, max_value=10**15 - 1), st.sampled_from([" ", "-", ""]))
def test_card_number_needs_the_right_check_digit(body: int, gap: str) -> None:
    digits = f"4{str(body)[1:]}"
    total = sum(
        value if (value := int(digit) * (2 - index % 2)) < 10 else value - 9 for index, digit in enumerate(digits)
    )
    expected_check = (10 - total % 10) % 10
    for check in range(10):
        number = f"{digits}{check}"
        text = gap.join(number[start : start + 4] for start in range(0, 16, 4))
        assert [finding.kind for finding in find_secrets(text)] == (["card_number"] if check == expected_check else [])
