"""The page of runs as a person sees it: in Chromium, with runs that go on, and with texts that would do harm."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aworld_train.evaluation.metrics import figures_of
from aworld_train.evaluation.results import open_evaluation
from aworld_train.store import reading
from aworld_train.training.recorded_run import open_run
from aworld_train.view import episodes
from aworld_train.view.eval_report import write_html
from aworld_train.view.report import write_report
from aworld_train.view.server import PageServer
from tests.branching import add_episode, branching_content
from tests.browser import open_browser
from tests.evaluations import make_evaluation
from tests.stored_runs import make_stored_run

if TYPE_CHECKING:
    from playwright.async_api import Page

SIZE = (1280, 800)
LONG_NAME = "a-name-of-a-run-that-goes-on-and-on-with-lr-3e-5-and-seed-12"
CHECKPOINT = "runs/quickstart/checkpoints/global_step_8/actor/huggingface"
HOSTILE = (
    "<script>document.title='taken'; alert(1)</script><img src=x onerror=alert(2)>"
    "<img src='http://192.0.2.1/pixel'></textarea></pre></script><svg onload=alert(3)> "
    "javascript:alert(4) \x1b[31mred\x1b[0m \u202eesrever\u202c שלום {{7*7}} ${7*7} &lt;b&gt;"
)


@dataclass
class Watched:
    """A page, and what went wrong in it."""

    page: "Page"
    base: str
    faults: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", lambda message: self.faults.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)
        self.page.on("request", self._request)

    async def open(self, query: str) -> None:
        """Open an address of the page."""
        await self.page.goto(f"{self.base}{query}")

    async def text(self, selector: str) -> str:
        """The text of the first element, once it is there."""
        found = self.page.locator(selector).first
        await found.wait_for()
        return await found.inner_text()

    async def texts(self, selector: str) -> list[str]:
        """The texts of all elements, once the first is there."""
        await self.page.locator(selector).first.wait_for()
        return await self.page.locator(selector).all_inner_texts()

    async def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    def _request(self, request: Any) -> None:
        self.queries.append(request.url.partition("/api/")[2])
        if not request.url.startswith((self.base, "data:")):
            self.faults.append(f"request: {request.url}")


@asynccontextmanager
async def opened(runs: Path, query: str = "") -> AsyncIterator[Watched]:
    """The page of a folder of runs; at its end nothing has gone wrong in it."""
    async with PageServer(runs).running(0) as address, open_browser(SIZE) as browser:
        watched = Watched(await browser.new_page(), address.partition("?")[0])
        await watched.page.goto(address)
        assert watched.page.url == watched.base
        if query:
            await watched.open(query)
        yield watched
        assert watched.faults == []


async def in_thread(function: Any, *arguments: Any, **named: Any) -> None:
    """Run a function that waits, beside the server's loop."""
    await asyncio.to_thread(function, *arguments, **named)


async def test_the_page_of_a_run_follows_it(tmp_path: Path) -> None:
    folder = make_stored_run(tmp_path, "one", steps=2)
    async with opened(tmp_path, "?run=one&view=episodes") as shown:
        await shown.page.locator("[data-count='48']").wait_for()
        await in_thread(add_episode, folder, None, step=9, index=77, episode="e" * 16)
        await shown.page.locator("[data-count='49']").wait_for(timeout=30_000)
        await shown.page.locator(f"[data-episode={'e' * 16}]").wait_for()
        await shown.open("?run=one")
        await shown.page.locator("[aria-label*='last 0.45 at step 2']").wait_for()
        for name, last in (
            ("Rows of a step", "padding, of no weight: 2 points, last 4"),
            ("Updates of a step", "with a clipped gradient: 2 points, last 1"),
            ("Groups of a step", "of equal rewards: 2 points, last 1"),
        ):
            await shown.page.locator(f"[aria-label^='{name}'][aria-label*='{last} at step 2']").wait_for()
        assert await shown.page.locator("[aria-label^='Episodes rejected']").count() == 0
        with (folder / "metrics.jsonl").open("a") as metrics:
            metrics.write(json.dumps({"step": 3, "reward": 0.875}) + "\n")
        await shown.page.locator("[aria-label*='last 0.875 at step 3']").wait_for(timeout=30_000)
        assert await shown.page.locator("[aria-label*='last 0.45 at step 2']").count() == 0


