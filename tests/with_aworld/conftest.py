"""These tests need an interpreter that has AWorld; ``tests/integration/test_agent_aworld.py`` runs them with one."""

from importlib.util import find_spec

from tests.agents import calculator_tools_fixture

__all__ = ["calculator_tools_fixture"]

collect_ignore_glob = [] if find_spec("aworld") else ["test_*.py"]
