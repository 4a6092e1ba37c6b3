"""Runs in the formats that other tools speak: one package or module for each.

``atif`` goes both ways, without loss; ``opentelemetry`` goes out only, and needs the extra ``otel``.
"""