async def test_nothing_is_asked_again_without_need(tmp_path: Path) -> None:
    folder = make_stored_run(tmp_path, "one", steps=2)
    async with opened(tmp_path, "?run=one&view=episodes&where=outcome") as shown:
        await shown.page.fill("[data-filter=where]", "outcome=")
        await shown.page.press("[data-filter=where]", "Enter")
        assert "cannot be read" in await shown.text("[role=alert]")
        assert sum(query.startswith("values?") for query in shown.queries) == 1
        shown.queries.clear()
        async with shown.page.expect_response(
            lambda response: "/api/values?" in response.url, timeout=30_000
        ):
            await in_thread(add_episode, folder, None, step=9, index=77, episode="e" * 16)
        assert not [query for query in shown.queries if query.startswith(("episodes?", "count?"))]
        await shown.page.click("text=Clear")
        await shown.page.locator("[data-count='49']").wait_for()
        # The browser reports the status.
        shown.faults[:] = [fault for fault in shown.faults if "status of 400" not in fault]


async def test_runs_that_appear_are_listed_and_an_evaluation_says_what_it_measured(tmp_path: Path) -> None:
    async with opened(tmp_path) as shown:
        await shown.page.locator("main p:has-text('no runs')").wait_for()
        await in_thread(make_stored_run, tmp_path, "new", steps=1)
        await shown.page.locator("text=new").wait_for(timeout=30_000)
        assert await shown.page.locator("main p:has-text('no runs')").count() == 0
        await in_thread(make_measured, tmp_path)
        await shown.page.locator(f"td.name:has-text('{CHECKPOINT}')").wait_for(timeout=30_000)
        await shown.page.click("text=eval-one")
        tiles = (await shown.text(".tiles")).replace("\n", " ")
        assert f"measured {CHECKPOINT}" in tiles and "attempts 12 of 12" in tiles
        assert await shown.texts("section:has-text('By level') tbody td:first-child") == ["1", "2", "3"]
        assert await shown.page.locator(".plot").count() == 0
        await shown.page.click("text=Report: every task")
        median = await shown.text(".tile:has-text('time of an attempt') span")
        drawn = await shown.page.locator("[aria-label^='Seconds of an attempt']").get_attribute("aria-label")
        assert f"median {float(median.removesuffix(' s')):.1f}," in (drawn or "")
        await shown.page.locator("[data-task] .question a").first.click()
        assert await shown.texts(".message .role")
        isolated = "fetch('/api/runs').then(() => 'read', () => 'refused')"
        assert await shown.page.evaluate(isolated) == "refused"
        assert any("Content Security Policy" in fault for fault in shown.faults)
        shown.faults.clear()


async def test_episodes_are_filtered_searched_sorted_and_read_with_the_keyboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_stored_run(tmp_path, "one")
    for module in (reading, episodes):
        monkeypatch.setattr(module, "MAX_SEARCHED", 20)
    async with opened(tmp_path, "?run=one&view=episodes") as shown:
        page = shown.page
        await page.locator("[data-count='64']").wait_for()
        await page.select_option("[data-filter=outcome]", "timeout")
        await page.locator("[data-count='16']").wait_for()
        assert "outcome=timeout" in page.url
        await page.select_option("[data-filter=outcome]", "")
        await page.fill("[data-filter=where]", "tool=calculator and reward=1")
        await page.press("[data-filter=where]", "Enter")
        await page.locator("[data-count='16']").wait_for()
        await page.fill("[data-filter=where]", "tool==")
        async with page.expect_console_message():
            await page.press("[data-filter=where]", "Enter")
        assert "cannot be read" in await shown.text("[role=alert]")
        await page.click("text=Clear")
        await page.locator("[data-count='64']").wait_for()
        await page.keyboard.press("Escape")
        await page.keyboard.press("/")
        await page.keyboard.type("out of order")
        await page.keyboard.press("Enter")
        await page.locator("text=Of the newest 20 episodes").wait_for()
        assert await shown.text(".pager span") == "1–5 of 5+"
        await page.click("text=Search all")
        await page.locator("[data-count='16']").wait_for()
        await page.keyboard.press("Escape")
        await page.click("button.sort:has-text('step')")
        await page.click("button.sort:has-text('step')")
        await page.locator("[aria-busy=false] th[aria-sort=ascending]").wait_for()
        first = await page.locator("[data-episode]").first.get_attribute("data-episode")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.locator(".conversation").wait_for()
        assert f"episode={first}" in page.url
        await page.locator("a[data-neighbour=next]").wait_for()
        await page.keyboard.press("j")
        await page.wait_for_function("first => !location.search.includes(first)", arg=first)
        await page.locator("a[data-neighbour=previous]").wait_for()
        await page.keyboard.press("k")
        await page.wait_for_function("first => location.search.includes(first)", arg=first)
        await page.keyboard.press("?")
        assert "next episode" in await shown.text("dialog")
        await page.keyboard.press("Escape")
        await page.locator("dialog").wait_for(state="detached")
        await page.keyboard.press("u")
        await page.locator("[data-count='16']").wait_for()
        # The browser reports the answers to the condition that cannot be read.
        shown.faults[:] = [fault for fault in shown.faults if "status of 400" not in fault]


