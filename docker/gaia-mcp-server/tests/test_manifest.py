"""What servers.yaml says is there: names and parameters that models know, keys, packages, the README's table."""

import ast
import importlib
import importlib.metadata
import json
import operator
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import packages
import pytest
import yaml
from mcp.server.fastmcp import FastMCP

from tests.recorded_calls import given
from tests.table import BEGIN, END, README, table

HERE = Path(__file__).parent.parent
MANIFEST: dict[str, Any] = yaml.safe_load((HERE / "servers.yaml").read_text(encoding="utf-8"))
SERVERS: dict[str, dict[str, Any]] = MANIFEST["servers"]
# Names and parameters that prompts and models know; those with a star are required. Others may be added.
KNOWN = {
    "readweb-server": ["read_url(url*, include_images)"],
    "browseruse-server": [
        "complete_browser_task(task*)",
        "browser_use(task*, max_steps, extract_format)",
        "get_browser_capabilities()",
    ],
    "documents-csv-server": [
        "extract_csv_content(file_path*, output_format, max_rows, include_statistics, generate_visualizations, "
        "encoding, delimiter)",
        "list_supported_formats()",
    ],
    "documents-docx-server": [
        "extract_docx_content(file_path*, output_format, extract_images, extract_tables, extract_headers_footers, "
        "include_structure)"
    ],
    "documents-pptx-server": [
        "extract_pptx_content(file_path*, output_format, extract_images, extract_notes, include_structure)"
    ],
    "documents-pdf-server": ["convert_document_to_markdown(file_path*, paginate)"],
    "documents-txt-server": ["extract_text_content(file_path*, output_format, encoding, max_content_length)"],
    "download-server": ["download_file(url*, output_file_path*, overwrite, timeout, output_format)"],
    "intelligence-code-server": [
        "generate_python_code(task_description*, requirements, context, temperature, code_style, save_to_file_path)"
    ],
    "intelligence-think-server": [
        "complex_problem_reasoning(question*, original_task, temperature, reasoning_style)"
    ],
    "intelligence-guard-server": [
        "guarding_reasoning_process(question*, original_task, temperature, guarding_style)"
    ],
    "media-audio-server": [
        "transcribe_audio(file_path*, model_size, output_format)",
        "extract_audio_metadata(file_path*)",
        "trim_audio(file_path*, start_time*, duration)",
    ],
    "media-image-server": [
        "extract_text_ocr(file_path*, language, preprocess)",
        "analyze_image_ai(file_path*, task)",
        "get_image_metadata(file_path*)",
    ],
    "media-video-server": [
        "analyze_video(video_url*, question*, sample_rate, start_time, end_time, output_format, max_workers)",
        "summarize_video(video_url*)",
        "extract_keyframes(video_path*, target_time*, window_size, output_dir, output_format)",
    ],
    "parxiv-server": [
        "search_papers(query*, sort_by, sort_order, category, output_format)",
        "get_paper_details(paper_id*)",
        "download_paper(paper_id*, extract_text)",
        "get_categories()",
    ],
    "terminal-server": ["execute_command(command*, timeout, output_format)", "get_command_history(count)"],
    "wayback-server": [
        "list_archived_versions(url*, limit, from_date, to_date)",
        "get_archived_content(url*, timestamp*, extract_text_only, truncate_content)",
    ],
    "wiki-server": [
        "search_wikipedia(query*, limit, language)",
        "get_article_content(title*)",
        "get_article_summary(title*)",
        "get_article_categories(title*)",
        "get_article_links(title*)",
        "get_article_history(title*, date*)",
    ],
    "googlesearch-server": [
        "search_google(query*, num_results, safe_search, language, country, output_format)"
    ],
}


def server_of(name: str) -> FastMCP:
    module, _, function = SERVERS[name]["function"].partition(":")
    found = operator.attrgetter(function.rpartition(".")[0])(importlib.import_module(module))
    assert isinstance(found, FastMCP)
    return found


