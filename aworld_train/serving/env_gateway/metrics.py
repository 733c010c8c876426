"""The metrics of an environment, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class Metrics:
    """The metrics of one gateway."""

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
            "aworld_session_wait_seconds", "Wait for a worker.", buckets=_SECONDS, registry=registry
        )
        self.calls = Counter("aworld_tool_calls", "Tool calls.", ["server", "outcome"], registry=registry)
        self.call_seconds = Histogram(
            "aworld_tool_call_seconds",
            "Duration of tool calls.",
            ["server"],
            buckets=_SECONDS,
            registry=registry,
        )

    def text(self) -> bytes:
        return generate_latest(self._registry)
