"""What the gateway says of an environment's way out: asked of the egress container, which is no part of a request."""

import time
from collections.abc import Iterable
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

_SECONDS = 2.0
_AGE_SECONDS = 1.0


class EgressCounts(Collector):
    """The counts of an egress container, as they were when they were last asked for.

    Args:
        socket: Where it answers, ``counts`` in its settings.
    """

    def __init__(self, socket: str):
        self._socket = socket
        self._counts: dict[str, dict[str, dict[str, int]]] = {"requests": {}, "bytes": {}}
        self._answers = False
        self._next = 0.0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def refresh(self) -> None:
        """Ask for them, once a second at most; where it does not answer, they stay as they were."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _AGE_SECONDS
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(self._socket),
                    timeout=aiohttp.ClientTimeout(total=_SECONDS),
                ) as http,
                http.get("http://egress/counts") as response,
            ):
                response.raise_for_status()
                self._counts = await response.json()
                self._answers = True
        except (aiohttp.ClientError, TimeoutError, ValueError):
            self._answers = False

    def described(self) -> dict[str, Any]:
        """For ``/health``: whether it answers, and how many requests it refused."""
        refused = sum(
            count
            for outcomes in self._counts["requests"].values()
            for outcome, count in outcomes.items()
            if outcome.startswith("refused")
        )
        return {"status": "ok" if self._answers else "down", "refused": refused}

    def collect(self) -> Iterable[Metric]:
        """For a registry of prometheus_client."""
        yield GaugeMetricFamily(
            "aworld_egress_up", "Whether the way out answers.", value=float(self._answers)
        )
        requests = CounterMetricFamily(
            "aworld_egress_requests", "Requests to the way out.", labels=["server", "outcome"]
        )
        transferred = CounterMetricFamily(
            "aworld_egress_bytes", "Bytes by the way out.", labels=["server", "direction"]
        )
        for family, key in ((requests, "requests"), (transferred, "bytes")):
            for server, values in self._counts[key].items():
                for label, value in values.items():
                    family.add_metric([server, label], value)
            yield family

    def text(self) -> bytes:
        """In Prometheus' text format, to be put after `Metrics.text`."""
        return generate_latest(self._registry)
