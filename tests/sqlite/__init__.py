"""Tests of the backend sqlite."""
