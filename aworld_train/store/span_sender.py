"""Sends the spans of episodes that have ended to an OTLP/HTTP endpoint while the run continues.

Which episodes are sent is recorded in the store, so what an endpoint missed is sent when it is back, after a restart
too. An episode may be sent twice, if the process ends between an answer and its note; its spans have the same ids
then.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import msgspec
from sqlalchemy import select, update

from aworld_train.errors import DependencyMissing, UsageError
from aworld_train.network import is_near
from aworld_train.store import tables
from aworld_train.store.database import Database, StoreUnreachable, brief
from aworld_train.store.export.spans import PROVIDER, Span, episode_spans
from aworld_train.store.reading import Store

HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
"""The standard variable with the headers of requests: ``name=value,name=value``, values percent-encoded."""
TRACES_HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_TRACES_HEADERS"
_TRACES_PATH = "/v1/traces"
_BATCH_EPISODES = 16
# Collectors take 4 MiB and more.
_MAX_REQUEST_BYTES = 3 << 20
_TIMEOUT = httpx.Timeout(10.0, connect=5.0)
_MIN_PAUSE, _MAX_PAUSE = 1.0, 60.0
# Answers that say that this endpoint takes nothing now, or not from us; every other error is about what was sent.
_ABOUT_ENDPOINT = (401, 402, 403, 404, 405, 406, 407, 408, 410, 421, 425, 426, 429, 431)
_REFUSED = 0.0


class EndpointAway(Exception):
    """The endpoint takes no spans now."""


class SpanSender:
    """Sends from a thread of its own to the address of OTEL_EXPORTER_OTLP_ENDPOINT, so that nothing waits for it.

    ``note`` is called with a sentence for people: once when the endpoint goes away, and when it is back.
    """

    def __init__(self, url: str, note: Callable[[str], None], *, model: str = ""):
        self._url, self._name = traces_url(url)
        check_otlp()
        self._client = httpx.Client(
            timeout=_TIMEOUT,
            headers={**headers_from_environment(), "Content-Type": "application/x-protobuf"},
            trust_env=not is_near(self._url),
        )
        self._note, self._model = note, model
        self._database: Database | None = None
        self._wake, self._closing = threading.Event(), threading.Event()
        self._is_away = self._has_refused = False
        self._thread = threading.Thread(target=self._run, name="span-sender", daemon=True)

    def send_new(self, database: Database) -> None:
        """Have the episodes that have ended and are not sent yet sent soon; returns at once."""
        self._database = database
        if self._thread.ident is None and not self._closing.is_set():
            self._thread.start()
        self._wake.set()

    def close(self, max_seconds: float) -> bool:
        """Send what is left, for at most this long, and end the thread; returns whether everything is sent."""
        self._closing.set()
        self._wake.set()
        deadline = time.monotonic() + max_seconds
        if self._thread.is_alive():
            self._thread.join(max_seconds)
        if self._thread.is_alive():
            # It ends with its request, which has timeouts of its own.
            return False
        done = self._finish(deadline)
        if self._database is not None:
            self._database.close()
        self._client.close()
        return done

    def _run(self) -> None:
        pause = _MIN_PAUSE
        while not self._closing.is_set():
            self._wake.wait()
            self._wake.clear()
            while not self._closing.is_set():
                try:
                    if not self._send_batch():
                        break
                    pause = _MIN_PAUSE
                except (EndpointAway, StoreUnreachable) as error:
                    self._report_away(error)
                    self._closing.wait(pause)
                    pause = min(2 * pause, _MAX_PAUSE)

    def _finish(self, deadline: float) -> bool:
        while self._database is not None:
            try:
                if not self._send_batch():
                    break
            except (EndpointAway, StoreUnreachable) as error:
                self._report_away(error)
                return False
            if time.monotonic() >= deadline:
                return not self._unsent(1)
        return True

    def _send_batch(self) -> bool:
        """Send some episodes; returns whether there were any. Raises EndpointAway if none of them was taken."""
        database = self._database
        assert database is not None
        names = self._unsent(_BATCH_EPISODES)
        if not names:
            return False
        traces: dict[str, bytes] = {}
        with Store(database.location) as store:
            for name in names:
                try:
                    spans = episode_spans(store.episode(name), run=store.location.name, model=self._model)
                    traces[name] = encoded_spans(spans, run=store.location.name)
                except (ValueError, msgspec.MsgspecError, UsageError) as error:
                    self._mark([name], _REFUSED)
                    self._note_refusal(
                        f"The spans of episode {name} are not at the OTLP endpoint: it cannot be read "
                        f"({brief(error)}). Others are sent."
                    )
        for batch in _batches(traces):
            self._send(batch, {name: traces[name] for name in batch})
        return True

    def _send(self, names: Sequence[str], traces: Mapping[str, bytes]) -> None:
        """Send episodes together; if they are refused, each alone, so that none keeps another back."""
        refusal = self._post(b"".join(traces.values()))
        if refusal is None:
            self._mark(names, time.time())
        elif len(names) == 1:
            self._mark(names, _REFUSED)
            self._note_refusal(
                f"{self._name} refuses the spans of episode {names[0]}: {refusal}. Others are sent."
            )
        else:
            for name in names:
                self._send([name], {name: traces[name]})

    def _note_refusal(self, sentence: str) -> None:
        if not self._has_refused:
            self._has_refused = True
            self._note(sentence)

    def _post(self, body: bytes) -> str | None:
        """Send a request; returns why it is refused, None if it is taken. Raises EndpointAway for neither."""
        try:
            response = self._client.post(self._url, content=body)
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as error:
            raise EndpointAway(brief(error)) from error
        code = response.status_code
        if code in _ABOUT_ENDPOINT or code >= 500 or 300 <= code < 400:
            raise EndpointAway(f"it answers {code}")
        if self._is_away:
            self._is_away = False
            self._note(f"{self._name} takes spans again.")
        if not response.is_success:
            return f"it answers {code}"
        if rejected := rejected_spans(response.content):
            # OTLP forbids to send the others again.
            self._note_refusal(f"{self._name} has taken all spans but {rejected}.")
        return None

    def _report_away(self, error: Exception) -> None:
        # The loader reports a database that does not answer.
        if isinstance(error, EndpointAway) and not self._is_away:
            self._is_away = True
            self._note(f"{self._name} takes no spans ({error}); they are sent when it does.")

    def _unsent(self, limit: int) -> list[str]:
        database, columns = self._database, tables.episodes.c
        assert database is not None
        query = (
            select(columns.id)
            .where(
                columns.run == database.location.run,
                columns.spans_sent.is_(None),
                columns.status.in_(("ended", "lost")),
            )
            .limit(limit)
        )
        with database.begin() as connection:
            return list(connection.execute(query).scalars())

    def _mark(self, names: Sequence[str], value: float) -> None:
        database = self._database
        assert database is not None
        with database.begin() as connection:
            connection.execute(
                update(tables.episodes).where(tables.episodes.c.id.in_(names)).values(spans_sent=value)
            )


def traces_url(url: str) -> tuple[str, str]:
    """The address to which traces go, and the endpoint's name for messages, without what may be a secret."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise UsageError(
            "`store.otlp` is not an address of an OTLP endpoint over HTTP, such as http://localhost:4318."
        )
    path = parts.path.rstrip("/")
    if not path.endswith(_TRACES_PATH):
        path += _TRACES_PATH
    address = f"[{host}]" if ":" in host else host
    return parts._replace(path=path).geturl(), f"The OTLP endpoint {address}{f':{port}' if port else ''}"


