"""``aworld-train view``: the browser is started without the token in its command line."""

import asyncio
import os
import signal
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from aworld_train.cli import view


def test_the_token_is_in_a_private_file_and_not_in_the_browsers_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    pages: list[str] = []

    def open_browser(url: str) -> None:
        opened.append(url)
        page = Path(unquote(urlsplit(url).path))
        assert page.parent.stat().st_mode & 0o077 == 0
        pages.append(page.read_text())
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(webbrowser, "open", open_browser)
    asyncio.run(view._serve(tmp_path, "a run", 0, browser=True, as_json=False))
    address = next(word for word in capsys.readouterr().err.split() if "?token=" in word)
    token = address.partition("?token=")[2].partition("&")[0]
    assert opened[0].startswith("file:///") and token not in opened[0]
    assert address.replace("&", "&amp;") in pages[0]
    assert not Path(unquote(urlsplit(opened[0]).path)).exists()
