"""The processor on NATS JetStream. The log is the truth, and NATS is the transport.

    settings = ProcessorSettings.from_json(Path("processor.json").read_bytes())
    with extractor_of(settings) as extractor:
        component = Component(settings, store, extractor=extractor)

It needs the extra ``nats``.
"""

from agent_memory_log.processor.transport.component import Component, Health, Metadata, PortInfo, Registry, register
from agent_memory_log.processor.transport.configuration import LoopRoute, ProcessorSettings
from agent_memory_log.processor.transport.messages import (
    CheckpointEventMessage,
    ContextEvent,
    GraphMutationMessage,
    HydrateRequest,
    InjectedContextMessage,
)
from agent_memory_log.processor.transport.metrics import DataFlow
from agent_memory_log.processor.transport.models import extractor_of

__all__ = [
    "CheckpointEventMessage",
    "Component",
    "ContextEvent",
    "DataFlow",
    "GraphMutationMessage",
    "Health",
    "HydrateRequest",
    "InjectedContextMessage",
    "LoopRoute",
    "Metadata",
    "PortInfo",
    "ProcessorSettings",
    "Registry",
    "extractor_of",
    "register",
]
