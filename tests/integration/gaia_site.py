"""Serves the pages of the questions: a site with a form, and an article as MediaWiki's API gives it.

A program for a session's own machine: ``serve.py PORT`` in the folder with the pages.
"""

import json
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

ARTICLE = {
    "title": "Fastnes Lighthouse",
    "pageid": 1,
    "revid": 5,
    "text": "<p>The <b>lighthouse</b> was lit in 1881.</p><h2>Tower</h2><p>The tower is 38 metres high.</p>",
    "sections": [
        {"toclevel": 1, "level": "2", "line": "Tower", "number": "1", "index": "1", "anchor": "Tower"}
    ],
    "properties": {},
}


class Site(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        address = urlsplit(self.path)
        fields = {name: values[0] for name, values in parse_qs(address.query).items()}
        if address.path == "/found":
            self._answer(_found(fields), "text/html")
        elif address.path == "/w/api.php":
            self._answer(json.dumps(_wiki(fields)), "application/json")
        else:
            super().do_GET()

    def _answer(self, content: str, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.end_headers()
        self.wfile.write(content.encode())


def _found(fields: dict[str, str]) -> str:
    for ship, year, crew in json.loads(Path("ships.json").read_text()):
        if (ship, year) == (fields.get("ship"), fields.get("year")):
            return f"<title>Found</title><p>In {year} the {ship} had a crew of {crew}.</p>"
    return "<title>Nothing</title><p>No ship of that name in that year.</p>"


def _wiki(fields: dict[str, str]) -> dict[str, object]:
    if fields.get("action") == "parse":
        return {"parse": ARTICLE}
    found = [{"title": ARTICLE["title"], "snippet": "The <span>lighthouse</span> was lit", "wordcount": 12}]
    return {"query": {"search": found, "searchinfo": {"totalhits": 1}}}


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Site).serve_forever()
