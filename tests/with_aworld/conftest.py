"""These tests need packages that the project does not; ``tests/integration/test_agent_aworld.py`` provides them."""

from importlib.util import find_spec

from tests.agents import calculator_tools_fixture

__all__ = ["calculator_tools_fixture"]

collect_ignore_glob = [] if find_spec("aworld") else ["test_aworld_*.py"]
