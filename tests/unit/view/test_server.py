"""The server of the page gives data to the browser that brought its token, and to nobody else."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import pytest

from aworld_train.errors import UsageError
from aworld_train.store import reading
from aworld_train.view import episodes
from aworld_train.view.routes import QUERIES
from aworld_train.view.server import POLICY, PageServer, static_files
from tests.run_folders import make_run
from tests.stored_runs import make_stored_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make_stored_run(folder, "one", steps=2)
    make_stored_run(folder, "two", steps=2, seed=1)
    make_run(folder, "bare")
    (folder.parent / "outside").mkdir(exist_ok=True)
    (folder.parent / "outside" / "recipe.yaml").write_text("name: outside\n")
    return folder


class Browser:
    """Asks a server over its socket, with a cookie once it has one."""

    def __init__(self, server: PageServer, session: aiohttp.ClientSession, address: str):
        self.server, self.session, self.address = server, session, address
        self.headers: dict[str, str] = {}

    async def get(self, path: str, method: str = "GET", **headers: str) -> tuple[int, Any, Any]:
        """Status, headers and body."""
        url = path if path.startswith("http") else f"http://127.0.0.1:{self.server.port}{path}"
        async with self.session.request(
            method, url, headers=self.headers | headers, allow_redirects=False
        ) as response:
            return response.status, response.headers, await response.text()

    async def enter(self) -> None:
        """Exchange the token for the cookie."""
        status, headers, _ = await self.get(self.address)
        assert status == 303
        self.headers["Cookie"] = headers["Set-Cookie"].partition(";")[0]

    async def data(self, path: str) -> Any:
        """What an address below /api/ answers."""
        status, _, body = await self.get(f"/api/{path}")
        assert status == 200, body
        return json.loads(body)

    async def refused(self, path: str) -> tuple[int, str]:
        """Status and sentence of an address below /api/ that is not answered."""
        status, _, body = await self.get(f"/api/{path}")
        return status, json.loads(body)["error"]["message"]


@asynccontextmanager
async def opened(runs: Path) -> AsyncIterator[Browser]:
    server = PageServer(runs)
    async with (
        server.running(0) as address,
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
    ):
        yield Browser(server, session, address)


@pytest.fixture
async def browser(runs: Path) -> AsyncIterator[Browser]:
    async with opened(runs) as browser:
        await browser.enter()
        yield browser


async def test_the_token_works_once_and_leads_to_the_address_without_it(runs: Path) -> None:
    async with opened(runs) as browser:
        status, headers, _ = await browser.get(f"{browser.address}&run=one&episode=x")
        assert (status, headers["Location"]) == (303, "/?run=one&episode=x")
        attributes = {part.strip().lower() for part in headers["Set-Cookie"].split(";")[1:]}
        assert {"httponly", "samesite=strict", "path=/"} <= attributes
        assert browser.server.session.token not in headers["Set-Cookie"]
        status, headers, body = await browser.get(browser.address)
        assert (status, "Set-Cookie" in headers) == (403, False)
        assert "Start `aworld-train view` again" in body


async def test_the_browser_that_has_the_cookie_may_open_the_address_with_the_token_again(
    browser: Browser,
) -> None:
    status, headers, _ = await browser.get(browser.address)
    assert (status, headers["Location"], "Set-Cookie" in headers) == (303, "/", False)


@pytest.mark.parametrize("token", ["", "x", "ü", "A" * 43])
async def test_no_other_token_is_taken(token: str, runs: Path) -> None:
    async with opened(runs) as browser:
        assert (await browser.get(f"/?token={quote(token)}"))[0] == 403
        await browser.enter()


@pytest.mark.parametrize("name", [*QUERIES, "image"])
async def test_no_data_without_the_cookie(name: str, runs: Path) -> None:
    async with opened(runs) as browser:
        assert (await browser.get(f"/api/{name}?run=one"))[0] == 401
        browser.headers["Cookie"] = f"aworld-train-view-{browser.server.port}=guess"
        assert (await browser.get(f"/api/{name}?run=one"))[0] == 401


async def test_what_a_query_opens_is_no_change_of_the_run(tmp_path: Path) -> None:
    make_stored_run(tmp_path, "one", steps=1)
    async with opened(tmp_path) as browser:
        await browser.enter()
        version = await browser.data("version?run=one")
        await browser.data("episodes?run=one")
        assert await browser.data("version?run=one") == version


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]", ""])
async def test_another_host_name_is_refused(host: str, browser: Browser) -> None:
    for path in ("/", "/static/view.css", "/api/runs"):
        assert (await browser.get(path, Host=host))[0] == 421


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1:1234"])
async def test_a_port_that_is_forwarded_may_have_another_number(host: str, browser: Browser) -> None:
    assert (await browser.get("/api/runs", Host=host))[0] == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_what_another_sites_page_asks_for_is_refused(site: str, browser: Browser) -> None:
    assert (await browser.get("/api/runs", **{"Sec-Fetch-Site": site}))[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"])
async def test_only_get_is_answered(method: str, browser: Browser) -> None:
    assert (await browser.get("/api/runs", method))[0] == 405


@pytest.mark.parametrize(
    "path",
    ["/", "/static/view.css", "/static/nothing", "/api/runs", "/api/run?run=no", "/nowhere", "/?token=x"],
)
async def test_each_response_has_the_policy(path: str, runs: Path) -> None:
    async with opened(runs) as browser:
        _, headers, _ = await browser.get(path)
    assert headers["Content-Security-Policy"] == POLICY
    assert "unsafe" not in POLICY and "http" not in POLICY
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"


async def test_the_page_and_its_files_are_served_and_none_has_an_inline_script(browser: Browser) -> None:
    _, _, page = await browser.get("/")
    assert "<script>" not in page and "onload" not in page
    for name in static_files():
        status, headers, _ = await browser.get(f"/static/{name}")
        assert status == 200
        if name.endswith(".js"):
            assert headers["Content-Type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "path", ["/static/../server.py", "/static/%2e%2e/server.py", "/static/vendor/../../plain.py"]
)
async def test_no_file_but_the_pages_is_served(path: str, browser: Browser) -> None:
    assert (await browser.get(path))[0] == 404


async def test_runs_are_listed_with_and_without_a_store(browser: Browser) -> None:
    found = {run["name"]: run for run in (await browser.data("runs"))["runs"]}
    assert set(found) == {"one", "two", "bare"}
    assert found["one"]["has_store"] and not found["bare"]["has_store"]
    assert found["one"]["before"]["accuracy"] == 0.5
    assert found["one"]["rewards"] == [0.35, 0.45]


async def test_a_run_has_curves_with_intervals_and_alarms(browser: Browser) -> None:
    data = await browser.data("run?run=one")
    curves = data["curves"]
    assert curves["series"]["reward"] == [[1, 0.35], [2, 0.45]]
    assert (
        curves["series"]["padding_rows"] == [[1, 4], [2, 4]] and "rejected_episodes" not in curves["series"]
    )
    (validation,) = curves["validation"]
    assert validation["low"] < 0.5 < validation["high"]
    assert curves["outcomes"] == {"answered": [[1, 12], [2, 12]], "timeout": [[1, 4], [2, 4]]}
    assert [point["calls"] for point in curves["tools"]["calculator"]] == [8, 8, 8]
    assert data["facts"]["alarms"] == [{"step": 2, "text": "the reward has fallen"}]
    assert (await browser.data("series?run=one&name=kl"))["points"] == [[1, 0.01], [2, 0.02]]


async def test_a_run_without_a_store_has_its_metrics(browser: Browser) -> None:
    data = await browser.data("run?run=bare")
    assert not data["has_store"]
    assert data["curves"]["series"]["reward"] == [[1, 0.25], [2, 0.5]]
    assert data["curves"]["outcomes"] == {"answered": [[2, 8]]}
    assert await browser.refused("episodes?run=bare") == (404, "The run bare has no store of episodes.")


async def test_episodes_are_filtered_sorted_paged_and_counted(browser: Browser) -> None:
    assert await browser.data("count?run=one") == {"count": 48, "more": False}
    for query, count in {
        "outcome=timeout": 12,
        "step=1&phase=train": 16,
        "step_min=1&step_max=2": 32,
        "reward_min=0.5": 24,
        "reward_max=0": 12,
        "tool=calculator": 24,
        "scorer=number": 36,
        "suspicion=answer_in_query": 12,
        "where=failed_tool%3Dcalculator and step>0": 8,
        "search=OUT OF ORDER": 12,
        "search=what is 2 times&step=1": 4,
        "where=index%3D1&outcome=answered": 9,
        "treatment=dropped": 12,
        "status=ended": 48,
        "search=nowhere at all": 0,
    }.items():
        assert (await browser.data(f"count?run=one&{query}"))["count"] == count, query
        rows = (await browser.data(f"episodes?run=one&limit=500&{query}"))["episodes"]
        assert len(rows) == count, query
    first = (await browser.data("episodes?run=one&sort=sampled_tokens&order=up&limit=10"))["episodes"]
    second = (await browser.data("episodes?run=one&sort=sampled_tokens&order=up&limit=10&offset=10"))[
        "episodes"
    ]
    assert [row["sampled_tokens"] for row in first] == [5] * 10
    assert not {row["id"] for row in first} & {row["id"] for row in second}


async def test_a_search_reads_the_newest_episodes_until_all_are_asked_for(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reading, episodes):
        monkeypatch.setattr(module, "MAX_SEARCHED", 20)
    text = "run=one&search=out of order"
    whole = await browser.data(f"episodes?{text}&searched=all")
    newest = await browser.data(f"episodes?{text}")
    assert (whole["searched"], newest["searched"]) == (None, 20)
    found = newest["episodes"]
    assert await browser.data(f"count?{text}&searched=all") == {"count": 12, "more": False}
    assert found == whole["episodes"][: len(found)] and 0 < len(found) < len(whole["episodes"]) == 12
    assert await browser.data(f"count?{text}") == {"count": len(found), "more": True}
    # What is chosen by conditions before may be few enough.
    assert (await browser.data(f"episodes?{text}&step=1"))["searched"] is None


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("where=outcome%3D%3Dtimeout", "cannot be read"),
        ("where=outkome%3Dtimeout", "Did you mean 'outcome'"),
        ("where=step%3D1) or (step%3D2", "is not expected"),
        ("sort=secret", "cannot be sorted by 'secret'"),
        ("offset=-1", "must be a whole number"),
        ("limit=100000", "must be a whole number"),
        ("reward_min=high", "is not a number"),
        ("reward_min=nan", "not a finite number"),
        ("outcome=%22'", "both kinds of quotation marks"),
    ],
)
async def test_a_mistake_is_answered_with_400_and_the_sentence(
    query: str, sentence: str, browser: Browser
) -> None:
    for name in ("episodes", "count"):
        status, message = await browser.refused(f"{name}?run=one&{query}")
        assert status == 400
        assert sentence in message


async def test_what_can_be_filtered_by_is_counted(browser: Browser) -> None:
    values = await browser.data("values?run=one")
    assert values["outcome"] == {"answered": 36, "timeout": 12}
    assert values["tool"] == {"calculator": 24}
    assert values["suspicion"] == {"answer_in_query": 12}
    assert ["train", 1, 16] in values["steps"]


async def test_an_episode_has_its_conversation_score_and_use(browser: Browser) -> None:
    (head,) = (await browser.data("episodes?run=one&where=step%3D1 and index%3D1 and attempt%3D0"))[
        "episodes"
    ]
    data = await browser.data(f"episode?run=one&episode={head['id']}")
    (agent,) = data["content"]["agents"]
    assert [node["messages"][0]["role"] for node in agent["nodes"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert agent["nodes"][0]["messages"][0]["content"] == "What is 3 times 4?"
    assert data["content"]["tool_calls"][0]["result"] == "12"
    assert data["content"]["score"]["steps"] == ["found a number"]
    assert data["rows"][0]["trained_step"] == 1
    tokens = await browser.data(f"tokens?run=one&episode={head['id']}")
    assert tokens["agents"][0][0]["ids"] == list(range(100, 108))
    assert tokens["rows"][0]["path"] == [0, 1, 2, 3]
    assert tokens["texts"] is None and "shown as ids" in tokens["note"]
    task = await browser.data(f"task?run=one&task={head['task']}")
    assert {episode["attempt"] for episode in task["episodes"]} == {0, 1, 2, 3}
    assert head["task"] in {each["id"] for each in (await browser.data("tasks?run=one"))["tasks"]}


async def test_runs_are_compared_by_recipe_curves_and_common_tasks(browser: Browser) -> None:
    data = await browser.data("compare?run=one&run=bare")
    assert data["differences"] == {"model.path": [None, "models/tiny"]}
    assert data["series"]["reward"] == [[[1, 0.35], [2, 0.45]], [[1, 0.25], [2, 0.5]]]
    assert (await browser.data("common?run=one&run=bare"))["tasks"] == []
    common = (await browser.data("common?run=one&run=two"))["tasks"]
    assert len(common) == 12
    assert common[0]["episodes"] == [4, 4]
    assert (await browser.refused("compare"))[0] == 400


async def test_the_version_changes_when_a_run_does(browser: Browser, runs: Path) -> None:
    before = [
        (await browser.data(path))["version"] for path in ("version", "version?run=bare", "version?run=two")
    ]
    summary = runs / "bare" / "summary.json"
    summary.write_text(summary.read_text() + " ")
    after = [
        (await browser.data(path))["version"] for path in ("version", "version?run=bare", "version?run=two")
    ]
    assert [old != new for old, new in zip(before, after, strict=True)] == [True, True, False]


async def test_an_answer_that_the_browser_has_is_not_sent_again(browser: Browser) -> None:
    _, headers, _ = await browser.get("/api/values?run=one")
    status, _, body = await browser.get("/api/values?run=one", **{"If-None-Match": headers["ETag"]})
    assert (status, body) == (304, "")


@pytest.mark.parametrize(
    "name",
    [
        "../outside",
        "..",
        ".",
        "",
        "/",
        "one/../one",
        "one/",
        "../outside/",
        "one\0",
        "%2e%2e",
        "one/store",
        "~",
        "no such",
    ],
)
async def test_no_name_leads_out_of_the_folder_of_runs(name: str, browser: Browser, runs: Path) -> None:
    absolute = str(runs.parent / "outside")
    for query in (
        "run",
        "episodes",
        "values",
        "tasks",
        "series",
        "count",
        "episode",
        "tokens",
        "task",
        "compare",
        "image",
    ):
        for each in (name, absolute):
            path = f"{query}?run={quote(each, safe='')}&digest={'0' * 64}&episode=x&task=x"
            assert (await browser.refused(path))[0] == 404, path
    assert (await browser.get(f"/api/version?run={quote(name, safe='')}"))[0] == 200


@pytest.mark.parametrize("episode", ["", "nothing", "%25", "_", "0", "' or 1=1 --"])
async def test_an_episode_that_is_not_there_is_404(episode: str, browser: Browser) -> None:
    assert (await browser.refused(f"episode?run=one&episode={episode}"))[0] == 404


@pytest.mark.parametrize("digest", ["", "x", "../../recipe.yaml", "0" * 63, "A" * 64])
async def test_a_digest_that_is_none_is_400(digest: str, browser: Browser) -> None:
    assert (await browser.refused(f"image?run=one&digest={digest}"))[0] == 400


async def test_a_recipe_that_cannot_be_read_is_shown_as_such(tmp_path: Path) -> None:
    make_run(tmp_path, "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "recipe.yaml").write_text("a: [")
    async with opened(tmp_path) as browser:
        await browser.enter()
        found = {run["name"]: run["status"] for run in (await browser.data("runs"))["runs"]}
        assert found == {"good": "completed", "bad": "unreadable"}
        assert (await browser.refused("run?run=bad"))[0] == 400


async def test_figures_that_are_not_finite_and_half_characters_are_valid_json(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "odd")
    rows = '{"step": 1, "reward": NaN}\n{"step": 2, "reward": Infinity, "val_accuracy": NaN, "val_n": NaN}\n'
    (folder / "metrics.jsonl").write_text(rows)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "model": {"name": "\ud800"}}))
    async with opened(tmp_path) as browser:
        await browser.enter()
        _, _, body = await browser.get("/api/run?run=odd")
        data = json.loads(body, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        assert data["curves"]["series"]["reward"] == [[1, "NaN"], [2, "Infinity"]]
        await browser.data("runs")


async def test_a_port_that_is_taken_is_an_error_of_usage(runs: Path) -> None:
    async with opened(runs) as browser:
        with pytest.raises(UsageError, match="Name another with --port"):
            async with PageServer(runs).running(browser.server.port):
                pass
