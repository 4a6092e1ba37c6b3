"""Defines the base class of rule checkers, with the rules for ids and names of calls."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from agent_memory_log.events.fields import describe
from agent_memory_log.transcript.findings import Finding, Path
from agent_memory_log.transcript.names import WireRules
from agent_memory_log.transcript.validity.signed_reasoning import SignedBlock


class RuleChecker:
    """Reads every message once and collects findings.

    Attributes:
        findings: The findings so far.
        names: The tool names that are known to be valid.
        open_calls: The calls without a result so far, by id. Legacy calls have the id None.
        signed: The blocks of reasoning.
    """

    def __init__(self, wire_rules: WireRules) -> None:
        self.findings: list[Finding] = []
        self.names: set[str] = set()
        self.open_calls: dict[str | None, Path] = {}
        self.signed: list[SignedBlock] = []
        self._wire_rules = wire_rules

    def find(self, rule: str, message: str, path: Path) -> None:
        """Add a finding."""
        self.findings.append(Finding(rule, message, path))

    def check_name(self, name: str, path: Path) -> None:
        """Check the rule ``tool_name``: the characters and the length of a tool's name."""
        if self._wire_rules.allows_name(name):
            self.names.add(name)
            return
        longest = self._wire_rules.longest_name
        message = f"a tool's name must have 1 to {longest} letters, digits, '_' or '-', got {describe(name)}"
        self.find("tool_name", message, path)

    def check_id(self, call_id: str, path: Path) -> None:
        """Check the rule ``call_id``: the characters and the length of a call's id."""
        rules = self._wire_rules
        if not rules.allows_id(call_id):
            length = f"1 to {rules.longest_id}" if rules.longest_id else "some"
            characters = (
                "characters"
                if rules.id_pattern is None
                else f"characters of {rules.id_pattern.pattern.removesuffix('+')}"
            )
            self.find("call_id", f"a call's id must have {length} {characters}, got {describe(call_id)}", path)

    def end_calls(self, answered: AbstractSet[str] = frozenset()) -> None:
        """Check the rule ``unanswered_call`` for the open calls, except those in ``answered``, and close all calls."""
        for call_id, path in self.open_calls.items():
            if call_id not in answered:
                self.find("unanswered_call", f"the call {call_id!r} has no result directly after it", path)
        self.open_calls = {}
