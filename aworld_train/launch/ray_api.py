"""The Jobs API of a Ray cluster, over HTTP: the machine that submits a job needs no Ray.

https://docs.ray.io/en/latest/cluster/running-applications/job-submission/rest.html
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from aworld_train.errors import TrainingFailure, UsageError
from aworld_train.launch.base import JobState, JobStatus
from aworld_train.launch.log_tail import ClusterSilent
from aworld_train.network import is_near

DEFAULT_ADDRESS = "http://127.0.0.1:8265"
_SECONDS = 20.0
_SUBMIT_SECONDS = 90.0  # Ray starts a process for each job before it answers
_STATES = {
    "PENDING": JobState.waiting,
    "RUNNING": JobState.running,
    **dict.fromkeys(("SUCCEEDED", "FAILED", "STOPPED"), JobState.ended),
}


def checked_address(address: str) -> str:
    """The URL of the Jobs API that an address names; the scheme may be left out."""
    url = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise UsageError(
            f"{address!r} is not an address of Ray's Jobs API (cluster.address, or RAY_ADDRESS): it is that of the "
            f"cluster's dashboard, such as {DEFAULT_ADDRESS}."
        )
    if parts.username or parts.password:
        raise UsageError(
            "The cluster's address (cluster.address, or RAY_ADDRESS) contains a user name or password, and it is "
            "written into the run folder. Give the token in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."
        )
    return f"{parts.scheme}://{parts.netloc}"


class RayJobs:
    """The jobs of one cluster, which may take ``seconds`` to answer."""

    def __init__(self, address: str, token: str | None, seconds: float = _SECONDS):
        self.address = address
        self._token = token
        self._seconds = seconds

    def check(self) -> str:
        """Check that the cluster answers and lets in only those who have its token; returns its version of Ray."""
        if self._request("GET", "/api/version", with_token=False).status_code == httpx.codes.OK:
            raise UsageError(
                f"The Ray cluster at {self.address} asks for no token: everybody who reaches it, programs of agents "
                "included, can run code on it and read the keys of its jobs. Start it with RAY_AUTH_MODE=token and a "
                "token in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."
            )
        version: dict[str, Any] = self._json("GET", "/api/version")
        return str(version.get("ray_version", ""))

    def submit(
        self, job: str, entrypoint: str, *, variables: Mapping[str, str], metadata: Mapping[str, str]
    ) -> None:
        """Submit a shell command as a job; Ray writes its variables into logs, and people see ``metadata``."""
        body = {
            "submission_id": job,
            "entrypoint": entrypoint,
            "runtime_env": {"env_vars": dict(variables)},
            "metadata": dict(metadata),
        }
        self._json("POST", "/api/jobs/", body=body, seconds=_SUBMIT_SECONDS)

    def status(self, job: str) -> JobStatus:
        response = self._request("GET", f"/api/jobs/{job}")
        if response.status_code == httpx.codes.NOT_FOUND:
            return JobStatus(JobState.unknown, f"not known to the cluster at {self.address}")
        details = self._content(response)
        state = str(details.get("status", ""))
        return JobStatus(_STATES.get(state, JobState.unknown), state, details.get("driver_exit_code"))

    def stop(self, job: str) -> None:
        """Ask a job to end; returns before it has ended."""
        self._json("POST", f"/api/jobs/{job}/stop")

    def log(self, job: str) -> str:
        response = self._request("GET", f"/api/jobs/{job}/logs")
        if response.status_code == httpx.codes.NOT_FOUND:
            return ""
        return str(self._content(response).get("logs") or "")

    def _json(self, method: str, path: str, *, body: Any = None, seconds: float | None = None) -> Any:
        return self._content(self._request(method, path, body=body, seconds=seconds))

    def _content(self, response: httpx.Response) -> Any:
        if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise UsageError(
                f"The Ray cluster at {self.address} does not accept "
                + ("the token" if self._token else "a request without a token")
                + ". Its token is read from RAY_AUTH_TOKEN, from the file that RAY_AUTH_TOKEN_PATH names, or from "
                "~/.ray/auth_token."
            )
        if response.is_error:
            raise TrainingFailure(
                f"The Ray cluster at {self.address} answered {response.status_code} to "
                f"{response.request.method} {response.request.url.path}: {_last_line(response.text)}. That is an "
                "error of the cluster's own: the dashboard there has the head's logs, and `ray status` says on it what "
                "is missing. Mend it, and start again."
            )
        try:
            return response.json()
        except ValueError as error:
            raise UsageError(
                f"What answers at {self.address} is not the Jobs API of a Ray cluster."
            ) from error

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        seconds: float | None = None,
        with_token: bool = True,
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token and with_token else {}
        try:
            return httpx.request(
                method,
                f"{self.address}{path}",
                json=body,
                headers=headers,
                timeout=seconds or self._seconds,
                trust_env=not is_near(self.address),
            )
        except httpx.HTTPError as error:
            raise ClusterSilent(
                f"The Ray cluster at {self.address} does not answer ({type(error).__name__}: {error}). See that it "
                "runs and that its dashboard can be reached from this machine."
            ) from error


def _last_line(text: str) -> str:
    """The last line of an answer: Ray's errors are tracebacks."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:500].rstrip(".") if lines else "an empty answer"
