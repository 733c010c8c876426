"""The data behind the page: each address below ``/api/`` is one query, run in a thread, answered as JSON.

Errors are 400 with the command line's sentence, 404 for what is not there, and 503 without the database.
"""

import asyncio
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web
from multidict import MultiMapping

from aworld_train.errors import UsageError
from aworld_train.image_files import shown_image_type
from aworld_train.store.reading import SORTS, Store, StoredEpisode
from aworld_train.training.recorded_run import RecordedRun
from aworld_train.view import episodes, overview
from aworld_train.view.curves import run_curves, thinned
from aworld_train.view.episodes import EpisodeFilter, parse_filter, quoted
from aworld_train.view.folder import REPORT, RunsFolder
from aworld_train.view.plain import to_json
from aworld_train.view.token_texts import token_texts

FOLDER = web.AppKey("folder", RunsFolder)
_SLOTS = web.AppKey("slots", asyncio.Semaphore)
_MAX_QUERIES = 4
"""Queries that run at once; others wait for them."""
_MAX_COMPARED = 12
_DIGEST = re.compile(r"[0-9a-f]{64}")
_REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The report's own policy, which is in the file, says by hashes which script and style these are."""
_VALUES = ("phase", "outcome", "treatment", "status", "scorer", "tool")
_Result = TypeVar("_Result")
_Parameters = MultiMapping[str]
_Query = Callable[[RunsFolder, _Parameters], Any]


class NotFound(UsageError):
    pass


def add_routes(app: web.Application, folder: RunsFolder) -> None:
    app[FOLDER] = folder
    app[_SLOTS] = asyncio.Semaphore(_MAX_QUERIES)
    for name, query in QUERIES.items():
        app.router.add_get(f"/api/{name}", _handler(query), allow_head=False)
    app.router.add_get("/api/image", image, allow_head=False)
    app.router.add_get("/api/report", report, allow_head=False)


def runs(folder: RunsFolder, _: _Parameters) -> Any:
    return {"folder": str(folder.path), "runs": overview.run_list(folder)}


def version(folder: RunsFolder, parameters: _Parameters) -> Any:
    """A text that changes when one of the named runs does; without a name, when any run does."""
    all_names = folder.names()
    names = parameters.getall("run", []) or all_names
    text = "\n".join(f"{name} {folder.version(name) if name in all_names else ''}" for name in names)
    return {"version": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]}


def one_run(folder: RunsFolder, parameters: _Parameters) -> Any:
    run = _run(folder, parameters)
    store = folder.store(run)

    def query() -> dict[str, Any]:
        return {"facts": overview.facts(run), "curves": run_curves(run, store)}

    # The status is looked at each time: a process that is killed changes no file.
    return {
        "run": overview.overview(run),
        **folder.cached("run", run.name, query),
        "has_store": store is not None,
    }


def series(folder: RunsFolder, parameters: _Parameters) -> Any:
    return {"points": thinned(_run(folder, parameters).series(parameters.get("name", "")))}


def compare(folder: RunsFolder, parameters: _Parameters) -> Any:
    return overview.comparison(_runs(folder, parameters))


def common(folder: RunsFolder, parameters: _Parameters) -> Any:
    return {"tasks": overview.common_tasks(folder, _runs(folder, parameters))}


def list_episodes(folder: RunsFolder, parameters: _Parameters) -> Any:
    run = _run(folder, parameters)
    store = _store(folder, run)
    filters = _bounded(store, parameters)

    def query() -> Any:
        return episodes.episode_list(store, filters)

    return folder.cached(f"search {filters}", run.name, query) if filters.search.strip() else query()


def _bounded(store: Store, parameters: _Parameters) -> EpisodeFilter:
    """What is asked for; a search reads the newest episodes alone, unless all are asked for."""
    filters = parse_filter(parameters)
    if not filters.search.strip() or parameters.get("searched") == "all":
        return filters
    return replace(filters, since=store.search_begin(filters.condition, superseded=filters.superseded))


def count(folder: RunsFolder, parameters: _Parameters) -> Any:
    run = _run(folder, parameters)
    store = _store(folder, run)
    filters = _bounded(store, parameters)

    def query() -> Any:
        number, more = store.bounded_count(
            filters.condition, search=filters.search, superseded=filters.superseded, since=filters.since
        )
        return {"count": number, "more": more}

    return folder.cached(f"count {filters}", run.name, query)


def values(folder: RunsFolder, parameters: _Parameters) -> Any:
    run = _run(folder, parameters)
    store = _store(folder, run)

    def query() -> dict[str, Any]:
        figures = store.figures()
        return {
            **{name: figures.values(name) for name in _VALUES},
            "suspicion": figures.suspicions(),
            "steps": figures.steps(),
            "sorts": list(SORTS),
        }

    return folder.cached("values", run.name, query)


