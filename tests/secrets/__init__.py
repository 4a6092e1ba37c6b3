"""Tests of secrets."""
