"""The configuration of the processor: JSON with the keys of its contract, and where a loop's run and memory are.

    settings = ProcessorSettings.from_json(Path("processor.json").read_bytes())
    json.dumps(ProcessorSettings.json_schema())

``ProcessorSettings()`` has the defaults. Each setting of the JSON schema has its type, description, default, and
``x-level``: ``basic`` or ``advanced``. Passwords are no settings: use a file of credentials.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from msgspec import Meta

from agent_memory_log.backend_kit.checks import check_ids
from agent_memory_log.errors import InvalidArgument, InvalidEvent
from agent_memory_log.events.fields import describe
from agent_memory_log.events.reserved import is_reserved
from agent_memory_log.memory.records.principals import CONVERSATIONS, Principal
from agent_memory_log.models.settings import ModelSettings, Settings
from agent_memory_log.processor.loop_memory import CONTEXT_WINDOW
from agent_memory_log.processor.loops import Loop

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_KNOWN = frozenset({"loop_id", "user_id"})
_SUFFIX = r"^[A-Za-z0-9_-]{0,64}$(?!\n)"
_NAME = r"^[A-Za-z0-9_-]{1,64}$(?!\n)"
_SUBJECT = r"^[^\s]+$(?!\n)"


def _basic(description: str) -> Meta:
    return Meta(description=description, extra_json_schema={"x-level": "basic"})


def _advanced(description: str) -> Meta:
    return Meta(description=description, extra_json_schema={"x-level": "advanced"})


Tokens = Annotated[int, Meta(ge=1, le=100_000_000)]
Server = Annotated[str, Meta(pattern=r"^(nats|tls|ws|wss)://[^\s/]+/?$(?!\n)")]


class LlmAssisted(Settings, frozen=True):
    """Extraction of facts by a model."""

    enabled: Annotated[bool, _basic("Whether facts are extracted.")] = True
    model: Annotated[str, _basic("The alias of the model, a key of models.")] = "fast"
    trigger_iteration_interval: Annotated[
        Annotated[int, Meta(ge=0, le=1_000_000)], _basic("Extract every so many iterations. 0: never for this reason.")
    ] = 5
    trigger_context_threshold: Annotated[
        Annotated[float, Meta(gt=0, le=1)], _basic("Extract when this share of the context window is used.")
    ] = 0.8
    max_tokens: Annotated[Tokens, _advanced("The longest answer of the model, in tokens.")] = 1_000


class Extraction(Settings, frozen=True):
    """Extraction of facts."""

    llm_assisted: LlmAssisted = LlmAssisted()


class PreTask(Settings, frozen=True):
    """The context before a task."""

    enabled: Annotated[bool, _basic("Whether a request gets a context. If not, it gets no answer.")] = True
    max_context_tokens: Annotated[Tokens, _basic("The most tokens of the context.")] = 2_000
    include_decisions: Annotated[bool, _advanced("Whether the context has the loop's decisions.")] = True
    include_files: Annotated[bool, _advanced("Whether the context has the files that the loop changed.")] = True


class PostCompaction(Settings, frozen=True):
    """The context after a compaction."""

    enabled: Annotated[bool, _basic("Whether a compaction and a request get a context.")] = True
    reconstruct_from_checkpoint: Annotated[
        bool, _advanced("Whether the context begins from the latest checkpoint of the loop.")
    ] = True
    max_recovery_tokens: Annotated[Tokens, _basic("The most tokens of the context.")] = 1_500


class Hydration(Settings, frozen=True):
    """The contexts for loops."""

    pre_task: PreTask = PreTask()
    post_compaction: PostCompaction = PostCompaction()


class CheckpointSettings(Settings, frozen=True):
    """Checkpoints of loops."""

    enabled: Annotated[bool, _basic("Whether checkpoints are taken.")] = True
    storage_bucket: Annotated[
        Annotated[str, Meta(pattern=_NAME)], _basic("The key-value bucket with a pointer to each checkpoint.")
    ] = "AGENT_MEMORY_CHECKPOINTS"
    retention_days: Annotated[
        Annotated[int, Meta(ge=1, le=3_650)],
        _basic("The days after which a checkpoint expires, and a new bucket drops its pointer."),
    ] = 7


class Ports(Settings, frozen=True):
    """The subjects and buckets. In the subjects of outputs, ``{loop_id}`` stands for the id of the loop."""

    compaction_events: Annotated[
        Annotated[str, Meta(pattern=_SUBJECT)], _advanced("In: the subject of events of contexts.")
    ] = "agent.context.compaction.>"
    hydrate_requests: Annotated[
        Annotated[str, Meta(pattern=_SUBJECT)], _advanced("In: the subject of requests for context.")
    ] = "memory.hydrate.request.*"
    entity_states: Annotated[
        Annotated[str, Meta(pattern=_NAME)], _advanced("In: the key-value bucket with the states of entities.")
    ] = "ENTITY_STATES"
    injected_context: Annotated[Annotated[str, Meta(pattern=_SUBJECT)], _advanced("Out: the subject of contexts.")] = (
        "agent.context.injected.{loop_id}"
    )
    graph_mutations: Annotated[
        Annotated[str, Meta(pattern=_SUBJECT)], _advanced("Out: the subject of changes of the graph.")
    ] = "graph.mutation.{loop_id}"
    checkpoint_events: Annotated[
        Annotated[str, Meta(pattern=_SUBJECT)], _advanced("Out: the subject of new checkpoints.")
    ] = "memory.checkpoint.created.{loop_id}"


class LoopRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The run and the memory of the loops whose ids match a pattern.

    ``{loop_id}`` and ``{user_id}`` in ``agent``, ``run`` and ``scopes`` stand for the ids in the message.

    Attributes:
        agent: The agent of the run.
        scopes: The id in each scope of memory.
        loop_id: A pattern in which ``*`` stands for any text.
        run: The id of the run.
        tenant: The tenant of the memory.
    """

    agent: Annotated[str, Meta(min_length=1)]
    scopes: Annotated[Mapping[str, str], Meta(min_length=1)]
    loop_id: str = "*"
    run: str = "{loop_id}"
    tenant: str = "default"


