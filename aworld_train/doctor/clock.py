"""The clock beside those of the file system and of servers: tokens of environments, TLS and ``make`` rely on it."""

import tempfile
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

from aworld_train.doctor.finding import Finding, fault, ok, warn
from aworld_train.doctor.machine import Machine
from aworld_train.doctor.needs import Needs, existing
from aworld_train.network import is_near

_SECONDS = 1.0
_MAX_FILE_SKEW = 2.0
_MAX_SKEW = 30.0
_MAX_TOKEN_SKEW = 300.0
_ENVIRONMENT = "the tool environment"
_SYNCHRONISE = "Synchronise the clocks of both machines (timedatectl set-ntp true, chrony)."


def check_clock(machine: Machine, needs: Needs) -> Iterator[Finding]:
    """Differences in seconds; public servers are asked only where `Needs.online` allows it."""
    folder = existing(needs.run_folder(machine))
    try:
        with tempfile.NamedTemporaryFile(prefix=".aworld-doctor-", dir=folder) as file:
            skew = Path(file.name).stat().st_mtime - time.time()
    except OSError:
        skew = 0.0  # `run folder` says so
    if abs(skew) > _MAX_FILE_SKEW:
        yield warn("clock", f"Files in {folder} are dated {skew:+.0f} s from this clock.", _SYNCHRONISE)
    else:
        yield ok(
            "clock", f"{time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime())}; files in {folder} agree."
        )
    for name, url in _servers(machine, needs).items():
        if is_near(url) or needs.online:
            yield from _server(name, url)


def _servers(machine: Machine, needs: Needs) -> dict[str, str]:
    servers = {_ENVIRONMENT: needs.environment_url(machine)}
    if needs.recipe is not None:
        servers |= {f"endpoints.{name}": str(each["url"]) for name, each in needs.recipe.endpoints.items()}
    return {name: url for name, url in servers.items() if url}


def _server(name: str, url: str) -> Iterator[Finding]:
    import httpx

    parts = urlsplit(url)
    root = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/"
    try:
        date = httpx.head(root, timeout=_SECONDS, trust_env=not is_near(url)).headers.get("Date")
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        yield warn(
            "clock", f"{name} does not answer at {root}: {reason}.", "Start it, or correct its address."
        )
        return
    skew = parsedate_to_datetime(date).timestamp() - time.time() if date else 0.0
    if abs(skew) > _MAX_SKEW:
        yield fault(
            "clock",
            name == _ENVIRONMENT and abs(skew) > _MAX_TOKEN_SKEW,
            f"The clock of {name} is {skew:+.0f} s from this one; tokens of environments are valid by the clock.",
            _SYNCHRONISE,
        )
    else:
        yield ok("clock", f"The clock of {name} agrees.")