async def test_an_episode_shows_turns_thoughts_tools_score_and_tokens(tmp_path: Path) -> None:
    make_stored_run(tmp_path, "one")
    async with opened(
        tmp_path, "?run=one&view=episodes&where=attempt%3D0 and step%3D2 and index%3D1"
    ) as shown:
        page = shown.page
        await page.locator("[data-episode] td.question a").first.click()
        roles = await shown.texts(".message .role")
        assert roles == ["user", "assistant", "tool", "assistant"]
        thought = page.locator("details.thought").first
        assert not await thought.locator("pre").is_visible()
        await thought.locator("summary").click()
        assert "I had better compute it." in await thought.inner_text()
        assert '"a": 3' in await shown.text(".call pre")
        assert "found a number" in await shown.text(".steps")
        await page.click("text=tokens >> nth=0")
        await page.locator("[data-token='8']").wait_for()
        assert await page.locator(".by-mask .node-tokens .masked-in").count() == 10
        assert await page.locator(".node-tokens .context").count() == 12
        await page.select_option("[data-filter=colour]", "advantage")
        await page.locator(".node-tokens .plus4").first.wait_for()
        await page.locator("[data-token='9']").click()
        assert "position=9" in page.url
        await page.reload()
        readout = await shown.text(".readout:has-text('token 9')")
        assert "mask 1" in readout and "advantage 0.5" in readout and "logprob" in readout


async def test_branches_agents_and_images_are_shown(tmp_path: Path) -> None:
    folder = make_stored_run(tmp_path, "one", steps=1)
    content = await asyncio.to_thread(branching_content, folder)
    await in_thread(add_episode, folder, content, step=1, index=50, episode="b" * 16)
    async with opened(tmp_path, f"?run=one&episode={'b' * 16}") as shown:
        page = shown.page
        assert "The end of the second branch." in await shown.text(".conversation")
        assert "edited at message 2 user" in (await shown.text(".branch")).replace("\n", " ")
        assert await page.locator("[role=treeitem]").count() == 3
        await page.click("[role=treeitem] button:has-text('Go on.')")
        await page.locator(".conversation:has-text('The end of the first branch.')").wait_for()
        assert "second branch" not in await shown.text(".conversation")
        await page.wait_for_function("document.querySelector('img.picture')?.naturalWidth === 16")
        await page.click("a:has-text('helper (1)')")
        await page.locator(".conversation:has-text('I help.')").wait_for()
        await shown.open(f"?run=one&episode={'b' * 16}&tab=tokens&row=1")
        await page.locator("[data-token]").first.wait_for()
        assert await page.locator(".node-tokens .masked-in").count() == 3
        assert await page.locator(".node-tokens .masked-out").count() == 3


async def test_runs_are_compared_and_attempts_at_a_task_stand_side_by_side(tmp_path: Path) -> None:
    make_stored_run(tmp_path, "one")
    make_stored_run(tmp_path, "two", seed=1, steps=5)
    async with opened(tmp_path) as shown:
        page = shown.page
        await page.check("[aria-label='Compare one']")
        await page.check("[aria-label='Compare two']")
        await page.click("button.main")
        table = await shown.text("table.compare")
        assert "trainer.steps" in table
        await page.locator("[aria-label*='Reward. one: 3 points']").wait_for()
        await page.locator("a:has-text('side by side')").first.click()
        await page.locator("[data-attempt]").first.wait_for()
        sections = page.locator("section:has(.attempts)")
        await sections.nth(1).locator("[data-attempt]").first.wait_for()
        for place in (0, 1):
            await sections.nth(place).locator("[data-attempt]").first.click()
        await page.locator(".beside.of-2 .attempt").nth(1).wait_for()
        assert await shown.texts(".attempt > .who .role") == ["one", "two"]
        address = page.url
        await page.goto(shown.base)
        await page.goto(address)
        await page.locator(".beside.of-2 .attempt .conversation").nth(1).wait_for()


