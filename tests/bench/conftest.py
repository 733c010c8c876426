"""Benchmarks measure ratios against a peer in the same run; they share the end-to-end tests' workspace."""

from tests.e2e.conftest import workspace

__all__ = ["workspace"]
