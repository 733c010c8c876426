"""API keys: those that a server declares are read from a file, and a server without its keys is off.

Shared ones stand in for keys that are not set, as far as they belong to the same address; slips are named.
"""

from pathlib import Path

import pytest

from aworld_train.env.directory import find_directory
from aworld_train.env.egress import egress_rules
from aworld_train.env.keys import choose_servers, read_keys
from aworld_train.errors import UsageError
from aworld_train.serving.egress.hosts import Host
from aworld_train.serving.manifest import Manifest, ServerEntry, SharedKeys

OPEN = ServerEntry(command=("run",))
MANIFEST = Manifest(
    "tools",
    {
        "open": OPEN,
        "search": ServerEntry(command=("run",), keys=("SEARCH_KEY", "SEARCH_ID"), optional_keys=("REGION",)),
    },
)
KEYS = {"SEARCH_KEY": "k", "SEARCH_ID": "i"}
NAMES = ("BASE_URL", "API_KEY", "MODEL_NAME")


def _asks(prefix: str) -> ServerEntry:
    keys = tuple(f"{prefix}_{name}" for name in NAMES)
    return ServerEntry(command=("run",), keys=keys, egress_hosts=(f"${prefix}_BASE_URL",))


ASKING = Manifest(
    "tools",
    {"code": _asks("CODE_LLM"), "see": _asks("IMAGE_LLM"), "hear": _asks("AUDIO_LLM")},
    shared_keys={"MCP_LLM": SharedKeys(NAMES, ("CODE_LLM", "IMAGE_LLM"))},
)
SHARED = "MCP_LLM_BASE_URL=http://shared:8000/v1\nMCP_LLM_API_KEY=sk-shared\nMCP_LLM_MODEL_NAME=m\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".env"


def test_declared_variables_are_read_with_references_resolved_and_others_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGION", "of the caller")
    file = tmp_path / "env"
    file.write_text("BASE=b\nSEARCH_KEY=${BASE}-k\nexport SEARCH_ID='i'\nREGION=\nOTHER=x\n# SEARCH_KEY=no\n")
    assert read_keys(MANIFEST, file) == {"SEARCH_KEY": "b-k", "SEARCH_ID": "i"}


def test_without_a_file_there_are_no_keys_whatever_the_caller_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_KEY", "of the caller")
    assert read_keys(MANIFEST, None) == {}


def test_a_name_that_no_server_declares_is_named_with_the_nearest(file: Path) -> None:
    file.write_text(
        "SEARCH_KEY=sk-secret\nSERCH_ID=sk-secret\n\nsearch_id=sk-secret\nBASE=sk-secret\nREGION=${BASE}\n"
        "OPENAI_API_KEY=sk-secret\nOTHER=sk-secret\nc2VjcmV0==\nSEARCH_ID\n"
    )
    lines: list[str] = []
    assert read_keys(MANIFEST, file, lines.append) == {"SEARCH_KEY": "sk-secret", "REGION": "sk-secret"}
    assert [line.replace(str(file), "F") for line in lines] == [
        "F:10 is not used: it has no `=`.",
        "F:2: no server of tools has the key SERCH_ID. Did you mean 'SEARCH_ID'?",
        "F:4: no server of tools has such a key. Did you mean 'SEARCH_ID'?",
        "F: no server of tools uses OPENAI_API_KEY, OTHER, line 9.",
    ]


def test_a_file_of_known_names_alone_is_read_in_silence(file: Path) -> None:
    file.write_text(
        f"{SHARED}CODE_LLM_MODEL_NAME=${{MCP_LLM_MODEL_NAME}}-coder\nAUDIO_LLM_API_KEY=\n# CODE_LM=1\n"
    )
    lines: list[str] = []
    read_keys(ASKING, file, lines.append)
    assert not lines


def test_only_what_is_declared_has_to_be_whole(file: Path) -> None:
    file.write_text("FOREIGN=${NOWHERE}\nSEARCH_KEY=k\n")
    assert read_keys(MANIFEST, file) == {"SEARCH_KEY": "k"}
    file.write_text("SEARCH_KEY=${NOWHERE}\n")
    with pytest.raises(UsageError, match=r"\.env:1: SEARCH_KEY refers to \$\{NOWHERE\}"):
        read_keys(MANIFEST, file)


