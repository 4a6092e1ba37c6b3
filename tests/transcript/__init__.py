"""Tests of transcript."""
