"""The metrics of an environment, for Prometheus."""

import time
from collections.abc import Iterable
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_EGRESS_SECONDS = 2.0
_MIN_REFRESH_SECONDS = 1.0


class Metrics:
    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.sessions = Counter("aworld_sessions", "Sessions opened.", registry=registry)
        self.ended = Counter("aworld_sessions_ended", "Sessions ended.", ["cause"], registry=registry)
        self.refused = Counter("aworld_requests_refused", "Requests refused.", ["cause"], registry=registry)
        self.open = Gauge("aworld_sessions_open", "Sessions that are open.", registry=registry)
        self.queued = Gauge("aworld_sessions_queued", "Sessions waiting for a worker.", registry=registry)
        self.connections = Gauge("aworld_connections", "Connections of clients.", registry=registry)
        self.held = Gauge("aworld_held_bytes", "Bytes that requests hold.", registry=registry)
        self.workers = Gauge("aworld_workers", "Workers.", ["state"], registry=registry)
        self.waited = Histogram(
            "aworld_session_wait_seconds", "Wait for a worker.", buckets=_BUCKETS, registry=registry
        )
        self.calls = Counter("aworld_tool_calls", "Tool calls.", ["server", "outcome"], registry=registry)
        self.call_seconds = Histogram(
            "aworld_tool_call_seconds",
            "Duration of tool calls.",
            ["server"],
            buckets=_BUCKETS,
            registry=registry,
        )

    def text(self) -> bytes:
        return generate_latest(self._registry)


class EgressCounts(Collector):
    def __init__(self, socket: str):
        self._socket = socket
        self._counts: dict[str, Any] = {"requests": {}, "bytes": {}, "restarts": 0}
        self._is_up = False
        self._next_refresh = 0.0
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def refresh(self) -> None:
        """Read them, at most once a second; without an answer, the old ones stay."""
        now = time.monotonic()
        if now < self._next_refresh:
            return
        self._next_refresh = now + _MIN_REFRESH_SECONDS
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(self._socket),
                    timeout=aiohttp.ClientTimeout(total=_EGRESS_SECONDS),
                ) as http,
                http.get("http://egress/counts") as response,
            ):
                response.raise_for_status()
                self._counts = await response.json()
                self._is_up = True
        except (aiohttp.ClientError, TimeoutError, ValueError):
            self._is_up = False

    def described(self) -> dict[str, Any]:
        refused = sum(
            count
            for outcomes in self._counts["requests"].values()
            for outcome, count in outcomes.items()
            if outcome.startswith("refused")
        )
        return {"status": "ok" if self._is_up else "down", "refused": refused}

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "aworld_egress_up", "Whether the egress proxy answers.", value=float(self._is_up)
        )
        yield CounterMetricFamily(
            "aworld_egress_restarts",
            "Restarts of Squid and Unbound in the egress container.",
            value=self._counts["restarts"],
        )
        requests = CounterMetricFamily(
            "aworld_egress_requests", "Requests to the egress proxy.", labels=["server", "outcome"]
        )
        transferred = CounterMetricFamily(
            "aworld_egress_bytes", "Bytes through the egress proxy.", labels=["server", "direction"]
        )
        for family, key in ((requests, "requests"), (transferred, "bytes")):
            for server, values in self._counts[key].items():
                for label, value in values.items():
                    family.add_metric([server, label], value)
            yield family

    def text(self) -> bytes:
        return generate_latest(self._registry)
