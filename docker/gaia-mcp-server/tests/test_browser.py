"""A real Chromium on a site of the test: pages are read and used as text, and nothing private can be reached."""

import asyncio
import base64
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from gaia_tools import browseruse
from gaia_tools.browser.chromium import PROGRAMS, Browser
from mcp import ClientSession
from mcp.shared.memory import create_connected_server_and_client_session
from mcp.types import CallToolResult, ImageContent

from tests.conftest import Facts, check_once, needs, text
from tests.documents_made import pdf

SHOP = """<!doctype html><title>A shop</title><h1>Wares</h1>
<p>We have <a href="/pears?kind=green">green pears</a>, and <b>no</b> plums.<img alt="a basket" src="/none"></p>
<ul><li>one</li><li>two</li></ul>
<table><tr><th>fruit</th><th>price</th></tr><tr><td>pear</td><td>3.50</td></tr></table>
<p style="display: none">hidden words</p><script>var secret = "script words"</script>
<form action="/bought"><label>How many <input name="count" value="1"></label>
<label>Size <select name="size"><option value="s">small</option><option value="l">large</option></select></label>
<input type="password" name="word" aria-label="Password" value="top"><button>Buy</button></form>
<pre>a
   b</pre><iframe src="/inner"></iframe>"""
PAGES = {
    "/": SHOP,
    "/inner": "<p>Words of the frame</p><button onclick=\"this.innerText='pressed'\">Press</button>",
    "/pears": "<title>Pears</title><p>Green pears are from Kent.</p>"
    "<p>10<sup>-3</sup> kg<sup>[1]</sup> H<sub>2</sub>O a<sup>b+1</sup> 14<sup>th</sup></p><a href='/'>home</a>",
    "/tab": "<a href='/pears' target=_blank>in a new tab</a>",
    "/dialogs": "<button onclick=\"document.title = String(confirm('Sure?'))\">ask</button>",
    "/long": "<title>Long</title>" + "".join(f"<p>line {number}</p>" for number in range(9000)),
    "/grows": "<div id=a></div><p style='height:3000px'>start</p><script>onscroll = () => "
    "{ document.getElementById('a').textContent = 'more came' }</script>",
    "/vanishes": "<button onclick='this.remove()'>gone</button><a href='/'>stays</a>",
    "/shadow": "<x-y></x-y><script>customElements.define('x-y', class extends HTMLElement { constructor() { super();"
    "this.attachShadow({mode: 'open'}).innerHTML = '<a href=/pears>from the shadow</a>' } })</script>",
    "/endless": "<script>while (true) {}</script>",
    "/later": "<p id=p>not yet</p><script>setTimeout(() => { p.textContent = 'now' }, 300)</script>"
    "<button onclick=\"fetch('/slow').then(r => r.text()).then(t => { p.textContent = t })\">load</button>",
    "/cards": "<div onclick='1'>" + "words of a card " * 50 + "</div>",
    "/links": "<title>Links</title><a href='/paper/2401.01234'>a paper</a><a href='/broken'>a broken link</a>",
}
PAPER = pdf(
    b"<< /Type /Catalog /Pages 2 0 R >>",
    b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
    b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] >>",
)


@contextmanager
def a_further_address() -> Iterator[None]:
    """This machine has one network address more meanwhile, as when containers start and stop."""
    name = f"gaia{os.getpid()}"
    subprocess.run(["ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}p"], check=True)
    try:
        for end in (f"{name}p", name):
            subprocess.run(["ip", "link", "set", end, "up"], check=True)
        subprocess.run(["ip", "address", "add", "198.51.100.1/32", "dev", name], check=True)
        yield
    finally:
        subprocess.run(["ip", "link", "delete", name], check=True)


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The address of the test's site, which tools may reach."""

    async def page(request: web.Request) -> web.StreamResponse:
        if request.path == "/bought":
            return web.Response(text=f"<p>You bought {dict(request.query)}</p>", content_type="text/html")
        if request.path == "/file":
            headers = {"Content-Disposition": 'attachment; filename="../prices 1.csv"'}
            return web.Response(text="a,b\n1,2\n", headers=headers)
        if request.path.startswith("/paper"):
            return web.Response(body=PAPER, content_type="application/pdf")
        if request.path == "/silent":
            await asyncio.sleep(30)
        if request.path == "/broken":
            assert request.transport is not None
            request.transport.close()
        if request.path == "/half":
            half = web.StreamResponse(headers={"Content-Type": "text/html"})
            await half.prepare(request)
            await half.write(b"<p>The first half</p>" + b" " * 5000)
            await asyncio.sleep(30)
        if request.path == "/slow":
            await asyncio.sleep(0.5)
            return web.Response(text="it came")
        if request.path == "/away":
            raise web.HTTPFound(request.query["to"])
        found = PAGES.get(request.path)
        return web.Response(
            text=found or "<p>Nothing here</p>", content_type="text/html", status=200 if found else 404
        )

    app = web.Application()
    app.router.add_get("/{path:.*}", page)
    async with TestServer(app) as server:
        monkeypatch.setenv("TOOLS_ALLOWED_HOSTS", f"127.0.0.1:{server.port}")
        yield f"http://127.0.0.1:{server.port}"


