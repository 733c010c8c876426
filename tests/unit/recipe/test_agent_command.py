"""The program of ``agent.command`` is looked at by its own interpreter, and not run."""

import re
import sys
from pathlib import Path

import pytest

from aworld_train.recipe.agent_command import command_fault

MAIN = "import json\nfrom beside import x\nimport os.path, {0}\nopen('was-run', 'w')\n"


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        (["python", "good.py"], None),
        (["python3", "-u", "good.py", "--key", "x"], None),
        ([sys.executable, "-m", "good"], None),
        (["python", "-m", "folder.good"], None),
        (["python", "-c", "import no_such_module"], None),
        (["python", "optional.py"], None),
        (["python", "elsewhere.py"], None),
        (["python", "-m", "indirectly_elsewhere"], None),
        (["cat", "bad.py"], None),
        (["python", "bad.py"], r"bad\.py, line 3 imports 'no_such_module', which .* does not find"),
        (["python", "-u", "-m", "bad"], r"bad\.py, line 3 imports 'no_such_module'"),
        (["python", "indirect.py"], r"bad\.py, line 3 imports 'no_such_module'"),
        (["python", "-m", "no_such_module.x"], r"does not find the module 'no_such_module\.x'"),
        (["python", "broken.py"], r"broken\.py, line 1: .*never closed"),
        (["python", "absent.py"], r"No such file: 'absent\.py'"),
        (["no-such-program"], r"'no-such-program' is not a program"),
        (["./python3.11", "good.py"], r"python3\.11 ends with code 3 at its start"),
    ],
)
def test_a_program_that_could_not_start_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], fault: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, text in {
        "beside.py": "x = 1",
        "good.py": MAIN.format("aworld_train"),
        "folder/good.py": "import json",
        "bad.py": MAIN.format("no_such_module"),
        "indirect.py": "import bad",
        "optional.py": "try:\n    import no_such_module\nexcept ImportError:\n    pass\n",
        "elsewhere.py": "import sys\nsys.path.append('lib')\nimport no_such_module\n",
        "indirectly_elsewhere.py": "import elsewhere, no_such_module\n",
        "broken.py": "print(",
        "python3.11": "#!/bin/sh\nexit 3\n",
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "python3.11").chmod(0o755)
    found = command_fault(command)
    assert not (tmp_path / "was-run").exists()
    if fault is None:
        assert found is None
    else:
        assert found is not None
        assert re.search(fault, found[0]), found[0]
