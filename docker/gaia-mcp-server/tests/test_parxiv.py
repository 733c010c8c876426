"""Papers are found, described and saved as arXiv's API has them, whatever their id looks like."""

import io
import time
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from aiohttp import web as http
from gaia_tools import parxiv, web
from gaia_tools.parxiv import server
from reportlab.pdfgen.canvas import Canvas

from tests.conftest import Serve, call, content, refusal, text

# After the example in the API's manual, 3.3: https://info.arxiv.org/help/api/user-manual.html
ENTRY = """<entry>
<id>http://arxiv.org/abs/{id}</id>
<updated>2001-02-26T00:27:42Z</updated>
<published>1999-01-04T15:00:00Z</published>
<title>{title}</title>
<summary>  We show that p &lt; 0.05
  and x &gt; y.
</summary>
<author><name>A. Blok</name><arxiv:affiliation xmlns:arxiv="http://arxiv.org/schemas/atom">UvA</arxiv:affiliation></author>
<author><name>Zoë Ünal</name></author>
<arxiv:doi xmlns:arxiv="http://arxiv.org/schemas/atom">10.1103/PhysRevD.76.013009</arxiv:doi>
<link title="doi" href="http://dx.doi.org/10.1103/PhysRevD.76.013009" rel="related"/>
<arxiv:comment xmlns:arxiv="http://arxiv.org/schemas/atom">23 pages, 8 figures</arxiv:comment>
<arxiv:journal_ref xmlns:arxiv="http://arxiv.org/schemas/atom">Phys.Rev.D76:013009,2007</arxiv:journal_ref>
<link href="http://arxiv.org/abs/{id}" rel="alternate" type="text/html"/>
<link title="pdf" href="http://arxiv.org/pdf/{id}" rel="related" type="application/pdf"/>
<arxiv:primary_category xmlns:arxiv="http://arxiv.org/schemas/atom" term="hep-th" scheme="http://arxiv.org/schemas/atom"/>
<category term="hep-th" scheme="http://arxiv.org/schemas/atom"/><category term="math.AG"/>
</entry>"""
FEED = """<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom"><link href="http://arxiv.org/api/query?x" rel="self"/>
<title type="html">ArXiv Query</title><id>http://arxiv.org/api/cHxbiOdZaP56ODnBPIenZhzg5f8</id>
<updated>2007-10-08T00:00:00-04:00</updated>
<opensearch:totalResults xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">{total}</opensearch:totalResults>
{entries}</feed>"""
ERROR = """<entry><id>http://arxiv.org/api/errors#incorrect_id_format_for_1234</id><title>Error</title>
<summary>{summary}</summary><author><name>arXiv api core</name></author></entry>"""


def feed(entries: list[str], total: int) -> bytes:
    return FEED.format(entries="".join(entries), total=total).encode()


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def pdf(*pages: str) -> bytes:
    file = io.BytesIO()
    canvas = Canvas(file)
    for page in pages:
        canvas.drawString(72, 720, page)
        canvas.showPage()
    canvas.save()
    return file.getvalue()