async def test_hostile_texts_do_nothing_on_any_page(tmp_path: Path) -> None:
    folder = make_stored_run(tmp_path, "one", steps=1, say=HOSTILE)
    make_stored_run(tmp_path, "two", steps=1, say=HOSTILE)
    (folder / "recipe.yaml").write_text(json.dumps({"name": HOSTILE, "agent": HOSTILE}))
    summary = json.loads((folder / "summary.json").read_text())
    summary |= {"error": {"kind": "x", "message": HOSTILE}, "remark": HOSTILE, "outcomes": {HOSTILE: 1}}
    summary["alarms"] = [{"step": 1, "text": HOSTILE}]
    (folder / "summary.json").write_text(json.dumps(summary))
    with (folder / "metrics.jsonl").open("a") as metrics:
        metrics.write(json.dumps({"step": 2, "reward": 1, HOSTILE: 1, "outcomes": {HOSTILE: 3}}) + "\n")
    async with opened(tmp_path, "?run=one&view=episodes") as shown:
        page = shown.page
        await page.locator("[data-episode]").first.wait_for()
        episode = await page.locator("[data-episode]:has-text('answered')").first.get_attribute(
            "data-episode"
        )
        task = (await page.locator("td.figure a").first.get_attribute("href")) or ""
        places = ["", "?run=one", "?run=one&view=about", "?run=one&view=tasks", "?compare=one&compare=two"]
        places += [f"?run=one&episode={episode}&tab={tab}" for tab in ("", "tokens", "record")]
        places += [task, f"{task}&show={episode}+one", f"?run=one&view=episodes&search={'%3Cscript%3E'}"]
        for place in places:
            await shown.open(place)
            await page.wait_for_load_state("networkidle")
            assert "taken" not in await page.title()
            assert await page.locator("main script, main img[src=x], main svg[onload]").count() == 0, place
        await shown.open(f"?run=one&episode={episode}")
        text = await shown.text(".message.user pre")
        assert "<script>document.title" in text and "␛[31mred" in text and "⟨U+202E⟩esrever" in text
        isolation = "e => [getComputedStyle(e).unicodeBidi, e.dir]"
        assert await page.locator(".message.user pre").evaluate(isolation) == ["isolate", "auto"]


async def test_the_policy_stops_a_script_that_would_get_into_the_page(tmp_path: Path) -> None:
    make_stored_run(tmp_path, "one", steps=1)
    async with opened(tmp_path, "?run=one") as shown:
        await shown.text("h1")
        await shown.page.evaluate(
            """() => {
                const script = document.createElement('script');
                script.textContent = "document.title = 'taken'";
                document.body.append(script);
                document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="document.title = `taken`">');
            }"""
        )
        await shown.page.wait_for_function("document.querySelector('img[src=x]').complete")
        assert "taken" not in await shown.page.title()
        assert any("Content Security Policy" in fault for fault in shown.faults)
        shown.faults.clear()


async def test_without_the_cookie_the_page_says_what_to_do(tmp_path: Path) -> None:
    make_stored_run(tmp_path, "secret", steps=1)
    async with PageServer(tmp_path).running(0) as address, open_browser(SIZE) as browser:
        page = await browser.new_page()
        await page.goto(address.partition("?")[0])
        assert "Open the address" in await page.locator("[role=alert]").inner_text()
        assert "secret" not in await page.locator("body").inner_text()