class ProcessorSettings(Settings, frozen=True):
    """All settings of the processor. The constructor checks each value and names each invalid setting."""

    extraction: Extraction = Extraction()
    hydration: Hydration = Hydration()
    checkpoint: CheckpointSettings = CheckpointSettings()
    stream_name: Annotated[Annotated[str, Meta(pattern=_NAME)], _basic("The stream of the inputs.")] = "AGENT"
    consumer_name_suffix: Annotated[
        Annotated[str, Meta(pattern=_SUFFIX)], _basic("Keeps the consumers of two deployments apart.")
    ] = ""
    ports: Ports = Ports()
    loops: Annotated[tuple[LoopRoute, ...], _basic("The run and the memory of each loop. The first match counts.")] = ()
    models: Annotated[Mapping[str, ModelSettings], _basic("The models by alias. Their key is in OPENAI_API_KEY.")] = (
        msgspec.field(default_factory=dict[str, ModelSettings])
    )
    servers: Annotated[Annotated[tuple[Server, ...], Meta(min_length=1)], _basic("The URLs of the NATS servers.")] = (
        "nats://127.0.0.1:4222",
    )
    credentials_file: Annotated[str | None, _basic("The file with the credentials for NATS.")] = None
    ack_seconds: Annotated[
        Annotated[float, Meta(ge=1, le=3_600)],
        _advanced("The time after which the messages of a processor that died go to another one."),
    ] = 30.0
    context_window: Annotated[Tokens, _advanced("The size of the context of the loops' model, in tokens.")] = (
        CONTEXT_WINDOW
    )
    concurrency: Annotated[
        Annotated[int, Meta(ge=1, le=1_000)], _advanced("The most messages of a port that are handled at a time.")
    ] = 16
    entity_depth: Annotated[
        Annotated[int, Meta(ge=0, le=5)], _advanced("How many relations to follow from a changed entity.")
    ] = 1
    stop_seconds: Annotated[
        Annotated[float, Meta(gt=0, le=3_600)], _advanced("The longest time for a stop to finish accepted messages.")
    ] = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        problems = [*self._port_problems(), *self._loop_problems(), *self._model_problems()]
        if problems:
            raise InvalidArgument(f"invalid settings: {'; '.join(problems)}")

    def _port_problems(self) -> list[str]:
        names = ("injected_context", "graph_mutations", "checkpoint_events")
        outputs = {name: str(getattr(self.ports, name)) for name in names}
        inputs = {name: str(getattr(self.ports, name)) for name in ("compaction_events", "hydrate_requests")}
        problems = [
            f"ports.{name}: a subject without wildcards and with one token {{loop_id}}, got {subject!r}"
            for name, subject in outputs.items()
            if subject.split(".").count("{loop_id}") != 1 or not _is_subject(subject.replace("{loop_id}", "l"))
        ]
        problems += [
            f"ports.{name}: a subject with '*' and '>' as whole tokens, got {subject!r}"
            for name, subject in inputs.items()
            if not _is_filter(subject)
        ]
        # A loop id is checked against the last token of the subject, so nothing checks a token before it.
        problems += [
            f"ports.{name}: a subject whose last token is a wildcard, or without wildcards, got {subject!r}"
            for name, subject in inputs.items()
            if "*" in subject and not subject.endswith(("*", ">"))
        ]
        problems += [
            f"ports.{output}: a subject that ports.{name} does not take, got {subject!r}"
            for output, subject in outputs.items()
            for name, pattern in inputs.items()
            if _takes(pattern, subject.replace("{loop_id}", "l"))
        ]
        if self.checkpoint.storage_bucket == self.ports.entity_states:
            problems.append("checkpoint.storage_bucket: another bucket than that of ports.entity_states")
        return problems

    def _model_problems(self) -> list[str]:
        """Return a problem if the model is named but missing. Without any model, the rules extract."""
        assisted = self.extraction.llm_assisted
        is_default = not self.models and assisted.model == LlmAssisted().model
        if not assisted.enabled or is_default or assisted.model in self.models:
            return []
        aliases = ", ".join(sorted(self.models)) or "no alias"
        return [f"extraction.llm_assisted.model: an alias of models, which has {aliases}, got {assisted.model!r}"]

    def _loop_problems(self) -> list[str]:
        problems: list[str] = []
        for number, loop in enumerate(self.loops):
            texts = {"agent": loop.agent, "run": loop.run, "tenant": loop.tenant}
            texts |= {f"scopes.{scope}": value for scope, value in loop.scopes.items()}
            for name, text in texts.items():
                unknown = set(_PLACEHOLDER.findall(text)) - (_KNOWN if name != "tenant" else frozenset())
                if unknown:
                    problems.append(
                        f"loops[{number}].{name}: {{{min(unknown)}}} is no placeholder here; agent, run and scopes may "
                        "have {loop_id} and {user_id}"
                    )
            try:
                _filled(loop, defaultdict(lambda: "x"))
            except (InvalidArgument, InvalidEvent) as error:
                problems.append(f"loops[{number}]: {error}")
        return problems

    def route(self, loop_id: str, user_id: str | None) -> Loop | None:
        """Return where the run and the memory of a loop are, or None if no entry of ``loops`` matches.

        An entry with ``{user_id}`` matches only if the id of the user is known.
        """
        values = {"loop_id": loop_id} if user_id is None else {"loop_id": loop_id, "user_id": user_id}
        for loop in self.loops:
            if fnmatchcase(loop_id, _only_stars(loop.loop_id)):
                try:
                    return _filled(loop, values)
                except (KeyError, InvalidArgument, InvalidEvent):
                    return None
        return None


