"""A download is whole and said what it is, or there is nothing of it."""

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web as http
from gaia_tools import download, web
from gaia_tools.download import server

from tests.conftest import Serve, call, content, refusal, text

BODY = os.urandom(700_000)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "_FIRST_PAUSE", 0.01)


async def file(request: http.Request) -> http.Response:
    return http.Response(body=BODY, headers={"Content-Type": "application/octet-stream"})


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


async def test_a_file_is_saved_with_its_size_type_and_hash(serve: Serve, workspace: Path) -> None:
    base = await serve(file)
    found = await content(server, "download_file", url=f"{base}/x", output_file_path="data/sub/x.bin")
    assert (workspace / "data/sub/x.bin").read_bytes() == BODY
    assert found == {
        "file": "data/sub/x.bin",
        "url": f"{base}/x",
        "bytes": len(BODY),
        "content_type": "application/octet-stream",
        "sha256": hashlib.sha256(BODY).hexdigest(),
        "note": "",
    }
    assert everything(workspace) == ["data", "data/sub", "data/sub/x.bin"]
    assert (workspace / "data/sub/x.bin").stat().st_mode & 0o777 == 0o644


async def test_a_file_is_asked_for_as_it_is_also_after_a_redirect(serve: Serve) -> None:
    encodings = []

    async def seen(request: http.Request) -> http.Response:
        encodings.append(request.headers["Accept-Encoding"])
        return await file(request)

    other = await serve(seen)

    async def away(request: http.Request) -> http.Response:
        raise http.HTTPFound(other)

    base = await serve(away)
    found = await content(server, "download_file", url=base, output_file_path="x.tar.gz")
    assert (found["url"], encodings) == (other, ["identity"])


async def test_a_file_that_is_there_is_replaced_only_where_asked_for(serve: Serve, workspace: Path) -> None:
    (workspace / "x").write_text("old")
    base = await serve(file)
    assert "set overwrite" in await refusal(server, "download_file", url=base, output_file_path="x")
    assert (workspace / "x").read_text() == "old"
    result = await call(
        server, "download_file", url=base, output_file_path="x", overwrite=True, output_format="json"
    )
    assert '"bytes": 700000' in text(result)
    assert (workspace / "x").read_bytes() == BODY


async def test_a_failure_leaves_nothing_and_keeps_what_was_there(
    serve: Serve, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "_MAX_BYTES", 100_000)

    async def short(request: http.Request) -> http.StreamResponse:
        response = http.StreamResponse(headers={"Content-Length": "50000"})
        await response.prepare(request)
        await response.write(b"x" * 1000)
        request.transport.close()
        return response

    async def endless(request: http.Request) -> http.StreamResponse:
        response = http.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65536)

    async def stuck(request: http.Request) -> http.StreamResponse:
        response = http.StreamResponse()
        await response.prepare(request)
        await response.write(b"x")
        await asyncio.sleep(60)
        return response

    async def missing(request: http.Request) -> http.Response:
        return http.Response(status=404, text="not here")

    async def empty(request: http.Request) -> http.Response:
        return http.Response(body=b"")

    (workspace / "kept").write_text("old")
    cases: list[tuple[Any, str]] = [
        (short, "cannot be reached"),
        (endless, "no more are saved"),
        (file, "are not saved"),
        (stuck, "within 3 seconds"),
        (missing, "answered 404"),
        (empty, "empty file"),
    ]
    for handler, said in cases:
        base, timeout = await serve(handler), 3 if handler is stuck else 60
        for name in ("new/folder/file", "kept"):
            assert said in await refusal(
                server, "download_file", url=base, output_file_path=name, timeout=timeout, overwrite=True
            )
    assert everything(workspace) == ["kept"]
    assert (workspace / "kept").read_text() == "old"


async def test_files_are_written_only_in_the_workspace(
    serve: Serve, workspace: Path, attachments: Path
) -> None:
    base = await serve(file)
    (workspace / "out").symlink_to(attachments)
    for name in ("/etc/x", "../x", str(attachments / "x"), "out/x", "a\0b"):
        await refusal(server, "download_file", url=base, output_file_path=name)
    assert everything(attachments) == []


async def test_two_downloads_to_one_name_do_not_mix(serve: Serve, workspace: Path) -> None:
    base = await serve(file)
    results = await asyncio.gather(
        *(call(server, "download_file", url=base, output_file_path="x") for _ in range(4))
    )
    assert sum(not result.isError for result in results) == 1
    assert everything(workspace) == ["x"]
    assert (workspace / "x").read_bytes() == BODY


async def test_a_page_in_place_of_a_file_is_pointed_out(serve: Serve) -> None:
    async def login(request: http.Request) -> http.Response:
        return http.Response(text="\n<!DOCTYPE html><html>Log in</html>", content_type="text/html")

    base = await serve(login)
    found = await content(server, "download_file", url=base, output_file_path="table.xlsx")
    assert "table.xlsx holds a web page" in found["note"]
    assert not (await content(server, "download_file", url=base, output_file_path="page.html"))["note"]


@pytest.mark.parametrize(
    "url", ["http://169.254.169.254/x", "http://localhost:1/", "file:///etc/passwd", "x"]
)
async def test_only_public_web_addresses_are_downloaded(url: str, workspace: Path) -> None:
    await refusal(server, "download_file", url=url, output_file_path="x")
    assert everything(workspace) == []
