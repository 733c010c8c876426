"""As much of Hugging Face's hub as it takes to read one repository, or to push to one, on the loopback address."""

import base64
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

    with _serving(Hub) as url:
        yield url


@contextmanager
def hub_for_pushing(files: dict[str, bytes], token: str, requests: list[tuple[str, object]]) -> Iterator[str]:
    """The address of a hub that takes commits: small files in the commit, weights before it by Git LFS's protocol.

    Args:
        files: Those of the repository, which commits change.
        token: The one that may write.
        requests: Gets the path and the content of each request but uploads.
    """
    uploaded: dict[str, bytes] = {}

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if "/tree/" in self.path:
                self._send(
                    [{"type": "file", "oid": "a", "size": len(files[one]), "path": one} for one in files]
                )
            elif "/resolve/" in self.path:
                content = files.get(self.path.rpartition("/")[2])
                self._send(content or {}, 404 if content is None else 200)
            else:
                siblings = [{"rfilename": one} for one in files]
                self._send({"id": REPOSITORY, "sha": REVISION, "tags": [], "siblings": siblings})

        do_HEAD = do_GET

        def do_PUT(self) -> None:
            uploaded[self.path.rpartition("/")[2]] = self._content()
            self._send({})

        def do_POST(self) -> None:
            content, url = self._content(), f"http://{self.headers['Host']}"
            if self.headers["Authorization"] != f"Bearer {token}":
                self._send({"error": "You may not write here"}, 403)
                return
            if self.path.partition("?")[0].endswith("/commit/main"):
                lines = [json.loads(line) for line in content.splitlines()]
                requests.append((self.path, lines))
                for line in lines:
                    self._commit(**line)
                self._send({"commitUrl": f"{url}/{REPOSITORY}/commit/1", "commitOid": REVISION})
                return
            asked = json.loads(content)
            if self.path == "/api/validate-yaml":
                self._send({"errors": [], "warnings": []})
                return
            requests.append((self.path, asked))
            if self.path.endswith("/repos/create"):
                self._send({"url": f"{url}/{REPOSITORY}"})
            elif "/preupload/" in self.path:
                modes = {True: "lfs", False: "regular"}
                self._send(
                    {
                        "files": [
                            {
                                "path": file["path"],
                                "uploadMode": modes[file["path"].endswith(".safetensors")],
                                "shouldIgnore": False,
                            }
                            for file in asked["files"]
                        ]
                    }
                )
            else:
                self._send(
                    {
                        "transfer": "basic",
                        "objects": [
                            {**entry, "actions": {"upload": {"href": f"{url}/lfs/{entry['oid']}"}}}
                            for entry in asked["objects"]
                        ],
                    }
                )

        def _commit(self, key: str, value: dict[str, str]) -> None:
            if key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "lfsFile":
                files[value["path"]] = uploaded[value["oid"]]
            elif key == "deletedFile":
                del files[value["path"]]

        def _content(self) -> bytes:
            return self.rfile.read(int(self.headers["Content-Length"] or 0))

        def _send(self, content: object, status: int = 200) -> None:
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            if status == 404:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
            self.send_header("X-Repo-Commit", REVISION)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the output is the test's."""

    with _serving(Hub) as url:
        yield url


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