def headers_from_environment() -> dict[str, str]:
    headers: dict[str, str] = {}
    for variable in (HEADERS_VARIABLE, TRACES_HEADERS_VARIABLE):
        for pair in filter(None, map(str.strip, os.environ.get(variable, "").split(","))):
            name, separator, value = pair.partition("=")
            name, value = name.strip(), unquote(value.strip())
            if (
                not separator
                or not name.replace("-", "").replace("_", "").isalnum()
                or not value.isprintable()
            ):
                raise UsageError(f"{variable} cannot be read: it has the form name=value,name=value.")
            headers[name] = value
    return headers


def check_otlp() -> None:
    try:
        import opentelemetry.proto.collector.trace.v1.trace_service_pb2  # noqa: F401
    except ImportError:
        raise DependencyMissing(
            "`store.otlp` needs OpenTelemetry's messages, which are not installed: pip install 'aworld-train[otlp]'."
        ) from None


def encoded_spans(spans: Sequence[Span], *, run: str) -> bytes:
    """Spans as an ExportTraceServiceRequest; several of them, one after the other, are one request."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    _set_attributes(resource.resource, {"service.name": PROVIDER, "openinference.project.name": run})
    scope = resource.scope_spans.add()
    scope.scope.name = "aworld_train.store"
    for span in spans:
        message = scope.spans.add(
            name=span.name,
            kind=int(span.kind),
            trace_id=span.trace,
            span_id=span.id,
            parent_span_id=span.parent,
            start_time_unix_nano=span.began,
            end_time_unix_nano=span.ended,
        )
        _set_attributes(message, span.attributes)
        if span.error is not None:
            message.status.code = 2  # STATUS_CODE_ERROR of trace.proto
            message.status.message = span.error
    return bytes(request.SerializeToString())


def rejected_spans(answer: bytes) -> int:
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        return int(ExportTraceServiceResponse.FromString(answer).partial_success.rejected_spans)
    except DecodeError:
        return 0


def _set_attributes(message: Any, attributes: Mapping[str, Any]) -> None:
    for key, value in attributes.items():
        target = message.attributes.add(key=key).value
        match value:
            case bool():
                target.bool_value = value
            case int():
                target.int_value = value
            case float():
                target.double_value = value
            case str():
                target.string_value = value
            case _:
                for item in value:
                    target.array_value.values.add(string_value=str(item))


def _batches(traces: Mapping[str, bytes]) -> list[list[str]]:
    batches: list[list[str]] = []
    size = 0
    for name, data in traces.items():
        if not batches or size + len(data) > _MAX_REQUEST_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(name)
        size += len(data)
    return batches
