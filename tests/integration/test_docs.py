"""The documentation's site is built strictly and loads nothing from elsewhere; the environment that it shows works."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from aworld_train.env import down, up
from tests.code_blocks import code_blocks
from tests.locations import REPOSITORY

_LOADED = re.compile(
    r"""<(?:script|img|iframe)\b[^>]*\bsrc=["']?([^"'\s>]+)|<link\b[^>]*\bhref=["']?([^"'\s>]+)"""
)
_LOADED_BY_STYLE = re.compile(r"""(?:url\(|@import\s+)["']?([^"')\s]+)""")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of all that the site is made of."""
    shutil.copy(REPOSITORY / "mkdocs.yml", tmp_path)
    shutil.copytree(REPOSITORY / "docs", tmp_path / "docs")
    shutil.copytree(
        REPOSITORY / "aworld_train", tmp_path / "aworld_train", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build the site; programs that look for a network find a proxy that is not there."""
    nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9")
    return subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "--clean"],
        cwd=folder,
        env={**os.environ, **nowhere, "NO_PROXY": "", "no_proxy": "", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_site_is_built_strictly_and_loads_nothing_from_elsewhere(sources: Path) -> None:
    result = build(sources)
    assert result.returncode == 0, result.stdout + result.stderr
    site = sources / "site"
    for page in (sources / "docs").rglob("*.md"):
        assert (site / page.relative_to(sources / "docs").with_suffix(".html")).is_file()
    loaded = {
        target
        for page in site.rglob("*.html")
        for match in _LOADED.findall(page.read_text("utf-8"))
        for target in match
        if target
    }
    loaded |= {
        target
        for sheet in site.rglob("*.css")
        for target in _LOADED_BY_STYLE.findall(sheet.read_text("utf-8"))
    }
    assert loaded, "the pattern finds nothing at all"
    assert sorted(target for target in loaded if re.match(r"(https?:)?//", target)) == []


def test_the_python_reference_is_filled_from_the_docstrings(sources: Path) -> None:
    assert build(sources).returncode == 0
    page = (sources / "site" / "reference" / "python.html").read_text("utf-8")
    named = re.findall(r"(?m)^::: (\S+)$", (sources / "docs" / "reference" / "python.md").read_text("utf-8"))
    assert named
    assert [name for name in named if f'id="{name}"' not in page] == []
    assert "Trains an agent with one of the registered frameworks" in page


@pytest.mark.parametrize(
    "mistake", ["[a page that is not there](nowhere.md)", "[an anchor](concepts.md#nowhere)"]
)
def test_a_broken_link_fails_the_build(mistake: str, sources: Path) -> None:
    page = sources / "docs" / "index.md"
    page.write_text(f"{page.read_text('utf-8')}\n{mistake}\n", "utf-8")
    result = build(sources)
    assert result.returncode != 0
    assert "does not exist" in result.stdout + result.stderr


def test_nothing_in_the_configuration_asks_for_the_network() -> None:
    config = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text("utf-8"))
    assert config["theme"]["font"] is False
    assert "http" not in str(config)


def test_the_environment_of_the_how_to_starts_and_its_tool_answers(tmp_path: Path) -> None:
    folder = tmp_path / "my-tools"
    folder.mkdir()
    for block in code_blocks():
        if block.place.startswith("docs/how-to/environment.md") and block.title.startswith("my-tools/"):
            (folder / Path(block.title).name).write_text(block.text, "utf-8")
    # `up` returns once the server's test call has come back with the text it expects.
    connection = up(str(folder), name="how-to", backend="process", workers=1, wait=120)
    try:
        assert connection.workers == 1
    finally:
        assert down("how-to")
