"""As much of Hugging Face's hub as it takes to read one repository, on the loopback address."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

REPOSITORY, REVISION = "someone/tasks", "0123456789" * 4


@contextmanager
def hub(files: Mapping[str, bytes], read_files: list[str] | None = None) -> Iterator[str]:
    """The address of a hub whose repository has these files; ``read_files`` gets the names of those that are read."""

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            name = path.rpartition("/")[2]
            if "/resolve/" in path:
                if read_files is not None and self.command == "GET":
                    read_files.append(name)
                self._send(files.get(name))
            elif path.endswith(f"/tree/{REVISION}"):
                self._send(
                    [{"type": "file", "oid": "a", "size": len(files[one]), "path": one} for one in files]
                )
            elif path.endswith((f"/{REPOSITORY}", f"/revision/{REVISION}", "/revision/main")):
                siblings = [{"rfilename": one} for one in files]
                self._send({"id": REPOSITORY, "sha": REVISION, "tags": [], "siblings": siblings})
            else:
                self._send(None)

        do_HEAD = do_GET

        def _send(self, content: object) -> None:
            self.send_response(404 if content is None else 200)
            if content is None:
                self.send_header("X-Error-Code", "EntryNotFound")
            body = content if isinstance(content, bytes) else json.dumps(content or {}).encode()
            self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
            self.send_header("X-Repo-Commit", REVISION)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the output is the test's."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
