"""No server of gaia-mcp-server is said to work when its main path is broken: each is broken once, and `env up` says so.

Packages cannot be imported, programs are missing, samples and answers are damaged: in a copy of the directory, one half
of the servers at a time, so that the other half shows that nothing else is blamed.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import ClientSession

from aworld_train.env import down, find, up
from aworld_train.env.directory import EnvDirectory, find_directory
from aworld_train.env.interpreter import find_interpreter
from aworld_train.errors import EnvironmentFailure
from tests.environments import session, text_of

# The function that every supported release of the MCP SDK has is deprecated in the latest ones.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Use `streamable_http_client`:DeprecationWarning"),
    pytest.mark.timeout(900),  # the first test may have to install what the tools need
]

NAME = "gaia-broken"
PACKAGES = {
    "mammoth": ["documents-docx-server"],
    "markdownify": ["documents-html-server", "documents-epub-server", "wiki-server"],
    "pdfplumber": ["documents-pdf-server"],
    "pptx": ["documents-pptx-server"],
    "python_calamine": ["documents-csv-server"],
    "trafilatura": ["readweb-server", "wayback-server"],
}
PROGRAMS = {
    "chromium": ["browseruse-server"],
    "chromium-browser": ["browseruse-server"],
    "google-chrome": ["browseruse-server"],
    "ffmpeg": ["media-audio-server", "media-video-server"],
    "tesseract": ["media-image-server"],
}
SAMPLES = {
    "files.zip": ["documents-zip-server"],
    "note.txt": ["documents-txt-server"],
    "site/api/query": ["parxiv-server"],
    "site/customsearch/v1": ["googlesearch-server"],
    "site/note.txt": ["download-server"],
    "site/v1/chat/completions": [f"intelligence-{kind}-server" for kind in ("code", "think", "guard")],
}
OTHERS = ["python-server", "terminal-server"]


def servers_of(*broken: dict[str, list[str]]) -> set[str]:
    return {server for one in broken for servers in one.values() for server in servers}


@pytest.fixture
def copied(state: None, tmp_path: Path) -> Iterator[EnvDirectory]:
    """A copy of the directory, to be broken."""
    original = find_directory("gaia-mcp-server")
    find_interpreter(original, print)  # while no program is missing
    folder = tmp_path / "copy"
    shutil.copytree(original.path, folder, ignore=shutil.ignore_patterns("tests", "__pycache__", ".*"))
    yield find_directory(folder)
    down(NAME)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Keys that turn every server on; nothing answers at the endpoints that they name."""
    names = [
        f"{kind}_LLM_{part}" for kind in ("CODE", "THINK", "GUARD") for part in ("API_KEY", "MODEL_NAME")
    ]
    lines = [f"{name}=x" for name in (*names, "GOOGLE_API_KEY", "GOOGLE_CSE_ID")]
    lines += [f"{kind}_LLM_BASE_URL=http://127.0.0.1:1/v1" for kind in ("CODE", "THINK", "GUARD")]
    file = tmp_path / "keys"
    file.write_text("\n".join(lines))
    return file


def hide(programs: set[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PATH have all programs but these."""
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for program in Path(place).glob("*") if place else ():
            link = folder / program.name
            if program.name not in programs:
                link.unlink(missing_ok=True)
                link.symlink_to(program.absolute())
    monkeypatch.setenv("PATH", str(folder))


def blamed(directory: EnvDirectory, keys: Path) -> set[str]:
    """The servers of which `env up` says that they do not work."""
    with pytest.raises(EnvironmentFailure) as failure:
        up(directory.path, name=NAME, backend="process", workers=1, env_file=keys)
    assert find(NAME) is None
    return set(re.findall(r"The tool '\w+' of '([\w-]+)' at \S+ does not work", failure.value.message))


def test_every_server_is_broken_once() -> None:
    entries = find_directory("gaia-mcp-server").manifest.servers
    assert {name for name, entry in entries.items() if entry.test is None} == set()
    first, second = servers_of(PACKAGES, PROGRAMS), servers_of(SAMPLES, {"": OTHERS})
    assert not first & second
    assert first | second == set(entries)


def test_what_lacks_a_package_or_a_program_is_named_and_nothing_else(
    copied: EnvDirectory, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in PACKAGES:
        (copied.path / f"{package}.py").write_text(f"raise ImportError('{package} is broken')\n")
    hide(set(PROGRAMS), tmp_path / "programs", monkeypatch)
    assert blamed(copied, keys) == servers_of(PACKAGES, PROGRAMS)


def test_what_gets_a_wrong_answer_or_cannot_run_code_is_named_and_nothing_else(
    copied: EnvDirectory, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sample in SAMPLES:
        (copied.path / "samples" / sample).write_bytes(b"")
    module = copied.path / "gaia_tools/python_code.py"
    module.write_text(module.read_text().replace("[sys.executable,", "['/nowhere/python',"))
    hide({"bash"}, tmp_path / "programs", monkeypatch)
    assert blamed(copied, keys) == servers_of(SAMPLES, {"": OTHERS})


async def printed(opened: ClientSession, text: str) -> str:
    return text_of(await opened.call_tool("execute_command", {"command": f"echo '{text}'"}))


async def test_a_whole_directory_comes_up_and_other_sessions_have_nothing_of_the_check(
    copied: EnvDirectory, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as behind_a_proxy:
        for variable in (
            "HTTP_PROXY",
            "HTTPS_PROXY",
        ):  # nothing answers there: the check does not go through it
            behind_a_proxy.setenv(variable, "http://127.0.0.1:1")
        connection = up(copied.path, name=NAME, backend="process", workers=1, env_file=keys)
    async with session(connection) as opened:
        assert "{here}" in await printed(opened, "{here}")
        refused = await opened.call_tool("generate_python_code", {"task_description": "Count the gulls."})
        assert refused.isError