def _only_stars(pattern: str) -> str:
    """Return a pattern for ``fnmatch`` in which only ``*`` has a meaning."""
    return re.sub(r"[?\[]", lambda match: f"[{match[0]}]", pattern)


def _filled(loop: LoopRoute, values: Mapping[str, str]) -> Loop:
    """Return the route for a loop.

    Raises ``KeyError`` for a missing value, and ``InvalidArgument`` or ``InvalidEvent`` for an invalid one.
    """

    def fill(text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: values[match[1]], text)

    agent = fill(loop.agent)
    if is_reserved(agent) or agent.startswith(CONVERSATIONS):
        raise InvalidArgument(f"agent: agents that begin with @ or {CONVERSATIONS} hold memory, got {describe(agent)}")
    run = fill(loop.run)
    check_ids(agent, run)
    scopes = {scope: fill(value) for scope, value in loop.scopes.items()}
    return Loop(agent, run, Principal(loop.tenant, scopes))


def _is_subject(text: str) -> bool:
    tokens = text.split(".")
    return all(tokens) and not set("*>") & set(text) and text.isprintable()


def _is_filter(text: str) -> bool:
    tokens = text.removesuffix(".>").split(".")
    return all(part == "*" or (part and not set("*>") & set(part)) for part in tokens)


def _takes(pattern: str, subject: str) -> bool:
    """Return whether a consumer with the subject ``pattern`` takes messages on ``subject``."""
    return bool(re.fullmatch(re.escape(pattern).replace(r"\*", r"[^.]+").replace(">", ".+"), subject))
