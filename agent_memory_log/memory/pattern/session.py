"""A session: the phases one after the other, each with its boundary, within one budget of time.

What stops a session is noted in memory's stream with its reason, and is a result, not an exception: exceptions are for
what the store raises, and for arguments that cannot be.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

from pydantic import BaseModel

from agent_memory_log.errors import InvalidArgument, MemoryStopped, ModelEmpty, ModelFailed
from agent_memory_log.events.event import new_event_id
from agent_memory_log.events.fields import describe
from agent_memory_log.events.jsonvalue import JsonValue, NotJson, check_text, encode_json
from agent_memory_log.memory.pattern.contracts import Answer, Plan, Proposals
from agent_memory_log.memory.pattern.results import HistoryEntry, MemoryItem, PatternResult, Phase, TraceStep
from agent_memory_log.memory.pattern.verifiers import VERIFIERS, Verifier, verified
from agent_memory_log.memory.policy import RetrievalIntent, read_candidates, read_intent
from agent_memory_log.memory.records.kinds import fold_key, kinds
from agent_memory_log.memory.records.protocols import Clock, utc_now
from agent_memory_log.memory.records.record import Evidence, Source
from agent_memory_log.memory.settings import MemorySettings
from agent_memory_log.memory.sync import SyncMemory
from agent_memory_log.models.answers import read_answer, schema_of
from agent_memory_log.models.deadline import Deadline, Timer
from agent_memory_log.models.port import ModelMessage, ModelPort
from agent_memory_log.models.prompts import read_prompt

SUCCESS = "success"
MAX_SECONDS = "max_seconds"
OUT_OF_CONTEXT = "invalid_answer:memory_keys_out_of_context"
TOO_LONG = "invalid_answer:too_long"
NOT_APPLIED = "invalid_answer:memory_declared_but_not_applied"

_SCOPE_DENIED = "scope_denied:"
_PACKAGE = "agent_memory_log.memory.pattern"


class PatternSession:
    """Sessions of one principal with one model. Nothing is kept between them but what is in memory.

    - ``settings``: the budgets, the model's name, the scopes that policy allows; the defaults unless given.
    - ``verifiers``: what proves that an answer follows a memory; ``VERIFIERS`` unless given.
    - ``clock``: what time it is, for ``ttl_left_days``; ``timer``: seconds, for the budget of time.

    Synchronous, as the model port is: an asynchronous caller runs a session in a thread, with a handle of its own.
    """

    def __init__(
        self,
        me: SyncMemory,
        model: ModelPort,
        *,
        settings: MemorySettings | None = None,
        verifiers: Mapping[str, Verifier] = VERIFIERS,
        clock: Clock = utc_now,
        timer: Timer = time.monotonic,
    ) -> None:
        self._me = me
        self._model = model
        self._settings = settings or MemorySettings()
        self._verifiers = verifiers
        self._clock = clock
        self._timer = timer

    def capture(self, message: str, *, evidence: Sequence[Evidence] = (), run_id: str | None = None) -> PatternResult:
        """Have the model propose what a message says that is worth remembering, and write what may be written.

        ``evidence``: the events that hold the message, where it is logged. Raises ``InvalidArgument`` for a message
        that is no text, and what the store raises.
        """
        _check(message, "message")
        return self._session(run_id).capture(message, tuple(evidence))

    def respond(self, request: str, *, run_id: str | None = None) -> PatternResult:
        """Answer a request with the help of what is remembered, and prove that the answer follows what it declares.

        Raises ``InvalidArgument`` for a request that is no text, and what the store raises.
        """
        _check(request, "request")
        return self._session(run_id).respond(request)

    def _session(self, run_id: str | None) -> _Session:
        return _Session(
            self._me, self._model, self._settings, self._verifiers, self._clock, self._timer, run_id or new_event_id()
        )


class _Session:
    """One session: what it has done so far."""

    def __init__(
        self,
        me: SyncMemory,
        model: ModelPort,
        settings: MemorySettings,
        verifiers: Mapping[str, Verifier],
        clock: Clock,
        timer: Timer,
        run_id: str,
    ) -> None:
        self._me = me
        self._model = model
        self._settings = settings
        self._verifiers = verifiers
        self._clock = clock
        self._run_id = run_id
        self._deadline = Deadline(settings.budgets.max_seconds, timer)
        self._phase: Phase = "capture"
        self._trace: list[TraceStep] = []
        self._history: list[HistoryEntry] = []
        self._evidence: tuple[Evidence, ...] = ()
        self._is_noted = False
        self._retrieved: tuple[MemoryItem, ...] = ()
        self._invalid: tuple[str, ...] = ()
        self._raw_intent = ""

    def capture(self, message: str, evidence: tuple[Evidence, ...]) -> PatternResult:
        self._evidence = evidence
        try:
            self._capture(message)
        except (MemoryStopped, ModelFailed) as error:
            return self._stopped(error)
        return PatternResult(
            run_id=self._run_id,
            status="ok",
            stop_reason=SUCCESS,
            memory_state=self._memory_state(),
            trace=tuple(self._trace),
            history=tuple(self._history),
        )

    def respond(self, request: str) -> PatternResult:
        try:
            self._phase = "retrieve_plan"
            intent = self._plan(request)
            self._phase = "retrieve"
            self._retrieve(intent)
            self._phase = "apply"
            answer = self._apply(request)
        except (MemoryStopped, ModelFailed) as error:
            return self._stopped(error)
        used = {fold_key(key) for key in answer.used_memory_keys}
        return PatternResult(
            run_id=self._run_id,
            status="ok",
            stop_reason=SUCCESS,
            outcome="memory_applied" if used else "context_only",
            answer=answer.answer,
            used_memory_keys=answer.used_memory_keys,
            applied_memory=tuple(item for item in self._retrieved if fold_key(item.key) in used),
            memory_state=self._memory_state(),
            trace=tuple(self._trace),
            history=tuple(self._history),
            retrieved_keys=self._retrieved_keys(),
            raw_intent=self._raw_intent,
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
        self._done("propose", {"items": len(candidates)}, [{"key": one.key, "value": one.value} for one in candidates])
        report = self._me.write(candidates, phase="capture")
        if report.status == "stopped":
            self._is_noted = True
            raise MemoryStopped(f"policy stopped the capture: {report.stop_reason}", reason=report.stop_reason)
        outcomes: list[JsonValue] = [
            {"key": one.key, "scope": one.scope, "action": one.action, "reason": one.reason} for one in report.outcomes
        ]
        self._done("write", {"outcomes": outcomes}, [_shown(item) for item in self._memory_state()])

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
        hits = self._me.search(intent.query, top_k=intent.top_k, scopes=intent.scopes, kinds=kinds())
        now = self._clock()
        self._retrieved = tuple(MemoryItem.of(hit.record, now) for hit in hits if hit.record is not None)
        self._in_time()
        keys: list[JsonValue] = list(self._retrieved_keys())
        self._done("retrieve", {"items": len(hits), "keys": keys}, [_shown(item) for item in self._retrieved])

    def _apply(self, request: str) -> Answer:
        known = "\n".join(encode_json(_shown(item)).decode() for item in self._retrieved) or "(nothing)"
        # Memory stands in a message of its own, before the user's, whose present words win.
        raw = self._ask(
            "answer", Answer, ModelMessage("system", f"Remembered:\n{known}"), ModelMessage("user", request)
        )
        answer = read_answer(raw, Answer)
        if not answer.answer.strip():
            raise ModelEmpty("the model's answer has no text")
        by_key = {fold_key(item.key): item.key for item in self._retrieved if item.key}
        declared = tuple(dict.fromkeys(answer.used_memory_keys))
        self._invalid = tuple(sorted(key for key in declared if fold_key(key) not in by_key))
        if self._invalid:
            _stop(OUT_OF_CONTEXT, "the answer declares memories that were not retrieved")
        most = self._settings.budgets.max_answer_chars
        if len(answer.answer) > most:
            _stop(TOO_LONG, f"the answer has {len(answer.answer)} characters, over {most}")
        used = tuple(dict.fromkeys(by_key[fold_key(key)] for key in declared))
        items = [item for item in self._retrieved if item.key and by_key[fold_key(item.key)] in used]
        proven = verified(items, answer.answer, self._verifiers)
        if proven and not any(proven.values()):
            _stop(NOT_APPLIED, f"the answer declares {', '.join(sorted(proven))}, and follows none of them")
        detail: dict[str, JsonValue] = {"used_memory_keys": list(used), "verified": dict(proven)}
        self._done("answer", detail, {"answer": answer.answer})
        return Answer(answer=answer.answer, used_memory_keys=used)

    def _ask(self, prompt: str, contract: type[BaseModel], *messages: ModelMessage) -> str:
        model = self._settings.model
        self._in_time()
        completion = self._model.complete(
            [ModelMessage("system", read_prompt(_PACKAGE, prompt)), *messages],
            schema=schema_of(contract),
            max_tokens=model.max_tokens,
            timeout=min(model.timeout_seconds, self._deadline.left()),
            model=model.name,
        )
        self._in_time()
        return completion.text

    def _in_time(self) -> None:
        if self._deadline.has_passed:
            _stop(MAX_SECONDS, f"the session took more than {self._settings.budgets.max_seconds:g} seconds")

    def _done(self, action: str, detail: dict[str, JsonValue], content: JsonValue) -> None:
        step = len(self._trace) + 1
        self._trace.append(TraceStep(step, self._phase, action, ok=True, detail=detail))
        self._history.append(HistoryEntry(step, self._phase, action, content))

    def _stopped(self, error: MemoryStopped | ModelFailed) -> PatternResult:
        reason = error.reason if isinstance(error, MemoryStopped) else error.code
        if isinstance(error, ModelFailed) and self._deadline.has_passed:
            # The model was only given the time that was left.
            reason = MAX_SECONDS
        if not self._is_noted:
            scope = reason.removeprefix(_SCOPE_DENIED) if reason.startswith(_SCOPE_DENIED) else None
            self._me.note_stop(reason, phase=self._phase, scope=scope, evidence=self._evidence)
        step = len(self._trace) + 1
        self._trace.append(TraceStep(step, self._phase, "stop", ok=False, detail={"reason": reason}))
        return PatternResult(
            run_id=self._run_id,
            status="stopped",
            stop_reason=reason,
            phase=self._phase,
            memory_state=self._memory_state(),
            trace=tuple(self._trace),
            history=tuple(self._history),
            retrieved_keys=self._retrieved_keys(),
            invalid_used_memory_keys=self._invalid,
            raw_intent=self._raw_intent,
        )

    def _retrieved_keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(item.key for item in self._retrieved if item.key))

    def _memory_state(self) -> tuple[MemoryItem, ...]:
        now = self._clock()
        return tuple(MemoryItem.of(record, now) for record in self._me.list())


def _shown(item: MemoryItem) -> dict[str, JsonValue]:
    shown: dict[str, JsonValue] = {"kind": item.kind, "scope": item.scope}
    return shown | ({"key": item.key, "value": item.value} if item.key else {"text": item.text})


def _stop(reason: str, message: str) -> NoReturn:
    raise MemoryStopped(f"{message} ({reason})", reason=reason)


def _check(text: object, name: str) -> None:
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgument(f"{name} must be text that is not white space alone, found {describe(text)}")
    try:
        check_text(text, "")
    except NotJson as error:
        raise InvalidArgument(f"{name} {error}") from error
