"""A desktop client's file of tool servers, none of which speaks as the specification has it: up, and each called."""

import json
import sys
from collections.abc import Iterator

import pytest

from aworld_train.env import EnvConnection, down, up
from aworld_train.rollout.tools import ToolServer, ToolSession
from tests.environments import DIRECTORIES

SCRIPT = DIRECTORIES / "odd_servers.py"
NAME = "odd-client-servers"
KEY = "a-key-in-no-file-39"
NOT_SHOWN = "[resource a://b, binary, not shown]"
EXPECTED = {
    "data-alone": '{"degrees": 22.5}',
    "no-content": "",
    "null-content": "",
    "null-result": "",
    "text-for-content": "just text",
    "text-for-result": "plain",
    "part-without-type": "untyped",
    "part-of-no-kind": "[video content, not shown]\nafter",
    "number-for-text": "42",
    "error-as-text": "missing",
    "link": "[link to file:///a.pdf: a.pdf, A]",
    "embedded": "[resource a://b]\nc",
    "embedded-csv": "[resource a://b]\n1,2",
    "embedded-bytes": NOT_SHOWN,
    "error-of-text": "Error: boom",
    "error-without-message": 'Error: {"code": "E1"}',
    "error-null": "fine",
    "not-a-number": '{"degrees": null}',
    "half-a-pair": "a\ufffdb",
    "dies": "Error: dies ended unexpectedly",
    **{
        way: f"I am {way}"
        for way in (
            *("no-line-end", "carriage-return", "byte-order-mark", "other-encoding", "two-in-a-line"),
            *(
                "id-as-text",
                "batch",
                "empty-cursor",
                "same-cursor",
                "no-schema",
                "php-schema",
                "names-missing",
            ),
            *("php-capabilities", "asks-back"),
        )
    },
}
ERRORS = {"error-as-text", "error-of-text", "error-without-message", "dies"}


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EnvConnection]:
    folder = tmp_path_factory.mktemp("client")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setenv("ODD_KEY", KEY)
        command = {"command": sys.executable, "args": ["-I", "-S", str(SCRIPT)]}
        servers = {way: {**command, "args": [*command["args"], way]} for way in EXPECTED}
        servers["dies"] |= {"env": {"OTHER_NAME": "${ODD_KEY}"}}
        file = folder / "servers.json"
        file.write_text(json.dumps({"mcpServers": servers}))
        yield up(file, name=NAME, backend="process", workers=1)
        written = [
            path for path in folder.rglob("*") if path.is_file() and KEY in path.read_text(errors="ignore")
        ]
        assert not written
    down(NAME)


async def test_each_odd_server_is_listed_and_its_call_has_a_result(connection: EnvConnection) -> None:
    server = ToolServer(connection.mcp_url, {"Authorization": f"Bearer {connection.token}"}, 60.0)
    async with ToolSession(server) as tools:
        listed = await tools.list_tools()
        results = {way: await tools.call(f"{way}__speak", {}) for way in EXPECTED}
    assert len(EXPECTED) >= 25
    assert [tool["function"]["name"] for tool in listed] == [f"{way}__speak" for way in EXPECTED]
    assert {json.dumps(tool["function"]["parameters"]) for tool in listed} == {
        '{"type": "object", "properties": {}}'
    }
    assert {way: result.text for way, result in results.items()} == EXPECTED
    assert {way for way, result in results.items() if result.is_error} == ERRORS
