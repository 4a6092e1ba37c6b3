"""Converts runs to the formats of other tools. Each format has its own package or module.

``atif`` imports and exports runs without loss. ``opentelemetry`` only exports, and needs the extra ``otel``.
"""