async def test_a_report_opens_from_a_file_filters_and_asks_for_nothing(tmp_path: Path) -> None:
    folder = make_stored_run(tmp_path, "one", steps=2, say=HOSTILE)
    content = await asyncio.to_thread(branching_content, folder)
    await in_thread(add_episode, folder, content, step=1, index=50, episode="b" * 16)
    file = tmp_path / "one.html"
    await in_thread(write_report, open_run("one", tmp_path), file, episodes=100)
    async with open_browser(SIZE) as browser:
        shown = Watched(await browser.new_page(), file.as_uri())
        page = shown.page
        await shown.open("")
        assert await shown.text("h1") == "one"
        await page.locator("[aria-label*='Reward. reward: 2 points']").wait_for()
        await page.click("a:has-text('episodes')")
        await page.locator("[data-count='49']").wait_for()
        await page.select_option("[data-filter=outcome]", "timeout")
        await page.locator("[data-count='12']").wait_for()
        assert await page.locator("tr[data-episode]").count() == 12
        assert set(await shown.texts("tr[data-episode] .badge:first-child")) == {"timeout"}
        await page.select_option("[data-filter=outcome]", "")
        await page.fill("[data-filter=search]", "second branch")
        await page.press("[data-filter=search]", "Enter")
        await page.locator("[data-count='1']").wait_for()
        await page.locator("[data-episode] td.question a").click()
        await page.locator("[role=tree]").wait_for()
        await page.wait_for_function("document.querySelector('img.picture')?.naturalWidth === 16")
        await page.click("a:has-text('tokens')")
        await page.locator("[data-token]").first.wait_for()
        await page.reload()
        await page.locator("[data-token]").first.wait_for()
        await shown.open("#run=one&view=about")
        assert "report" in await shown.text("dl.facts >> nth=1")
        assert shown.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_can_be_read_in_both_schemes_at_all_widths(scheme: str, tmp_path: Path) -> None:
    make_stored_run(tmp_path, "one", steps=1)
    make_stored_run(tmp_path, LONG_NAME, steps=2, seed=1)
    await asyncio.to_thread(make_measured, tmp_path)
    async with opened(tmp_path) as shown:
        page = shown.page
        await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        await shown.open("?run=one&view=episodes")
        episode = await page.locator("[data-episode]").first.get_attribute("data-episode")
        task = await page.locator("td.figure a").first.get_attribute("href")
        selectors = ["h1", "td.figure", ".badge", ".dim", "td.question a", "th"]
        for selector in selectors:
            ratio = await page.locator(selector).first.evaluate(_CONTRAST)
            assert ratio >= 4.5, selector
        places = ["", *(f"?run=one{view}" for view in ("", "&view=episodes", "&view=tasks", "&view=about"))]
        places += [f"?run=one&episode={episode}&tab={tab}" for tab in ("", "tokens", "record")]
        places += [f"{task}&with={LONG_NAME}&show={episode}+one"]
        places += [f"?compare=one&compare={LONG_NAME}&compare=eval-one", "?run=eval-one"]
        places += ["api/report?run=eval-one"]
        for place in places:
            await shown.open(place)
            await page.locator("main .waiting").first.wait_for(state="detached")
            for width in (400, 800, 1280):
                await page.set_viewport_size({"width": width, "height": 800})
                assert await page.evaluate(_TOO_WIDE) == [], (place, width)


def make_measured(runs: Path) -> None:
    """An evaluation as the command leaves it: with its figures in the summary, and with its report."""
    folder = make_evaluation(runs, model=CHECKPOINT)
    evaluation = open_evaluation(folder.name, runs)
    figures = figures_of(evaluation)
    summary = json.loads((folder / "summary.json").read_text()) | figures.to_json()
    summary["val"] = {"after": {name: summary[name] for name in ("accuracy", "n", "errors")}}
    (folder / "summary.json").write_text(json.dumps(summary))
    write_html(evaluation, figures, folder / "report.html")


_TOO_WIDE = """() => [document.documentElement, ...document.querySelectorAll('.wide')]
    .filter(element => element.scrollWidth > element.clientWidth)
    .map(element => `${element.tagName} ${element.scrollWidth} > ${element.clientWidth}`)"""
_CONTRAST = """element => {
    const light = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255)
            .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    let ground = element;
    while (/, 0\\)$|transparent/.test(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
    const both = [light(getComputedStyle(element).color), light(getComputedStyle(ground).backgroundColor)].sort();
    return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
}"""


def test_the_command_prints_its_address_and_ends_with_a_signal(tmp_path: Path) -> None:
    import signal
    import subprocess
    import sys
    import urllib.request

    make_stored_run(tmp_path, "one", steps=1)
    command = [sys.executable, "-m", "aworld_train", "view", str(tmp_path / "one"), "--json", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    timer = threading.Timer(60, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        printed = json.loads(process.stdout.readline())
        assert printed["url"].endswith("&run=one")
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(printed["url"], timeout=30) as response:
            assert response.url == f"http://127.0.0.1:{printed['port']}/?run=one"
        with opener.open(f"http://127.0.0.1:{printed['port']}/api/runs", timeout=30) as response:
            assert json.load(response)["runs"][0]["name"] == "one"
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=30)
        assert (process.returncode, output, errors) == (0, "", "")
    finally:
        timer.cancel()
        process.kill()
