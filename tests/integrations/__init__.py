"""Tests of the integrations with agent frameworks."""