def test_shared_variables_serve_all_that_name_them_and_egress_follows(file: Path) -> None:
    file.write_text(SHARED)
    keys = read_keys(ASKING, file)
    triple = {"BASE_URL": "http://shared:8000/v1", "API_KEY": "sk-shared", "MODEL_NAME": "m"}
    assert keys == {
        f"{prefix}_{name}": value for prefix in ("CODE_LLM", "IMAGE_LLM") for name, value in triple.items()
    }
    servers = choose_servers(ASKING, (), keys, lambda _: None)
    rules = egress_rules(ASKING, servers, keys, None, ())
    assert {name: rule.hosts for name, rule in rules.items()} == dict.fromkeys(
        ("code", "see"), (Host(name="shared", port=8000),)
    )


def test_the_template_with_one_model_filled_in_turns_on_every_server_that_asks_one(file: Path) -> None:
    gaia = find_directory("gaia-mcp-server")
    template, lines = (gaia.path / ".env_template").read_text("utf-8"), list[str]()
    for line in SHARED.splitlines():
        empty = f"{line.partition('=')[0]}=\n"
        assert empty in template
        template = template.replace(empty, f"{line}\n", 1)
    file.write_text(template, "utf-8")
    keys = read_keys(gaia.manifest, file, lines.append)
    assert not lines and gaia.manifest.missing_keys(keys) == {
        "googlesearch-server": ["GOOGLE_API_KEY", "GOOGLE_CSE_ID"]
    }
    assert keys["BROWSERUSE_LLM_API_KEY"] == "sk-shared" and "AUDIO_LLM_API_KEY" not in keys


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ("CODE_LLM_MODEL_NAME=coder", ("http://shared:8000/v1", "sk-shared", "coder")),
        ("CODE_LLM_API_KEY=sk-own", ("http://shared:8000/v1", "sk-own", "m")),
        ("CODE_LLM_BASE_URL=${MCP_LLM_BASE_URL}", ("http://shared:8000/v1", "sk-shared", "m")),
        ("CODE_LLM_BASE_URL=http://own/v1", ("http://own/v1", None, None)),
        ("CODE_LLM_BASE_URL=http://own/v1\nCODE_LLM_API_KEY=sk-own", ("http://own/v1", "sk-own", None)),
    ],
)
def test_a_shared_key_goes_to_no_address_but_its_own(
    file: Path, own: str, expected: tuple[str | None, ...]
) -> None:
    file.write_text(f"{own}\n{SHARED}")
    keys = read_keys(ASKING, file)
    assert tuple(keys.get(f"CODE_LLM_{name}") for name in NAMES) == expected
    assert keys["IMAGE_LLM_API_KEY"] == "sk-shared"


def test_what_is_off_says_which_shared_variables_would_do() -> None:
    messages: list[str] = []
    keys = {"AUDIO_LLM_BASE_URL": "u", "AUDIO_LLM_MODEL_NAME": "m", "AUDIO_LLM_API_KEY": "k"}
    keys["IMAGE_LLM_BASE_URL"] = "u"
    assert choose_servers(ASKING, (), keys, messages.append) == ("hear",)
    assert messages == [
        "code is off: CODE_LLM_BASE_URL, CODE_LLM_API_KEY, CODE_LLM_MODEL_NAME (or MCP_LLM_BASE_URL, MCP_LLM_API_KEY, "
        "MCP_LLM_MODEL_NAME) not set (--env-file).",
        "see is off: IMAGE_LLM_API_KEY, IMAGE_LLM_MODEL_NAME not set (--env-file).",
    ]


def test_a_server_without_its_keys_is_off_and_that_is_told() -> None:
    messages: list[str] = []
    assert choose_servers(MANIFEST, (), {"SEARCH_KEY": "k"}, messages.append) == ("open",)
    assert messages == ["search is off: SEARCH_ID not set (--env-file)."]
    assert choose_servers(MANIFEST, (), KEYS, messages.append) == ("open", "search")
    assert len(messages) == 1


def test_what_is_asked_for_is_what_runs() -> None:
    assert choose_servers(MANIFEST, ("search",), KEYS, print) == ("search",)
    assert choose_servers(MANIFEST, ("open",), {}, print) == ("open",)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (("serch",), r"Did you mean 'search'\? It has: open, search"),
        (("nothing",), r"has no server 'nothing'\."),
        (("open", "search"), r"'search' needs SEARCH_KEY, SEARCH_ID"),
    ],
)
def test_what_is_asked_for_and_cannot_run_is_refused(names: tuple[str, ...], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        choose_servers(MANIFEST, names, {}, print)


def test_an_environment_none_of_whose_servers_can_run_is_refused() -> None:
    locked = Manifest("tools", {"search": MANIFEST.servers["search"]})
    with pytest.raises(UsageError, match="No server of tools has the keys it needs"):
        choose_servers(locked, (), {}, lambda _: None)