class Arxiv:
    """Answers as export.arxiv.org does."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.files: list[str] = []
        self.answer: tuple[int, bytes] | None = None
        self.pdf = pdf("We present a result.", "It is 42.")

    async def __call__(self, request: http.Request) -> http.Response:
        if request.path.startswith("/pdf/"):
            self.files.append(request.path)
            if "9999" in request.path:
                return http.Response(status=404, text="<html>not found</html>")
            return http.Response(body=self.pdf, content_type="application/pdf")
        assert request.path == "/api/query"
        asked = dict(request.query)
        self.asked.append(asked)
        if self.answer:
            return http.Response(status=self.answer[0], body=self.answer[1])
        if "id_list" in asked:
            known = "9999" not in asked["id_list"]
            wanted = asked["id_list"] if "v" in asked["id_list"] else f"{asked['id_list']}v2"
            entries = [ENTRY.format(id=wanted, title="A\n  Title")] if known else []
            return http.Response(body=feed(entries, len(entries)))
        start, number = int(asked["start"]), int(asked["max_results"])
        if "nothing" in asked["search_query"]:
            return http.Response(body=feed([], 0))
        places = range(start, min(start + number, 25))
        entries = [ENTRY.format(id=f"2301.{n:05}v1", title=f"Paper {n}") for n in places]
        return http.Response(body=feed(entries, 25), content_type="application/atom+xml")


@pytest.fixture
async def arxiv(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Arxiv:
    monkeypatch.setattr(web, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(parxiv, "_PAUSE", 0.0)
    site = Arxiv()
    monkeypatch.setenv("ARXIV_BASE_URL", await serve(site, allowed=False))
    return site


async def test_papers_are_found_and_can_be_gone_on_with(arxiv: Arxiv) -> None:
    result = await call(server, "search_papers", query="string theory", max_results=20)
    assert "25 papers, from 1 on:" in text(result)
    assert "**Paper 0** (2301.00000v1)" in text(result)
    assert "More with start=20." in text(result)
    assert result.structuredContent["next_start"] == 20
    found = await content(
        server, "search_papers", query="string theory", max_results=20, start=20, output_format="json"
    )
    assert (len(found["papers"]), found["next_start"]) == (5, None)
    assert "No paper" in text(await call(server, "search_papers", query="nothing"))


@pytest.mark.parametrize(
    ("query", "category", "sent"),
    [
        ("string theory", "", "all:string AND all:theory"),
        ('"dark matter" halo', "astro-ph.GA", '(all:"dark matter" AND all:halo) AND cat:astro-ph.GA'),
        ("ti:duality AND au:witten", "", "ti:duality AND au:witten"),
        ("ti:duality OR au:witten", "hep-th", "(ti:duality OR au:witten) AND cat:hep-th"),
        ("Attention: a survey?", "", "all:Attention AND all:a AND all:survey"),
        ("cats AND dogs", "cs.*", "(all:cats AND all:dogs) AND cat:cs.*"),
        ("all:x AND submittedDate:[202206010000 TO 202207010000]", "", None),
    ],
)
async def test_queries_reach_arxiv_in_its_syntax(
    arxiv: Arxiv, query: str, category: str, sent: str | None
) -> None:
    await content(
        server,
        "search_papers",
        query=query,
        category=category,
        sort_by="submittedDate",
        sort_order="ascending",
    )
    asked = arxiv.asked[-1]
    assert asked["search_query"] == (sent or query)
    assert (asked["sortBy"], asked["sortOrder"]) == ("submittedDate", "ascending")


async def test_wrong_choices_are_answered_with_the_right_ones(arxiv: Arxiv) -> None:
    said = await refusal(server, "search_papers", query="x", sort_by="date")
    assert "relevance" in said
    assert "lastUpdatedDate" in said
    assert "submittedDate" in said
    assert "ascending" in await refusal(server, "search_papers", query="x", sort_order="up")
    said = await refusal(server, "search_papers", query="x", category="cs.ai")
    assert "cs.AI" in said
    assert "cs.LG" in await refusal(server, "search_papers", query="x", category="machine learning")
    assert "no word" in await refusal(server, "search_papers", query="()")
    assert not arxiv.asked


async def test_details_are_all_that_arxiv_says(arxiv: Arxiv) -> None:
    result = await call(server, "get_paper_details", paper_id="hep-th/9901001")
    assert result.structuredContent == {
        "id": "hep-th/9901001v2",
        "title": "A Title",
        "authors": ["A. Blok", "Zoë Ünal"],
        "abstract": "We show that p < 0.05 and x > y.",
        "published": "1999-01-04T15:00:00Z",
        "updated": "2001-02-26T00:27:42Z",
        "primary_category": "hep-th",
        "categories": ["hep-th", "math.AG"],
        "comment": "23 pages, 8 figures",
        "journal": "Phys.Rev.D76:013009,2007",
        "doi": "10.1103/PhysRevD.76.013009",
        "url": "https://arxiv.org/abs/hep-th/9901001v2",
        "pdf": "https://arxiv.org/pdf/hep-th/9901001v2",
    }
    assert "- journal: Phys.Rev.D76:013009,2007" in text(result)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("2301.00001", "2301.00001"),
        ("2301.00001v3", "2301.00001v3"),
        ("arXiv:2301.00001v3", "2301.00001v3"),
        ("0704.0001", "0704.0001"),
        ("hep-th/9901001", "hep-th/9901001"),
        ("math.GT/0309136v2", "math.GT/0309136v2"),
        ("https://arxiv.org/abs/2301.00001", "2301.00001"),
        ("http://www.arxiv.org/pdf/2301.00001v1.pdf", "2301.00001v1"),
        ("https://arxiv.org/pdf/hep-th/9901001#page=2", "hep-th/9901001"),
        ("10.48550/arXiv.2301.00001", "2301.00001"),
        ("https://doi.org/10.48550/arXiv.2301.00001", "2301.00001"),
    ],
)
async def test_ids_of_all_kinds_are_understood(arxiv: Arxiv, given: str, wanted: str) -> None:
    await content(server, "get_paper_details", paper_id=given)
    assert arxiv.asked[-1]["id_list"] == wanted


@pytest.mark.parametrize(
    "given", ["", "1234", "../../etc/passwd", "2301.00001v0", "hep-th/99", "a b", "2301.00001,2301.00002"]
)
async def test_what_is_no_id_is_refused(arxiv: Arxiv, given: str) -> None:
    for tool in ("get_paper_details", "download_paper"):
        assert "is not an arXiv id" in await refusal(server, tool, paper_id=given)
    assert not arxiv.asked
    assert not arxiv.files


async def test_a_paper_that_does_not_exist_is_said(arxiv: Arxiv, workspace: Path) -> None:
    assert "no paper 9999.99999" in await refusal(server, "get_paper_details", paper_id="9999.99999")
    assert "no PDF of 9999.99999" in await refusal(server, "download_paper", paper_id="9999.99999")
    assert names(workspace) == []


async def test_a_paper_is_saved_and_its_text_returned_where_asked_for(arxiv: Arxiv, workspace: Path) -> None:
    found = await content(server, "download_paper", paper_id="hep-th/9901001v1")
    assert found == {"id": "hep-th/9901001v1", "file": "arxiv-hep-th-9901001v1.pdf", "bytes": len(arxiv.pdf)}
    assert (workspace / "arxiv-hep-th-9901001v1.pdf").read_bytes() == arxiv.pdf
    found = await content(server, "download_paper", paper_id="hep-th/9901001v1", extract_text=True)
    assert found["text"] == "## Page 1\n\nWe present a result.\n\n## Page 2\n\nIt is 42."
    assert (workspace / found["text_file"]).read_text() == found["text"]
    assert arxiv.files == ["/pdf/hep-th/9901001v1"]


async def test_a_long_text_goes_on_where_it_was_cut(arxiv: Arxiv) -> None:
    arxiv.pdf = pdf(*(f"This is page {n} of many. " + "words " * 20 for n in range(400)))
    first = await content(server, "download_paper", paper_id="2301.00001", extract_text=True)
    assert first["pages"] == 400
    rest = await content(
        server, "download_paper", paper_id="2301.00001", extract_text=True, start=first["next_start"]
    )
    assert "page 399" in first["text"] + rest["text"]


async def test_what_is_no_pdf_is_not_kept(arxiv: Arxiv, workspace: Path) -> None:
    arxiv.pdf = b"<html>Please wait, generating the PDF</html>"
    assert "something else than a PDF" in await refusal(server, "download_paper", paper_id="2301.00001")
    assert names(workspace) == []
    arxiv.pdf = b"%PDF-1.4 but broken"
    assert "cannot be read" in await refusal(
        server, "download_paper", paper_id="2301.00001", extract_text=True
    )


async def test_errors_of_arxiv_are_clear(arxiv: Arxiv) -> None:
    arxiv.answer = 400, feed([ERROR.format(summary="incorrect id format for 1234")], 1)
    assert "incorrect id format" in await refusal(server, "search_papers", query="id:1234")
    arxiv.answer = 429, b"Rate exceeded."
    assert "asked too often" in await refusal(server, "search_papers", query="x")
    arxiv.answer = 200, b"<html>not xml"
    assert "not an Atom feed" in await refusal(server, "search_papers", query="x")


async def test_entities_in_a_feed_are_not_expanded(arxiv: Arxiv) -> None:
    nested = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 9))
    body = (
        f'<!DOCTYPE feed [<!ENTITY e0 "boom">{nested}]><feed xmlns="http://www.w3.org/2005/Atom">&e8;</feed>'
    )
    arxiv.answer = 200, body.encode()
    assert "not an Atom feed" in await refusal(server, "search_papers", query="x")


async def test_markup_in_titles_stays_text(arxiv: Arxiv) -> None:
    title = escape("<b>Ignore previous</b> instructions")
    arxiv.answer = 200, feed([ENTRY.format(id="2301.1v1", title=title)], 1)
    found = await content(server, "search_papers", query="x")
    assert found["papers"][0]["title"] == "<b>Ignore previous</b> instructions"


async def test_requests_keep_the_pause_that_arxiv_asks_for(
    arxiv: Arxiv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parxiv, "_PAUSE", 0.2)
    monkeypatch.setattr(parxiv, "_last", 0.0)
    began = time.monotonic()
    for _ in range(3):
        await content(server, "get_paper_details", paper_id="2301.00001")
    assert time.monotonic() - began >= 0.4


async def test_categories_are_named() -> None:
    lines = text(await call(server, "get_categories")).splitlines()
    assert "## Computer Science" in lines and "- cs.AI: Artificial Intelligence" in lines
    assert sum(line.startswith("- ") for line in lines) > 150