def test_the_servers_that_models_know_are_there() -> None:
    assert len(KNOWN) == 19
    assert set(KNOWN) <= set(SERVERS)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_has_its_name_and_the_tools_that_models_know(name: str) -> None:
    assert server_of(name).name == name
    tools = {tool.name: tool for tool in await server_of(name).list_tools()}
    for known in KNOWN.get(name, []):
        tool, _, listed = known.rstrip(")").partition("(")
        parameters = [one for one in listed.split(", ") if one]
        schema = tools[tool].inputSchema
        assert list(schema["properties"])[: len(parameters)] == [one.rstrip("*") for one in parameters]
        assert schema.get("required", []) == [one.rstrip("*") for one in parameters if one.endswith("*")]


@pytest.mark.parametrize("name", SERVERS)
async def test_every_tool_and_parameter_is_described(name: str) -> None:
    for tool in await server_of(name).list_tools():
        assert tool.description, tool.name
        for parameter, said in tool.inputSchema["properties"].items():
            assert said.get("description"), f"{tool.name}: {parameter}"


@pytest.mark.parametrize("name", SERVERS)
async def test_the_test_call_is_of_a_tool_that_there_is(name: str) -> None:
    call = SERVERS[name]["test"]
    tools = {tool.name: tool for tool in await server_of(name).list_tools()}
    assert set(call["arguments"]) <= set(tools[call["tool"]].inputSchema["properties"])


def test_the_test_calls_find_what_they_read() -> None:
    text = (HERE / "servers.yaml").read_text(encoding="utf-8")
    named = re.findall(r"\{here\}/([\w./-]+)", text) + re.findall(r"site: ([\w./-]+)", text)
    named += [f"samples/site/{path}" for path in re.findall(r'url: "\{site\}/([\w./-]+)"', text)]
    assert len(named) > 20
    assert [path for path in named if not (HERE / path).exists()] == []


