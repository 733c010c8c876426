"""A page of a real browser: the distribution's Chromium, which CI installs."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

REQUIRED = "AWORLD_TRAIN_TESTS_NEED_BROWSER"
"""Set where the absence of a browser is a failure."""
_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
_FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


@contextmanager
def open_page() -> Iterator["Page"]:
    """A page; the test is skipped where there is no browser, unless one is required."""
    missing = None
    if (program := shutil.which("chromium")) is None:
        missing = "there is no chromium"
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing = "playwright is not installed"
    if missing is not None and os.environ.get(REQUIRED):
        pytest.fail(f"{missing}, and {REQUIRED} is set")
    if missing is not None:
        pytest.skip(missing)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        yield browser.new_page(viewport={"width": 1360, "height": 860})
        browser.close()
