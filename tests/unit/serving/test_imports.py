"""What runs in containers and beside tool servers brings little along: it is copied into images that have no more."""

import ast
import sys
from pathlib import Path

import pytest

import aworld_train.serving

FOLDER = Path(aworld_train.serving.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
# Installed in images by `aworld_train.env.images`; psutil is for `local`, which runs outside of them.
INSTALLED = {"aiohttp", "jwt", "prometheus_client"}


def imported_by(file: Path) -> set[str]:
    """The modules, in functions too, by their whole names."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            modules |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module is not None
            modules.add(node.module)
    return modules


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(FOLDER)))
def test_it_imports_nothing_that_an_image_does_not_have(file: Path) -> None:
    imported = imported_by(file)
    allowed, own_allowed = INSTALLED | sys.stdlib_module_names | {"aworld_train"}, {"aworld_train.errors"}
    if file == FOLDER / "local.py":
        allowed |= {"psutil"}
        own_allowed |= {"aworld_train.process_supervisor"}
    assert {name.partition(".")[0] for name in imported} <= allowed
    own_modules = {name for name in imported if name.startswith("aworld_train")}
    assert {name for name in own_modules if not name.startswith("aworld_train.serving")} <= own_allowed


def test_the_spawner_needs_the_standard_library_alone() -> None:
    assert {name.partition(".")[0] for name in imported_by(FOLDER / "worker" / "spawner.py")} <= (
        sys.stdlib_module_names
    )


def test_errors_need_the_standard_library_alone() -> None:
    for name in ("__init__.py", "errors.py", "masking.py"):
        imported = imported_by(FOLDER.parent / name) - {"aworld_train.masking"}
        assert {one.partition(".")[0] for one in imported} <= sys.stdlib_module_names