def test_importing_all_servers_starts_no_thread_and_loads_nothing_heavy() -> None:
    """Servers are forked from a process that has imported all of them."""
    modules = [entry["function"].partition(":")[0] for entry in SERVERS.values()]
    code = (
        "import importlib, json, sys, threading\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        "print(json.dumps([threading.active_count(), sorted({name.partition('.')[0] for name in sys.modules})]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True)
    threads, loaded = json.loads(done.stdout)
    heavy = {
        "PIL",
        "bs4",
        "docx",
        "lxml",
        "matplotlib",
        "numpy",
        "openpyxl",
        "pandas",
        "pdfplumber",
        "playwright",
    }
    assert (threads, heavy & set(loaded)) == (1, set())
    assert not {"pocketsphinx", "pptx", "pywhispercpp", "trafilatura"} & set(loaded)


def test_the_template_names_every_key_and_no_other() -> None:
    wanted = {
        key for entry in SERVERS.values() for part in ("keys", "optional_keys") for key in entry.get(part, [])
    }
    shared = MANIFEST["shared_keys"]
    wanted |= {f"{prefix}_{name}" for prefix, group in shared.items() for name in group["names"]}
    template = (HERE / ".env_template").read_text(encoding="utf-8")
    assert set(re.findall(r"^(?:# )?([A-Z][A-Z0-9_]*)=", template, re.MULTILINE)) == wanted
    assert not re.findall(r"^[A-Z][A-Z0-9_]*=.+", template, re.MULTILINE), (
        "a template holds no value that is used"
    )


def test_one_model_serves_all_tools_that_ask_one_but_transcription() -> None:
    asked = {
        key.removesuffix("_BASE_URL")
        for entry in SERVERS.values()
        for key in (*entry.get("keys", []), *entry.get("optional_keys", []))
        if key.endswith("_LLM_BASE_URL")
    }
    assert set(MANIFEST["shared_keys"]["MCP_LLM"]["used_by"]) == asked - {"AUDIO_LLM"}


def test_packages_of_some_servers_are_fewer() -> None:
    named = re.findall(r"^# ([^:\n]+)", (HERE / "apt.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert {name.strip() for line in named for name in line.split(",")} <= set(SERVERS)
    everything, few = packages.debian(set()), packages.debian({"terminal-server", "media-audio-server"})
    assert "ffmpeg" in few and "chromium" in everything and "chromium" not in few
    few = packages.python({"terminal-server"})
    for server, names in {
        "browseruse-server": {"playwright"},
        "media-audio-server": {"pocketsphinx", "pywhispercpp"},
        "media-image-server": {"resvg-py"},
        "python-server": {"pandas", "scipy", "opencv-python-headless"},
    }.items():
        more = set(packages.python({server})) - set(few)
        assert names <= {re.split(r"[>=]", one)[0] for one in more}
        assert more <= set(packages.python(set()))
    assert not {"pandas", "playwright", "pocketsphinx"} & {re.split(r"[>=]", one)[0] for one in few}


def test_the_lock_has_every_direct_dependency() -> None:
    locked = set(
        re.findall(r"^([a-z0-9-]+)==", (HERE / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert {re.split(r"[>=<\[]", one)[0].lower() for one in packages.python(set())} <= locked


def imported_packages() -> set[str]:
    """The top level names of what the tools import, wherever in a module."""
    names: set[str] = set()
    for file in (HERE / "gaia_tools").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.partition(".")[0])
    return names - sys.stdlib_module_names - {"gaia_tools"}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_the_tools_import_is_declared_and_not_left_to_the_needs_of_others() -> None:
    declared = {normalized(re.split(r"[>=<\[]", one)[0]) for one in packages.python(set())}
    providers = importlib.metadata.packages_distributions()
    imported = imported_packages()
    assert "lxml" in imported
    undeclared = {
        name for name in imported if not declared & {normalized(one) for one in providers.get(name, [])}
    }
    assert undeclared == set()
    # Trafilatura needs lxml's extra of this name, which pip before 24 leaves out; it imports it for every page.
    assert "lxml-html-clean" in declared


async def test_the_readme_has_every_server_and_tool() -> None:
    shown = README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = set(re.findall(r"^\| `([\w-]+)` \| `(\w+)` \|", shown, re.MULTILINE))
    there = {(name, tool.name) for name in SERVERS for tool in await server_of(name).list_tools()}
    assert rows == there, "write the table anew: python -m tests.table"


def test_the_table_tells_what_was_called_and_with_what() -> None:
    call = {
        "server": "terminal-server",
        "tool": "execute_command",
        "seconds": 0.5,
        "succeeded": True,
        "with": [],
    }
    other = {**call, "tool": "get_command_history", "succeeded": False, "with": [".txt"], "test": "b"}
    rows = table([{**call, "test": "a[1]"}, {**call, "seconds": 1.5, "test": "a[2]"}, other]).splitlines()
    assert rows[2:] == [
        "| `terminal-server` | `execute_command` | - | 1 | 2 | 1.000 |",
        "| `terminal-server` | `get_command_history` | .txt | 1 | 1 | - |",
    ]
    assert given({"file_path": "a/b.XLSX", "url": "http://x.org/y.pdf", "n": 3}) == {".xlsx", "HTTP"}


def test_every_package_that_is_imported_is_declared() -> None:
    """What is there only because another package needs it may be missing from the next image."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in (HERE / "gaia_tools").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    imported = {one.name for node in nodes if isinstance(node, ast.Import) for one in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    top = {name.partition(".")[0] for name in imported} - {"gaia_tools"} - set(sys.stdlib_module_names)
    providers = packages_distributions()
    declared = {canonical(re.split(r"[>=<\[]", one)[0]) for one in packages.python(set())}
    undeclared = {name for name in top if not {canonical(one) for one in providers[name]} & declared}
    assert not undeclared


def canonical(name: str) -> str:
    """A package's name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", SERVERS)
def test_every_server_has_a_test_call_that_does_more_than_describe_it(name: str) -> None:
    call = SERVERS[name]["test"]
    assert call["expect"]
    assert not re.search(r"capabilities|list_supported|get_categories", call["tool"])
