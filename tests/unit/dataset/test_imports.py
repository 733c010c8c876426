"""Datasets and rewards are usable, and quick to import, without any training framework."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "ray", "verl", "transformers", "datasets", "pandas")


def loaded_after(statement: str) -> set[str]:
    program = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["aworld_train.dataset", "aworld_train.reward.scoring"])
def test_no_training_framework_is_imported(module: str) -> None:
    assert not loaded_after(f"import {module}").intersection(HEAVY)


def test_the_command_line_imports_pyarrow_only_when_a_command_runs() -> None:
    assert "pyarrow" not in loaded_after("import aworld_train.cli.dataset")
