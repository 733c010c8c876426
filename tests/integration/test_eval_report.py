"""The report of an evaluation as a person sees it: in Chromium, large, and with texts that would do harm."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aworld_train.evaluation.metrics import figures_of
from aworld_train.evaluation.results import open_evaluation
from aworld_train.view.eval_report import write_html
from tests.browser import open_browser
from tests.evaluations import make_evaluation
from tests.integration.test_view import _CONTRAST, HOSTILE, SIZE, Watched

_LISTED = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
# Filters the list as typing does, and gives the milliseconds until the list is the filtered one.
_FILTER = """async (text) => {
    const field = document.querySelector('[data-search]');
    const count = document.querySelector('[data-count]');
    const before = count.dataset.count;
    const began = performance.now();
    field.value = text;
    field.dispatchEvent(new Event('input', {bubbles: true}));
    while (count.dataset.count === before) await new Promise(requestAnimationFrame);
    return performance.now() - began;
}"""


def write(runs: Path, name: str = "eval-one", max_packed: int = 10_000_000) -> Path:
    """The page of an evaluation."""
    evaluation = open_evaluation(name, runs)
    file = runs / name / "report.html"
    write_html(evaluation, figures_of(evaluation), file, max_packed=max_packed)
    return file


@asynccontextmanager
async def opened(file: Path, scheme: str = "light") -> AsyncIterator[Watched]:
    """A report as a file; at its end nothing has gone wrong in it, and nothing was loaded."""
    async with open_browser(SIZE) as context:
        shown = Watched(await context.new_page(), file.as_uri())
        await shown.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        await shown.open("")
        await shown.page.locator("[data-task]").first.wait_for()
        yield shown
        assert shown.faults == []


def made(runs: Path, **settings: object) -> Path:
    """A page of a new evaluation."""
    max_packed = settings.pop("max_packed", 10_000_000)
    assert isinstance(max_packed, int)
    make_evaluation(runs, **settings)  # type: ignore[arg-type]
    return write(runs, max_packed=max_packed)


async def test_three_hundred_tasks_open_and_filter_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = await asyncio.to_thread(made, tmp_path, tasks=300, attempts=4, paragraphs=10)
    async with open_browser(SIZE) as context:
        page = await context.new_page()
        began = time.perf_counter()
        await page.goto(file.as_uri())
        await page.locator("[data-task]").first.wait_for()
        seconds = time.perf_counter() - began
        loaded = await page.evaluate(_LISTED) / 1000
        filtered = [await page.evaluate(_FILTER, text) for text in ("crate-01", "crate-012", "500 five")]
        with capsys.disabled():
            times = ", ".join(f"{each:.0f} ms" for each in filtered)
            size = file.stat().st_size / 1e6
            print(f"\n{size:.1f} MB: document {loaded:.2f} s, list {seconds:.2f} s; filters {times}")  # noqa: T201
        assert await page.locator("[data-count]").get_attribute("data-count") == str(
            sum(each.is_error for each in open_evaluation("eval-one", tmp_path).attempts)
        )


async def test_tasks_are_filtered_sorted_and_opened(tmp_path: Path) -> None:
    def score(index: int, number: int) -> float | None:
        return {0: 1.0, 1: 0.0, 2: float(number == 1), 3: None}[index % 4]

    file = await asyncio.to_thread(made, tmp_path, tasks=100, attempts=2, score=score)
    async with opened(file) as shown:
        page = shown.page
        assert await shown.text("h1") == "solver-7b"
        assert "50.0 %" in await shown.text(".result .large")
        # Rows are made as the reader comes to them.
        assert 0 < await page.locator("[data-task]").count() <= 100
        for result, count in (("right", 25), ("mixed", 25), ("wrong", 25), ("error", 25), ("suspicious", 1)):
            await page.select_option("[data-filter=result]", result)
            await page.locator(f"[data-count='{count}']").wait_for()
        await page.select_option("[data-filter=result]", "mixed")
        await page.click(".group:has-text('warehouse')")
        await page.locator("[data-empty]").wait_for()
        await page.click(".group:has-text('crates')")
        await page.locator("[data-count='25']").wait_for()
        await page.fill("[data-search]", "crate-0006")
        await page.locator("[data-count='1']").wait_for()
        await page.reload()
        await page.locator("[data-count='1']").wait_for()
        assert await shown.texts("[data-task] .mark") == ["✗", "✓"]
        await page.click("text=clear")
        await page.locator("[data-count='100']").wait_for()
        await page.click("th button:has-text('score')")
        await page.locator("[aria-sort=ascending]").wait_for()
        assert (await shown.texts("[data-task] .marks"))[0] == "✗✗"


async def test_an_attempt_shows_turns_thoughts_tools_and_score(tmp_path: Path) -> None:
    file = await asyncio.to_thread(
        made,
        tmp_path,
        tasks=5,
        attempts=3,
        score=lambda index, number: None if index == 4 else float(number == 0),
    )
    async with opened(file) as shown:
        page = shown.page
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        assert await shown.texts(".message .role") == ["user", "assistant", "tool", "assistant"]
        thought = page.locator("details.thought").first
        assert not await thought.locator("pre").is_visible()
        await thought.locator("summary").click()
        assert "I multiply the boxes" in await thought.inner_text()
        assert '"expression": "12 * 7"' in await shown.text(".call pre")
        assert "compared it with the right answer" in await shown.text(".steps")
        assert "right answer 84" in (await shown.text(".verdict")).replace("\n", " ")
        await page.keyboard.press("2")
        await page.locator(".verdict:has-text('attempt 2')").wait_for()
        await page.locator(".message").first.wait_for()
        assert await shown.texts(".message .role") == ["user", "assistant"]
        await page.keyboard.press("j")
        await page.locator("h1:has-text('crate-0002')").wait_for()
        await page.keyboard.press("u")
        await page.locator("[data-count='5']").wait_for()
        await page.locator(".mark.error").first.click()
        assert "the endpoint answered 500 five times" in await shown.text(".verdict")
        await page.keyboard.press("?")
        await page.locator("dialog:has-text('the attempts at a task')").wait_for()


async def test_what_there_is_no_room_for_is_left_out_with_a_note(tmp_path: Path) -> None:
    file = await asyncio.to_thread(made, tmp_path, tasks=20, attempts=2, max_packed=8_000)
    async with opened(file) as shown:
        note = await shown.text(".remark")
        assert "conversations of" in note and "of 40 attempts" in note
        for number in range(20):
            await shown.page.locator("[data-task] .question a").nth(number).click()
            if "is not in this file" in await shown.text("main"):
                break
            await shown.page.keyboard.press("u")
        assert "is not in this file" in await shown.text("main")


async def test_an_evaluation_without_scores_or_texts_is_shown(tmp_path: Path) -> None:
    file = await asyncio.to_thread(
        made,
        tmp_path,
        score=lambda index, number: None,
        keep="sample:0",
        prices=None,
        leave_out=lambda i, n: i == 5,
    )
    async with opened(file) as shown:
        assert "No attempt could be scored" in await shown.text(".result")
        assert "unfinished: 10 of 12" in await shown.text(".head")
        assert "No conversations are kept" in await shown.text(".remark")


async def test_hostile_texts_do_nothing(tmp_path: Path) -> None:
    file = await asyncio.to_thread(
        made, tmp_path, extra_text=HOSTILE, model=HOSTILE, dataset=[HOSTILE], agent=HOSTILE
    )
    async with opened(file) as shown:
        page = shown.page
        assert "<script>document.title" in await shown.text("h1")
        await page.fill("[data-search]", "<script>")
        await page.locator("[data-count='6']").wait_for()
        await page.locator("[data-task] .mark").first.click()
        await page.locator(".message").first.wait_for()
        text = await shown.text(".message.user pre")
        assert "</textarea>" in text and "␛[31mred" in text and "⟨U+202E⟩esrever" in text
        assert await page.locator("main script, main img, main svg[onload], main textarea").count() == 0
        assert "taken" not in await page.title()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_texts_can_be_read_in_both_schemes(scheme: str, tmp_path: Path) -> None:
    file = await asyncio.to_thread(
        made, tmp_path, tasks=9, score=lambda index, number: (1.0, 0.0, None)[index % 3]
    )
    async with opened(file, scheme) as shown:
        selectors = [
            "h1",
            ".dim",
            ".mark.right",
            ".mark.wrong",
            ".mark.error",
            ".tile small",
            ".group .value",
            "th",
        ]
        for selector in selectors:
            ratio = await shown.page.locator(selector).first.evaluate(_CONTRAST)
            assert ratio >= 4.5, selector
        assert await shown.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
