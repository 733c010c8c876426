"""Real browsers: the distribution's Chromium, which CI installs."""

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext
    from playwright.sync_api import Page

REQUIRED = "AWORLD_TRAIN_TESTS_NEED_BROWSER"
"""Set where the absence of a browser is a failure."""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SIZE = (1360, 860)


def chromium() -> str:
    """The program; the test is skipped where it or Playwright is missing, unless a browser is required."""
    program = shutil.which("chromium")
    if program is None:
        _miss("there is no chromium")
    if find_spec("playwright") is None:
        _miss("playwright is not installed")
    return str(program)


def _miss(reason: str) -> None:
    if os.environ.get(REQUIRED):
        pytest.fail(f"{reason}, and {REQUIRED} is set")
    pytest.skip(reason)


@contextmanager
def open_page() -> Iterator["Page"]:
    """A page of a browser that ends with the block."""
    program = chromium()
    from playwright.sync_api import sync_playwright

    width, height = SIZE
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser.new_page(viewport={"width": width, "height": height})
        finally:
            browser.close()


@asynccontextmanager
async def open_browser(size: tuple[int, int] = SIZE) -> AsyncIterator["BrowserContext"]:
    """A browser that ends with the block, for tests with an event loop.

    Args:
        size: Width and height of its pages.
    """
    program = chromium()
    from playwright.async_api import async_playwright

    width, height = size
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield await browser.new_context(viewport={"width": width, "height": height})
        finally:
            await browser.close()
