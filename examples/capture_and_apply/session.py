"""Runs the phases of a session within one time budget.

A stop of the session is a result, not an exception, and its reason is noted in the memory's stream. The session raises
only the errors of the store, and ``InvalidArgument`` for wrong arguments.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field

from agent_memory_log.errors import InvalidArgument, MemoryStopped, ModelEmpty, ModelFailed
from agent_memory_log.events.event import new_event_id
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, check_text, encode_json
from agent_memory_log.memory import Evidence, Record, Source, SyncMemory
from agent_memory_log.memory.extraction.contracts import PreferenceItem
from agent_memory_log.memory.policy import (
    AnswerAudit,
    RetrievalIntent,
    Verifier,
    audit_answer,
    read_candidates,
    read_intent,
)
from agent_memory_log.memory.policy.settings import MemorySettings
from agent_memory_log.memory.records.kinds import kinds
from agent_memory_log.memory.records.protocols import Clock, utc_now
from agent_memory_log.models.answers import read_answer, schema_of
from agent_memory_log.models.deadline import Deadline, Timer
from agent_memory_log.models.port import ModelMessage, ModelPort
from agent_memory_log.models.prompts import read_prompt
from examples.capture_and_apply.results import HistoryEntry, MemoryItem, Phase, SessionResult, TraceStep

SUCCESS = "success"
MAX_SECONDS = "max_seconds"

_SCOPE_DENIED = "scope_denied:"
_PACKAGE = "examples.capture_and_apply"


class _Contract(BaseModel):
    """The base of the schemas for the model's answers. Memory's policy reads proposals and plans itself."""

    model_config = ConfigDict(frozen=True, strict=True)


class Proposals(_Contract):
    """The memories that the model proposes after reading a message."""

    items: tuple[PreferenceItem, ...]


class Plan(_Contract):
    """The search that the model plans."""

    kind: Literal["retrieve_memory"]
    query: Annotated[str, Field(min_length=1)]
    top_k: Annotated[int, Field(ge=1)] | None = None
    scopes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    include_preference_keys: tuple[str, ...] | None = None


class Answer(_Contract):
    """The answer, and the keys of the memories that it cites."""

    answer: str
    used_memory_keys: tuple[str, ...]


class AuditedSession:
    """Runs sessions of one principal with one model. Sessions share only the stored memories.

    The class is synchronous like the model port. An asynchronous caller runs each session in a thread, with a handle of
    its own.

    Args:
        me: The memory of the principal.
        model: The model that proposes, plans and answers.
        settings: The budgets, the model's name, and the keys and scopes that policy allows. Defaults to
            ``MemorySettings()``.
        verifiers: The functions that check whether an answer follows a memory, by key. Defaults to none.
        clock: Returns the current time, for ``ttl_left_days``.
        timer: Returns seconds, for the time budget.
    """

    def __init__(
        self,
        me: SyncMemory,
        model: ModelPort,
        *,
        settings: MemorySettings | None = None,
        verifiers: Mapping[str, Verifier] | None = None,
        clock: Clock = utc_now,
        timer: Timer = time.monotonic,
    ) -> None:
        self.me = me
        self.model = model
        self.settings = settings or MemorySettings()
        self.verifiers = verifiers or {}
        self.clock = clock
        self.timer = timer

    def capture(self, message: str, *, evidence: Sequence[Evidence] = (), run_id: str | None = None) -> SessionResult:
        """Let the model propose memories from a message, and write those that policy allows.

        Args:
            message: The user's message.
            evidence: The events that contain the message, if it is logged.
            run_id: The id of the session. Defaults to a new one.

        Raises:
            InvalidArgument: The message is empty or not a text.
            AgentMemoryLogError: The store failed.
        """
        _check(message, "message")
        return _Steps(self, run_id, tuple(evidence)).capture(message)

    def respond(self, request: str, *, run_id: str | None = None) -> SessionResult:
        """Answer a request with the help of memories, and audit the answer.

        Raises ``InvalidArgument`` for a request that is empty or not a text, and the errors of the store.
        """
        _check(request, "request")
        return _Steps(self, run_id).respond(request)


class _Steps:
    """The state of one session: its phase and its steps so far."""

    def __init__(self, session: AuditedSession, run_id: str | None, evidence: tuple[Evidence, ...] = ()) -> None:
        self._session = session
        self._me = session.me
        self._settings = session.settings
        self._run_id = run_id or new_event_id()
        self._evidence = evidence
        self._deadline = Deadline(session.settings.budgets.max_seconds, session.timer)
        self._phase: Phase = "capture"
        self._trace: list[TraceStep] = []
        self._history: list[HistoryEntry] = []
        self._is_noted = False
        self._retrieved: tuple[Record, ...] = ()
        self._unknown_keys: tuple[str, ...] = ()
        self._raw_intent = ""

    def capture(self, message: str) -> SessionResult:
        try:
            self._capture(message)
        except (MemoryStopped, ModelFailed) as error:
            return self._stopped(error)
        return self._result("ok", SUCCESS)

    def respond(self, request: str) -> SessionResult:
        try:
            self._phase = "retrieve_plan"
            intent = self._plan(request)
            self._phase = "retrieve"
            self._retrieve(intent)
            self._phase = "apply"
            answer, audit = self._apply(request)
        except (MemoryStopped, ModelFailed) as error:
            return self._stopped(error)
        return self._result(
            "ok",
            SUCCESS,
            outcome="memory_applied" if audit.used_keys else "context_only",
            answer=answer,
            used_memory_keys=audit.used_keys,
            applied_memory=self._items(audit.applied),
        )

    def _capture(self, message: str) -> None:
        raw = self._ask("capture", Proposals, ModelMessage("user", message))
        budgets = self._settings.budgets
        logged = self._evidence[0] if self._evidence else None
        candidates = read_candidates(
            raw,
            max_items=budgets.max_capture_items,
            max_value_chars=budgets.max_value_chars,
            source=Source("run", f"{logged.agent}/{logged.run}") if logged else Source("user"),
            evidence=self._evidence,
        )
        proposed: JsonValue = [{"key": candidate.key, "value": candidate.value} for candidate in candidates]
        self._done("propose", {"items": len(candidates)}, proposed)
        report = self._me.write(candidates, phase="capture")
        if report.status == "stopped":
            self._is_noted = True
            _stop(report.stop_reason, "policy stopped the capture")
        outcomes: list[JsonValue] = [
            {"key": outcome.key, "scope": outcome.scope, "action": outcome.action, "reason": outcome.reason}
            for outcome in report.outcomes
        ]
        self._done("write", {"outcomes": outcomes}, [_memory_map(record) for record in self._me.list()])

    def _plan(self, request: str) -> RetrievalIntent:
        budgets = self._settings.budgets
        self._raw_intent = self._ask("plan", Plan, ModelMessage("user", request))
        intent = read_intent(
            self._raw_intent,
            allowed_scopes=self._settings.policy.allowed_scopes,
            max_query_chars=budgets.max_query_chars,
            max_top_k=budgets.max_top_k,
            default_top_k=budgets.default_top_k,
        )
        scopes: JsonValue = None if intent.scopes is None else list(intent.scopes)
        self._done("plan", {"top_k": intent.top_k, "scopes": scopes}, {"query": intent.query})
        return intent

    def _retrieve(self, intent: RetrievalIntent) -> None:
        hits = self._me.search(
            intent.query,
            top_k=intent.top_k,
            scopes=intent.scopes,
            kinds=kinds(),
            boost_preferences=intent.include_preference_keys,
        )
        self._retrieved = tuple(hit.record for hit in hits if hit.record is not None)
        self._check_time()
        keys: list[JsonValue] = list(self._retrieved_keys())
        self._done("retrieve", {"items": len(hits), "keys": keys}, [_memory_map(record) for record in self._retrieved])

    def _apply(self, request: str) -> tuple[str, AnswerAudit]:
        lines = "\n".join(encode_json(_memory_map(record)).decode() for record in self._retrieved) or "(nothing)"
        # The memories are in a separate message before the request, because the request takes precedence.
        raw = self._ask(
            "answer", Answer, ModelMessage("system", f"Remembered:\n{lines}"), ModelMessage("user", request)
        )
        answer = read_answer(raw, Answer)
        if not answer.answer.strip():
            raise ModelEmpty("the model's answer has no text")
        audit = audit_answer(
            answer.answer,
            answer.used_memory_keys,
            self._retrieved,
            verifiers=self._session.verifiers,
            max_chars=self._settings.budgets.max_answer_chars,
        )
        self._unknown_keys = audit.unknown_keys
        if audit.stop_reason:
            _stop(audit.stop_reason, "the answer does not pass its audit")
        detail: dict[str, JsonValue] = {
            "used_memory_keys": list(audit.used_keys),
            "verified": dict(audit.verified),
        }
        self._done("answer", detail, {"answer": answer.answer})
        return answer.answer, audit

    def _ask(self, prompt: str, contract: type[BaseModel], *messages: ModelMessage) -> str:
        model = self._settings.model
        self._check_time()
        completion = self._session.model.complete(
            [ModelMessage("system", "\n".join((read_prompt(_PACKAGE, prompt), *self._limits()))), *messages],
            schema=schema_of(contract),
            max_tokens=model.max_tokens,
            timeout=min(model.timeout_seconds, self._deadline.left()),
            model=model.name,
        )
        self._check_time()
        return completion.text

    def _limits(self) -> Iterator[str]:
        """Yield the keys and scopes that policy allows, in words for the model."""
        policy = self._settings.policy
        for name, allowed in (("key", policy.allowed_keys), ("scope", policy.allowed_scopes)):
            if allowed is not None:
                yield f"- Each {name} is one of: {', '.join(sorted(allowed))}."

    def _check_time(self) -> None:
        if self._deadline.has_passed:
            _stop(MAX_SECONDS, f"the session took more than {self._settings.budgets.max_seconds:g} seconds")

    def _done(self, action: str, detail: dict[str, JsonValue], content: JsonValue) -> None:
        step = len(self._trace) + 1
        self._trace.append(TraceStep(step, self._phase, action, ok=True, detail=detail))
        self._history.append(HistoryEntry(step, self._phase, action, content))

    def _stopped(self, error: MemoryStopped | ModelFailed) -> SessionResult:
        reason = error.reason if isinstance(error, MemoryStopped) else error.code
        if isinstance(error, ModelFailed) and self._deadline.has_passed:
            # The model's timeout was the rest of the time budget.
            reason = MAX_SECONDS
        if not self._is_noted:
            scope = reason.removeprefix(_SCOPE_DENIED) if reason.startswith(_SCOPE_DENIED) else None
            self._me.note_stop(reason, phase=self._phase, scope=scope, evidence=self._evidence)
        step = len(self._trace) + 1
        self._trace.append(TraceStep(step, self._phase, "stop", ok=False, detail={"reason": reason}))
        return self._result("stopped", reason, phase=self._phase, invalid_used_memory_keys=self._unknown_keys)

    def _result(
        self,
        status: Literal["ok", "stopped"],
        stop_reason: str,
        *,
        phase: Phase | Literal[""] = "",
        outcome: Literal["", "memory_applied", "context_only"] = "",
        answer: str = "",
        used_memory_keys: tuple[str, ...] = (),
        applied_memory: tuple[MemoryItem, ...] = (),
        invalid_used_memory_keys: tuple[str, ...] = (),
    ) -> SessionResult:
        return SessionResult(
            run_id=self._run_id,
            status=status,
            stop_reason=stop_reason,
            phase=phase,
            outcome=outcome,
            answer=answer,
            used_memory_keys=used_memory_keys,
            applied_memory=applied_memory,
            memory_state=self._items(self._me.list()),
            trace=tuple(self._trace),
            history=tuple(self._history),
            retrieved_keys=self._retrieved_keys(),
            invalid_used_memory_keys=invalid_used_memory_keys,
            raw_intent=self._raw_intent,
        )

    def _retrieved_keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(record.key for record in self._retrieved if record.key))

    def _items(self, records: Sequence[Record]) -> tuple[MemoryItem, ...]:
        now = self._session.clock()
        return tuple(MemoryItem.of(record, now) for record in records)


def _memory_map(record: Record) -> dict[str, JsonValue]:
    """Return a memory as JSON, for the model and the history."""
    content: dict[str, JsonValue] = {"key": record.key, "value": record.value} if record.key else {"text": record.text}
    return {"kind": record.kind, "scope": record.scope, **content}


def _stop(reason: str, message: str) -> NoReturn:
    raise MemoryStopped(f"{message} ({reason})", reason=reason)


def _check(text: object, name: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgument(f"{name} must be text with more than white space, got {describe(text)}")
    try:
        check_text(text, "")
    except NotJson as error:
        raise InvalidArgument(f"{name} {error}") from error