def tasks(folder: RunsFolder, parameters: _Parameters) -> Any:
    filters = parse_filter(parameters)
    heads = _store(folder, _run(folder, parameters)).tasks(limit=filters.limit, offset=filters.offset)
    max_chars = episodes.MAX_QUESTION_CHARS
    return {"tasks": [vars(head) | {"question": head.question[:max_chars]} for head in heads]}


def task(folder: RunsFolder, parameters: _Parameters) -> Any:
    name = parameters.get("task", "")
    filters = EpisodeFilter(
        f"task={quoted(name)}", sort="step", descending=False, limit=episodes.MAX_ATTEMPTS
    )
    attempts = episodes.episode_list(_store(folder, _run(folder, parameters)), filters)
    return {"task": name, **attempts}


def one_episode(folder: RunsFolder, parameters: _Parameters) -> Any:
    return episodes.episode_json(_episode(folder, _run(folder, parameters), parameters))


def tokens(folder: RunsFolder, parameters: _Parameters) -> Any:
    run = _run(folder, parameters)
    episode = _episode(folder, run, parameters)
    texts, note = token_texts(run, episodes.token_ids(episode))
    return episodes.tokens_json(episode, texts) | {"note": note}


QUERIES: Mapping[str, _Query] = {
    "runs": runs,
    "version": version,
    "run": one_run,
    "series": series,
    "compare": compare,
    "common": common,
    "episodes": list_episodes,
    "count": count,
    "values": values,
    "tasks": tasks,
    "task": task,
    "episode": one_episode,
    "tokens": tokens,
}


async def report(request: web.Request) -> web.StreamResponse:
    """The report in an evaluation's folder, as a page that can reach nothing of this one."""

    def find() -> Path:
        file = _run(request.app[FOLDER], request.query).path / REPORT
        if not file.is_file():
            raise NotFound("This run has no report.")
        return file

    return web.FileResponse(
        await _in_thread(request, find),
        headers={"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": _REPORT_POLICY},
    )


async def image(request: web.Request) -> web.Response:
    """An image of an episode; its type is read from its bytes."""
    parameters, folder = request.query, request.app[FOLDER]

    def read() -> bytes:
        digest = parameters.get("digest", "")
        if not _DIGEST.fullmatch(digest):
            raise UsageError("`digest` must be a SHA-256 in lower case.")
        data = _store(folder, _run(folder, parameters)).blob(digest)
        if data is None or shown_image_type(data) is None:
            raise NotFound("No such image.")
        return data

    data = await _in_thread(request, read)
    return web.Response(body=data, content_type=str(shown_image_type(data)))


def _handler(query: _Query) -> Any:
    async def handle(request: web.Request) -> web.Response:
        folder, parameters = request.app[FOLDER], request.query
        result = await _in_thread(request, lambda: to_json(query(folder, parameters)))
        etag = hashlib.sha256(result.encode()).hexdigest()[:32]
        if any(each.value in (etag, "*") for each in request.if_none_match or ()):
            return web.Response(status=304, headers={"ETag": f'"{etag}"'})
        return web.Response(text=result, content_type="application/json", headers={"ETag": f'"{etag}"'})

    return handle


async def _in_thread(request: web.Request, query: Callable[[], _Result]) -> _Result:
    async with request.app[_SLOTS]:
        return await asyncio.to_thread(query)


def failure(status: int, kind: str, message: str) -> web.Response:
    text = to_json({"error": {"kind": kind, "message": message}})
    return web.Response(status=status, text=text, content_type="application/json")


def _run(folder: RunsFolder, parameters: _Parameters) -> RecordedRun:
    return folder.run(parameters.get("run", ""))


def _runs(folder: RunsFolder, parameters: _Parameters) -> list[RecordedRun]:
    names = list(dict.fromkeys(parameters.getall("run", [])))
    if not 1 <= len(names) <= _MAX_COMPARED:
        raise UsageError(f"From 1 to {_MAX_COMPARED} runs can be compared, not {len(names)}.")
    return [folder.run(name) for name in names]


def _store(folder: RunsFolder, run: RecordedRun) -> Store:
    store = folder.store(run)
    if store is None:
        raise NotFound(f"The run {run.name} has no store of episodes.")
    return store


def _episode(folder: RunsFolder, run: RecordedRun, parameters: _Parameters) -> StoredEpisode:
    store, name = _store(folder, run), parameters.get("episode", "")
    if not name or not store.count(f"id={quoted(name)}", superseded=True):
        raise NotFound(f"Unknown episode {name!r} in {run.name}.")
    return store.episode(name)
