"""AWorld agents, in an interpreter that has AWorld."""

import pytest

from tests.aworld_environment import aworld_python, run_with_aworld


@pytest.mark.timeout(900)
def test_aworld_agents_do_what_their_tests_say() -> None:
    aworld_python()
    done = run_with_aworld("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/with_aworld", timeout=500)
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
