"""What an environment publishes for Prometheus: the names, labels and buckets that dashboards and alarms refer to."""

from aworld_train.serving.env_gateway.metrics import Metrics


def test_the_page_has_every_metric_with_its_labels() -> None:
    metrics = Metrics()
    metrics.sessions.inc(2)
    metrics.ended.labels("idle").inc()
    metrics.refused.labels("token").inc()
    metrics.calls.labels("web", "ok").inc()
    for gauge in (metrics.open, metrics.queued, metrics.connections, metrics.held):
        gauge.set(3)
    metrics.workers.labels("busy").set(4)
    metrics.waited.observe(0.005)
    metrics.call_seconds.labels("web").observe(301)
    page = [
        line for line in metrics.text().decode().splitlines() if line[0] != "#" and "_created" not in line
    ]
    bounds = [
        "0.005",
        "0.01",
        "0.025",
        "0.05",
        "0.1",
        "0.25",
        "0.5",
        "1.0",
        "2.5",
        "5.0",
        "10.0",
        "30.0",
        "60.0",
    ]
    bounds += ["300.0", "+Inf"]
    assert page == [
        "aworld_sessions_total 2.0",
        'aworld_sessions_ended_total{cause="idle"} 1.0',
        'aworld_requests_refused_total{cause="token"} 1.0',
        "aworld_sessions_open 3.0",
        "aworld_sessions_queued 3.0",
        "aworld_connections 3.0",
        "aworld_held_bytes 3.0",
        'aworld_workers{state="busy"} 4.0',
        *(f'aworld_session_wait_seconds_bucket{{le="{bound}"}} 1.0' for bound in bounds),
        "aworld_session_wait_seconds_count 1.0",
        "aworld_session_wait_seconds_sum 0.005",
        'aworld_tool_calls_total{outcome="ok",server="web"} 1.0',
        *(
            f'aworld_tool_call_seconds_bucket{{le="{bound}",server="web"}} {float(bound == "+Inf")}'
            for bound in bounds
        ),
        'aworld_tool_call_seconds_count{server="web"} 1.0',
        'aworld_tool_call_seconds_sum{server="web"} 301.0',
    ]
