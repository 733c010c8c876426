"""A session that checks the tool servers: folders that their test calls ask instead of the internet.

It alone starts the servers whose test names variables anew, with these, and serves the folder of a test on loopback. So
a server that speaks to a service is tested on its whole path, without internet and without calls that cost.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import web

from aworld_train.serving.manifest import Manifest, ProbeCall
from aworld_train.serving.worker.failures import CallFailure
from aworld_train.serving.worker.launcher import CommandPaths, Spawner
from aworld_train.serving.worker.toolserver import Notify, ToolServerProcess

_LOOPBACK = "127.0.0.1"


class Site:
    """A folder, served on loopback, whatever the method and the query; files are named as paths are quoted."""

    def __init__(self, folder: Path):
        self._folder = folder.resolve()
        self._runner: web.AppRunner | None = None
        self.host = ""
        """Address and port, once it is open."""

    async def open(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, _LOOPBACK, 0).start()
        self._runner = runner
        address, port = runner.addresses[0]
        self.host = f"{address}:{port}"

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        file = (self._folder / quote(request.match_info["path"])).resolve()
        if not file.is_relative_to(self._folder) or not file.is_file():
            raise web.HTTPNotFound
        return web.FileResponse(file)


@dataclass(eq=False)
class SessionCheck:
    manifest: Manifest
    paths: CommandPaths
    spawner: Spawner
    on_notification: Callable[[str], Notify]
    _sites: dict[str, Site] = field(default_factory=dict)
    _servers: dict[str, ToolServerProcess] = field(default_factory=dict)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def server(self, name: str) -> ToolServerProcess | None:
        entry = self.manifest.servers[name]
        if entry.test is None or not entry.test.environment:
            return None
        site = await self._site(entry.test)
        if name not in self._servers:
            environment = {key: self._fill(value, site) for key, value in entry.test.environment.items()}
            if site is not None:
                environment |= _direct()
            self._servers[name] = ToolServerProcess(
                name, entry, self.spawner, self.on_notification(name), environment
            )
        return self._servers[name]

    async def filled(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        test = self.manifest.servers[name].test
        site = await self._site(test) if test is not None else None
        return {**params, "arguments": self._fill_all(params.get("arguments"), site)}

    def stop_servers(self) -> None:
        for server in self._servers.values():
            server.stop()

    async def close(self) -> None:
        async with self._opening:
            for site in self._sites.values():
                await site.close()

    async def _site(self, test: ProbeCall) -> Site | None:
        if not test.site:
            return None
        async with self._opening:
            if test.site not in self._sites:
                site = Site(self.paths.here / test.site)
                try:
                    await site.open()
                except OSError as error:
                    raise CallFailure("tool_unavailable", f"{test.site} cannot be served: {error}") from error
                self._sites[test.site] = site
            return self._sites[test.site]

    def _fill_all(self, value: Any, site: Site | None) -> Any:
        if isinstance(value, dict):
            return {name: self._fill_all(one, site) for name, one in value.items()}
        if isinstance(value, list):
            return [self._fill_all(one, site) for one in value]
        return self._fill(value, site) if isinstance(value, str) else value

    def _fill(self, text: str, site: Site | None) -> str:
        if site is not None:
            text = text.replace("{site}", f"http://{site.host}").replace("{site_host}", site.host)
        return self.paths.fill(text)


def _direct() -> dict[str, str]:
    return {
        name: ",".join(filter(None, [os.environ.get(name), _LOOPBACK])) for name in ("NO_PROXY", "no_proxy")
    }
