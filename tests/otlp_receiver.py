"""An OTLP/HTTP receiver on a socket, which decodes what it is sent and answers as a test says."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.server_thread import ServerThread


class OtlpReceiver(ServerThread):
    """``with OtlpReceiver() as receiver: ...``

    Attributes:
        spans: The spans that were taken, in order; each as a dict.
        requests: How many requests came.
        headers: The headers of each request.
        answer: Gives the status of a request from its spans.
        port: Where it listens, from the start on; 0 for any.
    """

    def __init__(self, port: int = 0) -> None:
        super().__init__()
        self.spans: list[dict[str, Any]] = []
        self.requests = 0
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[list[dict[str, Any]]], int] = lambda spans: 200
        self.rejected = 0
        self.port = port

    @property
    def url(self) -> str:
        """As OTEL_EXPORTER_OTLP_ENDPOINT has it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def traces(self) -> dict[str, list[dict[str, Any]]]:
        """The spans that were taken, by trace."""
        found: dict[str, list[dict[str, Any]]] = {}
        for span in self.spans:
            found.setdefault(span["trace"], []).append(span)
        return found

    async def _start(self) -> web.AppRunner:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_post("/v1/traces", self._take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = runner.addresses[0][1]
        return runner

    async def _take(self, request: web.Request) -> web.Response:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
            ExportTraceServiceResponse,
        )

        self.requests += 1
        self.headers.append(dict(request.headers))
        message = ExportTraceServiceRequest.FromString(await request.read())
        spans = [
            _span(span, resource)
            for resource in message.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        status = self.answer(spans)
        if status != 200:
            return web.Response(status=status)
        self.spans += spans
        answer = ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = self.rejected
        return web.Response(body=answer.SerializeToString(), content_type="application/x-protobuf")


def _span(span: Any, resource: Any) -> dict[str, Any]:
    return {
        "name": span.name,
        "kind": span.kind,
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "began": span.start_time_unix_nano,
        "ended": span.end_time_unix_nano,
        "status": span.status.code,
        "message": span.status.message,
        "attributes": _attributes(span.attributes),
        "resource": _attributes(resource.resource.attributes),
    }


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)