class Session:
    """An agent's session with the server."""

    def __init__(self, opened: ClientSession):
        self._opened = opened

    async def result(self, tool: str, **arguments: Any) -> CallToolResult:
        return check_once(await self._opened.call_tool(tool, arguments))

    async def __call__(self, tool: str, **arguments: Any) -> str:
        result = await self.result(tool, **arguments)
        assert not result.isError, text(result)
        return text(result)

    async def structured(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self.result(tool, **arguments)
        assert not result.isError, text(result)
        return Facts(result)

    async def refusal(self, tool: str, **arguments: Any) -> str:
        result = await self.result(tool, **arguments)
        assert result.isError, text(result)
        return text(result)


@asynccontextmanager
async def session() -> AsyncIterator[Session]:
    async with create_connected_server_and_client_session(browseruse.server._mcp_server) as opened:
        yield Session(opened)


@pytest.fixture
def chromium() -> None:
    if Browser.program() is None:
        needs(PROGRAMS[0])


pytestmark = pytest.mark.usefixtures("chromium")


async def test_a_page_is_text_in_reading_order_with_numbers_for_what_can_be_used(site: str) -> None:
    async with session() as use:
        found = await use.structured("browser_navigate", url=site)
        assert (found["title"], found["url"], found["status"]) == ("A shop", f"{site}/", 200)
        shown = found["text"]
        assert "# Wares\n" in shown
        assert "We have [1 link: green pears], and no plums. (image: a basket)" in shown
        assert "- one\n" in shown and "- two\n" in shown
        assert "fruit | price" in shown and "pear | 3.50" in shown
        assert "[2 text: How many = 1]" in shown
        assert "[3 select Size: *small, large]" in shown
        assert "[4 password: Password = •••]" in shown and "top" not in shown
        assert "[5 button: Buy]" in shown
        assert "a\n   b" in shown
        assert "hidden words" not in shown and "script words" not in shown
        assert "Words of the frame\n[6 button: Press]" in shown
        assert f"[1 link: green pears ({site}/pears?kind=green)]" in await use(
            "browser_read", show_links=True
        )


async def test_pages_are_used_by_number(site: str) -> None:
    async with session() as use:
        await use("browser_navigate", url=site)
        pears = await use("browser_click", element=1)
        assert "Green pears are from Kent.\n\n10^-3 kg[1] H_2O a^{b+1} 14th" in pears
        assert "# Wares" in await use("browser_back")
        assert "How many = 12" in await use("browser_type", element=2, text="12")
        assert "small, *large" in await use("browser_select", element=3, option="large")
        assert "[6 button: pressed]" in await use("browser_click", element=6)
        assert "You bought {'count': '12', 'size': 'l', 'word': 'top'}" in await use(
            "browser_click", element=5
        )
        await use("browser_back")
        assert "'count': '7'" in await use("browser_type", element=2, text="7", submit=True)


async def test_what_cannot_be_done_says_what_to_do(site: str) -> None:
    async with session() as use:
        await use("browser_navigate", url=f"{site}/vanishes")
        assert "no element 9" in await use.refusal("browser_click", element=9)
        assert "1 to 2" in await use.refusal("browser_click", element=9)
        assert "Typing into element 2 failed" in await use.refusal("browser_type", element=2, text="x")
        assert "has no option 'x'" in await use.refusal("browser_select", element=2, option="x")
        shown = await use("browser_click", element=1)
        assert "gone" not in shown and "[1 link: stays]" in shown
        assert "(status 404)" in await use("browser_navigate", url=f"{site}/nowhere")
        assert "no http" in (await use.refusal("browser_navigate", url="hello")).replace(
            "not an http", "no http"
        )


async def read_until(use: Session, expected: str, shown: str) -> None:
    """A page is shown once it has been quiet for a moment, in which a busy machine may not have got to its scripts."""
    for _ in range(40):
        if expected in shown:
            return
        await asyncio.sleep(0.25)
        shown = await use("browser_read")
    raise AssertionError(shown)


async def test_other_pages_and_new_tabs_dialogs_shadows_and_what_comes_later(site: str) -> None:
    async with session() as use:
        await use("browser_navigate", url=f"{site}/tab")
        shown = await use("browser_click", element=1)
        assert "new tab" in shown and "from Kent" in shown
        await use("browser_navigate", url=f"{site}/dialogs")
        asked = await use.structured("browser_click", element=1)
        assert asked["title"] == "false" and "Sure?" in asked["notes"][0]
        await use("browser_navigate", url=f"{site}/shadow")
        assert "from Kent" in await use("browser_click", element=1)
        await use("browser_navigate", url=f"{site}/later")
        await read_until(use, "it came", await use("browser_click", element=1))
        await use("browser_navigate", url=f"{site}/grows")
        await read_until(use, "more came", await use("browser_scroll"))
        assert "words of a card" in await use("browser_navigate", url=f"{site}/cards")


async def test_a_long_page_is_read_in_parts(site: str) -> None:
    async with session() as use:
        first = await use.structured("browser_navigate", url=f"{site}/long")
        assert "use browser_read with start=10000" in first["text"] and len(first["text"]) < 10_200
        rest, start = "", first["next_start"]
        while start is not None:
            part = await use.structured("browser_read", start=start)
            rest, start = rest + part["text"], part["next_start"]
        assert rest.rstrip().endswith("line 8999")


async def test_a_file_is_downloaded_into_the_workspace_under_a_name_of_its_own(
    site: str, workspace: Path
) -> None:
    async with session() as use:
        for name in ("_prices 1.csv", "_prices 1-2.csv"):
            found = await use.structured("browser_navigate", url=f"{site}/file")
            assert found["notes"] == [f"Downloaded into the workspace: {name} (8 bytes)."]
            assert (workspace / name).read_text() == "a,b\n1,2\n"


async def test_a_screenshot_is_a_file_and_an_image(site: str, workspace: Path) -> None:
    async with session() as use:
        await use("browser_navigate", url=site)
        result = await use.result("browser_screenshot", file_path="shots/one.png", full_page=True)
        (image,) = [part for part in result.content if isinstance(part, ImageContent)]
        written = (workspace / "shots" / "one.png").read_bytes()
        assert base64.b64decode(image.data) == written and written.startswith(b"\x89PNG")
        assert "outside" in await use.refusal("browser_screenshot", file_path="/etc/shot.png")


REFUSALS = {
    "http://127.0.0.1:{closed}/": "not a public address",
    "http://localhost:{closed}/": "not a public address",
    "http://[::1]:{closed}/": "not a public address",
    "http://169.254.169.254/latest/meta-data/": "not a public address",
    "https://10.0.0.1/": "not a public address",
    "https://localhost:{closed}/": "not a public address",
    "http://127.1:{closed}/": "not a canonical",
    "{site}/away?to=http://127.0.0.1:{closed}/": "not a public address",
    "{site}/away?to=http://127.1:{closed}/": "not a public address",
    "{site}/away?to=https://192.168.0.1/": "not a public address",
    "{site}/away?to=file:///etc/passwd": "cannot be opened",
    "file:///etc/passwd": "is not an http or https address",
    "chrome://version": "is not an http or https address",
    "view-source:http://example.com": "is not an http or https address",
    "javascript:alert(1)": "is not an http or https address",
    "http://no-such-host.invalid/": "cannot be reached",
}


async def test_what_is_not_for_tools_is_refused(site: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        async with session() as use:
            for url, reason in REFUSALS.items():
                asked = url.format(site=site, closed=closed.getsockname()[1])
                assert reason in await use.refusal("browser_navigate", url=asked), url
            assert "# Wares" in await use("browser_navigate", url=site)
        closed.settimeout(0.01)
        with pytest.raises(TimeoutError):
            closed.accept()


async def test_pages_reach_nothing_private_by_any_way(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images, requests, sockets, real-time connections, workers: none of them comes where something listens."""
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
    ):
        udp.bind(("127.0.0.1", 0))
        port, udp_port = tcp.getsockname()[1], udp.getsockname()[1]
        monkeypatch.setitem(
            PAGES,
            "/attack",
            f"""<img src="http://127.0.0.1:{port}/"><iframe src="http://localhost:{port}/"></iframe>
            <link rel=preconnect href="http://127.0.0.1:{port}"><link rel=dns-prefetch href="//127.0.0.1:{port}">
            <p id=p></p><script>
            fetch("http://127.0.0.1:{port}/", {{mode: "no-cors"}}).catch(() => 0);
            navigator.sendBeacon("http://127.0.0.1:{port}/", "x");
            new WebSocket("ws://127.0.0.1:{port}/"); new WebSocket("wss://localhost:{port}/");
            new EventSource("http://127.0.0.1:{port}/");
            try {{ new WebTransport("https://127.0.0.1:{udp_port}/") }} catch (e) {{}}
            try {{
              const frame = document.createElement("iframe"); document.body.append(frame);
              for (const Peer of [window.RTCPeerConnection, frame.contentWindow.RTCPeerConnection]) {{
                if (!Peer) continue;
                const urls = "stun:127.0.0.1:{udp_port}", tcp = "turn:127.0.0.1:{port}?transport=tcp";
                const peer = new Peer({{iceServers: [{{urls}}, {{urls: tcp, username: "a", credential: "b"}}]}});
                peer.createDataChannel("x"); peer.createOffer().then(o => peer.setLocalDescription(o));
              }}
            }} catch (e) {{}}
            new Worker(URL.createObjectURL(new Blob(['fetch("http://127.0.0.1:{port}/", {{mode: "no-cors"}})'])));
            setTimeout(() => {{ p.textContent = "done" }}, 1500);
            </script>""",
        )
        async with session() as use:
            await use("browser_navigate", url=f"{site}/attack")
            await asyncio.sleep(2)
            assert "done" in await use("browser_read")
        for one in (tcp, udp):
            one.settimeout(0.01)
        with pytest.raises(TimeoutError):
            tcp.accept()
        with pytest.raises(TimeoutError):
            udp.recvfrom(100)


async def test_a_page_that_hangs_is_given_up_and_the_browser_can_be_used_again(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session() as use:
        await use("browser_navigate", url=site)
        with monkeypatch.context() as impatient:
            impatient.setattr("gaia_tools.browser.chromium.SECONDS", 3.0)
            impatient.setattr("gaia_tools.browser.chromium._ACTION_SECONDS", 2.0)
            assert "does not respond" in await use.refusal("browser_navigate", url=f"{site}/endless")
        assert "# Wares" in await use("browser_navigate", url=site)


async def test_a_note_about_a_page_that_hung_does_not_come_with_the_next(
    site: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaia_tools.browser.chromium.SECONDS", 3.0)
    monkeypatch.setattr("gaia_tools.browser.chromium._READ_SECONDS", 2.0)
    async with session() as use:
        for hung, shown in (("/silent", ""), ("/endless", ""), ("/silent", f"still shows {site}/")):
            message = await use.refusal("browser_navigate", url=f"{site}{hung}")
            assert f"{site}{hung} did" in message or f"{site}{hung} does not respond" in message, message
            assert shown in message and "chrome-error" not in message
            good = await use.structured("browser_navigate", url=site)
            assert (good["url"], good["notes"]) == (f"{site}/", [])
        half = await use.structured("browser_navigate", url=f"{site}/half")
        assert (half["url"], half["text"]) == (f"{site}/half", "The first half")
        assert half["notes"] == [f"{site}/half was not complete within 3 seconds; this is what there is."]
        assert (await use.structured("browser_navigate", url=site))["notes"] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="it changes the machine's network")
async def test_a_page_that_a_change_of_the_network_broke_off_is_asked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Chromium itself breaks off what is not connected yet: neither the page's doing nor the agent's."""
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            with a_further_address():
                await reader.read()  # to its end: no answer to the browser's offer of encryption
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, session() as use:
        port = server.sockets[0].getsockname()[1]
        monkeypatch.setenv("TOOLS_ALLOWED_HOSTS", f"127.0.0.1:{port}")
        refusal = await use.refusal("browser_navigate", url=f"https://127.0.0.1:{port}/")
    assert "ERR_CONNECTION_CLOSED" in refusal and connections > 1, refusal


async def test_a_page_that_could_not_be_loaded_has_its_own_address(site: str) -> None:
    async with session() as use:
        assert f"{site}/broken" in await use.refusal("browser_navigate", url=f"{site}/broken")
        assert (await use.structured("browser_read"))["url"] == f"{site}/broken"
        await use("browser_navigate", url=f"{site}/links")
        assert (await use.structured("browser_click", element=2))["url"] == f"{site}/broken"


async def test_a_pdf_is_saved_and_said_to_be_one(site: str, workspace: Path) -> None:
    async with session() as use:
        opened = await use.structured("browser_navigate", url=f"{site}/paper")
        advice = "This is a PDF file, which is not shown as text. It is saved as {}: read it with {}."
        assert opened["text"] == advice.format("paper.pdf", "convert_document_to_markdown")
        assert opened["notes"] == [f"Downloaded into the workspace: paper.pdf ({len(PAPER)} bytes)."]
        assert (workspace / "paper.pdf").read_bytes() == PAPER
        again = await use.structured("browser_read")
        assert (again["text"], again["notes"]) == (opened["text"], [])
        await use("browser_navigate", url=f"{site}/links")
        clicked = await use.structured("browser_click", element=1)
        assert "It is saved as 2401.01234.pdf" in clicked["text"] and clicked["elements"] == 0
        assert (workspace / "2401.01234.pdf").read_bytes() == PAPER
        assert "a paper" in await use("browser_back")
    assert sorted(one.name for one in workspace.iterdir()) == ["2401.01234.pdf", "paper.pdf"]  # noqa: ASYNC240


async def test_a_browser_that_was_killed_is_started_again(site: str) -> None:
    async with session() as use:
        await use("browser_navigate", url=site)
        chromium = browseruse._browser._chromium
        assert chromium is not None
        for pid in children(os.getpid()):
            os.kill(pid, 9)
        await asyncio.sleep(0.5)
        assert "# Wares" in await use("browser_navigate", url=site)
    assert not children(os.getpid())


def children(pid: int) -> list[int]:
    """Programs that this process started: the driver of the browser."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def variables_of(pid: int) -> bytes:
    """Empty where it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


async def test_neither_browser_nor_driver_has_the_keys(site: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSERUSE_LLM_API_KEY", "very-secret")
    async with session() as use:
        await use("browser_navigate", url=site)
        found = set(children(os.getpid()))
        for _ in range(4):
            found |= {below for one in found for below in children(one)}
        variables = [seen for pid in found if (seen := variables_of(pid))]
        assert len(variables) > 3
        assert not [seen for seen in variables if b"very-secret" in seen]
    assert os.environ["BROWSERUSE_LLM_API_KEY"] == "very-secret"


async def test_without_a_browser_or_a_model_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with session() as use:
        assert "BROWSERUSE_LLM_MODEL_NAME is not set" in await use.refusal(
            "complete_browser_task", task="SingleEpisode"
        )
        assert (await use.structured("get_browser_capabilities"))["assistant"] is False
        monkeypatch.setenv("PATH", "/nowhere")
        assert "There is no browser in this environment" in await use.refusal(
            "browser_navigate", url="http://example.com"
        )
        assert "There is no browser in this environment" in await use("get_browser_capabilities")


# Tasks

Answer = Callable[[dict[str, Any]], dict[str, Any]]


@pytest.fixture
async def model(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[Answer], list[dict[str, Any]]]]:
    """Starts a model that answers as a function says; what it was asked is in the list that it returns."""
    asked: list[dict[str, Any]] = []
    answers: list[Answer] = []

    async def complete(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return web.json_response({"choices": [{"message": {"role": "assistant", **answers[-1](asked[-1])}}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    async with TestServer(app) as server:
        monkeypatch.setenv("BROWSERUSE_LLM_BASE_URL", f"http://127.0.0.1:{server.port}/v1")
        monkeypatch.setenv("BROWSERUSE_LLM_API_KEY", "key")
        monkeypatch.setenv("BROWSERUSE_LLM_MODEL_NAME", "a-model")

        def start(answer: Answer) -> list[dict[str, Any]]:
            answers.append(answer)
            return asked

        yield start


Start = Callable[[Answer], list[dict[str, Any]]]


def calls(*wanted: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    made = [
        {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for number, (name, arguments) in enumerate(wanted)
    ]
    return {"content": None, "tool_calls": made}


async def test_a_task_is_done_step_by_step_with_the_same_tools(site: str, model: Start) -> None:
    def answer(body: dict[str, Any]) -> dict[str, Any]:
        last = body["messages"][-1]
        if last["role"] == "user":
            return calls(("browser_navigate", {"url": site}))
        if "green pears" in last["content"]:
            return calls(("browser_click", {"element": 1}))
        return calls(("finish", {"result": "Kent", "success": True}))

    asked = model(answer)
    async with session() as use:
        found = await use.structured("complete_browser_task", task="Where are the green pears from?")
    assert (found["result"], found["success"]) == ("Kent", True)
    assert found["steps"] == [f"browser_navigate(url='{site}')", "browser_click(element=1)"]
    offered = [tool["function"]["name"] for tool in asked[0]["tools"]]
    assert "finish" in offered and "browser_read" in offered and "complete_browser_task" not in offered
    assert "from Kent" in asked[2]["messages"][-1]["content"]


async def test_the_form_of_the_result_can_be_chosen(model: Start) -> None:
    asked = model(lambda body: {"content": '```json\n{"price": 3.5}\n```'})
    async with session() as use:
        found = await use.structured("browser_use", task="The price?", extract_format="json")
    assert found["value"] == {"price": 3.5}
    assert "one JSON value" in asked[0]["messages"][0]["content"]


async def test_a_model_that_is_wrong_about_tools_is_told_and_goes_on(site: str, model: Start) -> None:
    turns = iter(
        [
            {"content": ""},
            calls(("no_such_tool", {})),
            {
                "content": "",
                "tool_calls": [{"id": "x", "function": {"name": "browser_navigate", "arguments": "{"}}],
            },
            calls(("browser_navigate", {"url": "http://127.0.0.1:1/"}), ("browser_click", {"element": "x"})),
            calls(("complete_browser_task", {"task": "again"})),
            calls(("finish", {"result": "Nothing", "success": False})),
        ]
    )
    asked = model(lambda body: next(turns))
    async with session() as use:
        shown = await use("complete_browser_task", task="SingleEpisode")
    assert shown.startswith("Nothing\n\nThe task was not completed.")
    told = "\n".join(str(message["content"]) for message in asked[-1]["messages"])
    for reason in (
        "Use a tool",
        "no tool 'no_such_tool'",
        "not a JSON object",
        "not a public address",
        "element",
    ):
        assert reason in told


async def test_steps_and_time_have_an_end(site: str, model: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def wanders(body: dict[str, Any]) -> dict[str, Any]:
        if len(body["tools"]) == 1:
            return calls(("finish", {"result": "As far as I came", "success": True}))
        return calls(("browser_navigate", {"url": f"{site}/long"}))

    asked = model(wanders)
    async with session() as use:
        found = await use.structured("browser_use", task="Look everywhere", max_steps=6)
        assert (found["result"], found["success"], len(found["steps"])) == ("As far as I came", False, 6)
        sizes = [len(json.dumps(body["messages"])) for body in asked]
        assert sizes[-1] < sizes[2] + 2000, "pages of earlier steps are left out"
        monkeypatch.setattr(browseruse, "_TASK_SECONDS", 0.2)
        found = await use.structured("browser_use", task="Look everywhere", max_steps=100)
        assert found["success"] is False and "not done within 0." in found["result"]
