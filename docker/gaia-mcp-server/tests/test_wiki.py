"""Articles come with their tables, as they are and as they were, and a wrong title leads to the right one."""

import re
from typing import Any

import pytest
from aiohttp import web as http
from gaia_tools import web
from gaia_tools.wiki import server

from tests.conftest import Serve, call, content, refusal, text

INFOBOX = """<div class="mw-content-ltr mw-parser-output" lang="en" dir="ltr">
<style data-mw-deduplicate="x">.a{}</style>
<table class="infobox vcard"><caption>Ada Lovelace</caption><tbody>
<tr><th colspan="2" class="infobox-above">The Countess of Lovelace</th></tr>
<tr><th scope="row">Born</th><td>Augusta Ada Byron<br>
<span style="display:none">(<span class="bday">1815-12-10</span>)</span>
10 December 1815</td></tr>
<tr><th scope="row">Known for</th><td>
<a href="/wiki/Mathematics" title="Mathematics">Mathematics</a>, computing</td></tr>
</tbody></table>
<p><b>Ada Lovelace</b> was an English
<a href="/wiki/Mathematician" title="Mathematician">mathematician</a>.<sup
class="reference"><a href="#cite_note-1">[1]</a></sup></p>
<div class="mw-heading mw-heading2"><h2 id="Life">Life</h2><span class="mw-editsection">[edit]</span></div>
<p>She wrote notes.</p>
<div class="mw-heading mw-heading3"><h3 id="Works">Works</h3></div>
<table class="wikitable"><tbody><tr><th>Year</th><th>Work</th></tr>
<tr><td rowspan="2">1843</td><td>Note A</td></tr><tr><td>Note G</td></tr></tbody></table>
<div class="mw-heading mw-heading2"><h2 id="References">References</h2></div>
<ol class="references"><li id="cite_note-1">
<a rel="nofollow" class="external text" href="https://example.org/ada">A life</a></li></ol>
<p><span class="mwe-math-element"><span style="display: none;"><math alttext="{\\displaystyle B_{7}}"><semantics>
<annotation encoding="application/x-tex">{\\displaystyle B_{7}}</annotation></semantics></math>
</span><img src="x.svg"></span></p>
<div role="navigation" class="navbox">Computing pioneers</div></div>"""
SECTIONS = [
    {"toclevel": 1, "level": "2", "line": "Life", "number": "1", "index": "1", "anchor": "Life"},
    {"toclevel": 2, "level": "3", "line": "<i>Works</i>", "number": "1.1", "index": "2", "anchor": "Works"},
    {"toclevel": 1, "level": "2", "line": "References", "number": "2", "index": "3", "anchor": "References"},
]
REVISIONS = [
    {
        "revid": 30,
        "parentid": 20,
        "user": "C",
        "timestamp": "2021-07-01T00:00:00Z",
        "size": 30,
        "comment": "later",
    },
    {
        "revid": 20,
        "parentid": 10,
        "user": "B",
        "timestamp": "2021-06-30T23:00:00Z",
        "size": 20,
        "comment": "that day",
    },
    {
        "revid": 10,
        "parentid": 0,
        "user": "A",
        "timestamp": "2003-01-02T00:00:00Z",
        "size": 10,
        "comment": "first",
    },
]


class Wiki:
    """Answers as MediaWiki's action API does, with formatversion 2 and errorformat plaintext."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.agents: set[str] = set()
        self.busy = 0

    async def __call__(self, request: http.Request) -> http.Response:
        asked = dict(request.query)
        self.asked.append(asked)
        self.agents.add(request.headers["User-Agent"])
        assert request.path == "/w/api.php"
        assert (asked["format"], asked["formatversion"]) == ("json", "2")
        if self.busy:
            self.busy -= 1
            return http.Response(status=429, text="Too many requests", headers={"Retry-After": "0"})
        if asked["action"] == "parse":
            return http.json_response(self.parse(asked))
        if asked["action"] == "opensearch":
            return http.json_response(
                [asked["search"], ["Ada Lovelace"], [""], ["https://en.wikipedia.org/wiki/Ada"]]
            )
        return http.json_response(self.query(asked))

    def parse(self, asked: dict[str, str]) -> dict[str, Any]:
        parsed: dict[str, Any] = {"title": "Ada Lovelace", "pageid": 974, "revid": 30, "text": INFOBOX}
        parsed |= {"sections": SECTIONS, "properties": {}, "redirects": []}
        if "oldid" in asked:
            text = f"<p>As of revision {asked['oldid']}.</p>"
            return {"parse": parsed | {"revid": int(asked["oldid"]), "text": text, "sections": []}}
        if asked["page"] == "Lady Lovelace":
            return {"parse": parsed | {"redirects": [{"from": "Lady Lovelace", "to": "Ada Lovelace"}]}}
        if asked["page"] == "Ada":
            links = '<ul><li><a href="/wiki/Ada_Lovelace">Ada Lovelace</a></li></ul>'
            return {"parse": parsed | {"title": "Ada", "text": links, "properties": {"disambiguation": ""}}}
        if asked["page"] == "Long":
            text = "".join(f"<p>Paragraph {n} {'word ' * 50}</p>" for n in range(200))
            return {"parse": parsed | {"title": "Long", "text": text, "sections": []}}
        if asked["page"] != "Ada Lovelace":
            error = {
                "code": "missingtitle",
                "text": "The page you specified doesn't exist.",
                "module": "parse",
            }
            return {"errors": [error], "docref": "See https://en.wikipedia.org/w/api.php for API usage."}
        return {"parse": parsed}

    def query(self, asked: dict[str, str]) -> dict[str, Any]:
        if asked.get("list") == "search":
            if asked["srsearch"] == "nothing":
                return {"query": {"searchinfo": {"totalhits": 0, "suggestion": "something"}, "search": []}}
            hit = {"ns": 0, "title": "Ada Lovelace", "pageid": 974, "size": 9, "wordcount": 7}
            hit |= {
                "snippet": 'the <span class="searchmatch">first</span> programmer &amp; more',
                "timestamp": "2024",
            }
            return {"query": {"searchinfo": {"totalhits": 1}, "search": [hit][: int(asked["srlimit"])]}}
        title = asked["titles"]
        if "<" in title:
            page: dict[str, Any] = {
                "title": title,
                "invalidreason": "it has invalid characters: <",
                "invalid": True,
            }
            return {"query": {"pages": [page]}}
        if title not in ("Ada Lovelace", "Lady Lovelace"):
            return {"batchcomplete": True, "query": {"pages": [{"ns": 0, "title": title, "missing": True}]}}
        page = {"pageid": 974, "ns": 0, "title": "Ada Lovelace"}
        if asked["prop"] == "revisions":
            ordered = REVISIONS if asked["rvdir"] == "older" else REVISIONS[::-1]
            found = [one for one in ordered if str(one["timestamp"]) <= asked.get("rvstart", "9")]
            return {"query": {"pages": [page | ({"revisions": found[:1]} if found else {})]}}
        if asked["prop"] == "links":
            if "plcontinue" in asked:
                return {"query": {"pages": [page | {"links": [{"ns": 0, "title": "Zeta"}]}]}}
            links = [{"ns": 0, "title": f"Article {n}"} for n in range(500)]
            return {
                "continue": {"plcontinue": "974|0|Zeta", "continue": "||"},
                "query": {"pages": [page | {"links": links}]},
            }
        if asked["prop"] == "categories":
            categories = [{"ns": 14, "title": "Category:1815 births"}]
            if asked.get("clshow") != "!hidden":
                categories.append({"ns": 14, "title": "Category:All articles"})
            return {"query": {"pages": [page | {"categories": categories}]}}
        extract = {
            "extract": "<p>Ada Lovelace was a mathematician, 10<sup>2</sup> years ago.</p>",
            "description": "English mathematician (1815–1852)",
        }
        return {"query": {"pages": [page | extract | {"pageprops": {"wikibase_item": "Q7259"}}]}}


@pytest.fixture
async def wiki(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Wiki:
    monkeypatch.setattr(web, "_FIRST_PAUSE", 0.01)
    site = Wiki()
    monkeypatch.setenv("WIKIPEDIA_BASE_URL", await serve(site, allowed=False))
    return site


async def test_an_article_comes_with_infobox_tables_formulas_and_sources(wiki: Wiki) -> None:
    found = await content(server, "get_article_content", title="Ada Lovelace")
    lines = [re.sub(r" +", " ", line) for line in found["content"].splitlines()]
    assert "| Born | Augusta Ada Byron 10 December 1815 |" in lines
    assert "| Known for | Mathematics, computing |" in lines
    assert "| 1843 | Note A |" in lines
    assert "| 1843 | Note G |" in lines
    assert "**Ada Lovelace** was an English mathematician.[1]" in " ".join(lines)
    assert "$" + r"{\displaystyle B_{7}}" + "$" in found["content"]
    assert "[A life](https://example.org/ada)" in found["content"]
    assert "[edit]" not in found["content"]
    assert "Computing pioneers" not in found["content"]
    assert found["sections"] == ["Life", "Works", "References"]
    assert all("aworld-train" in agent for agent in wiki.agents)


async def test_a_section_comes_alone_with_those_below_it(wiki: Wiki) -> None:
    found = await content(server, "get_article_content", title="Ada Lovelace", section="life")
    assert found["content"].startswith("## Life")
    assert "Note G" in found["content"]
    assert "References" not in found["content"]
    said = await refusal(server, "get_article_content", title="Ada Lovelace", section="Death")
    assert "There are: Life; Works; References" in said


async def test_a_long_article_goes_on_where_it_was_cut(wiki: Wiki) -> None:
    first = await content(server, "get_article_content", title="Long")
    rest = await content(server, "get_article_content", title="Long", start=first["next_start"])
    for n in (0, 100, 199):
        assert f"Paragraph {n} " in first["content"] + rest["content"]


async def test_redirects_and_titles_of_several_articles_are_said(wiki: Wiki) -> None:
    result = await call(
        server, "get_article_content", title="https://en.wikipedia.org/wiki/Lady_Lovelace#Life"
    )
    assert "Redirected from Lady Lovelace." in text(result)
    result = await call(server, "get_article_content", title="Ada")
    assert "choose one" in text(result)
    assert result.structuredContent["disambiguation"] is True


@pytest.mark.parametrize(
    ("tool", "more"),
    [
        ("get_article_content", {}),
        ("get_article_summary", {}),
        ("get_article_categories", {}),
        ("get_article_links", {}),
        ("get_article_history", {"date": "2021"}),
    ],
)
async def test_a_title_that_does_not_exist_leads_to_near_ones(
    wiki: Wiki, tool: str, more: dict[str, str]
) -> None:
    said = await refusal(server, tool, title="Ada Lovelase", **more)
    assert "no article 'Ada Lovelase' in Wikipedia (en)" in said
    assert "There are: Ada Lovelace." in said


async def test_an_article_as_of_a_day_is_its_last_revision_up_to_its_end(wiki: Wiki) -> None:
    for date in ("2021-06-30", "2021-06", "2021/06/30", "2021-06-30T23:30:00Z"):
        found = await content(server, "get_article_history", title="Ada Lovelace", date=date)
        assert (found["revision"], found["user"], found["comment"]) == (20, "B", "that day")
        assert found["content"] == "As of revision 20."
        assert found["revision_url"].endswith("oldid=20")
    assert (await content(server, "get_article_history", title="Ada Lovelace", date="2020"))["revision"] == 10
    assert (await content(server, "get_article_history", title="Lady Lovelace", date="2022"))[
        "revision"
    ] == 30
    said = await refusal(server, "get_article_history", title="Ada Lovelace", date="2001-05-05")
    assert "its first one is of 2003-01-02" in said


@pytest.mark.parametrize("date", ["yesterday", "2021-13", "2021-02-30", "", "0"])
async def test_what_is_no_date_is_refused(wiki: Wiki, date: str) -> None:
    assert "is not a date" in await refusal(server, "get_article_history", title="Ada Lovelace", date=date)


async def test_search_summary_categories_and_links(wiki: Wiki) -> None:
    found = await content(server, "search_wikipedia", query="first programmer", limit=5)
    assert found["results"][0]["title"] == "Ada Lovelace"
    assert found["results"][0]["snippet"] == "the first programmer & more"
    result = await call(server, "search_wikipedia", query="nothing")
    assert "Did you mean: something" in text(result)
    found = await content(server, "get_article_summary", title="Ada Lovelace")
    assert found["summary"] == "Ada Lovelace was a mathematician, 10^2 years ago."
    assert (found["wikidata"], found["disambiguation"]) == ("Q7259", False)
    assert (await content(server, "get_article_categories", title="Ada Lovelace"))["categories"] == [
        "1815 births"
    ]
    everything = await content(server, "get_article_categories", title="Ada Lovelace", include_hidden=True)
    assert everything["categories"] == ["1815 births", "All articles"]
    result = await call(server, "get_article_links", title="Ada Lovelace")
    heading, *links = text(result).splitlines()
    assert "501 articles" in heading and (links[0], links[-1], len(links)) == ("Article 0", "Zeta", 501)


async def test_a_busy_wiki_is_asked_again_and_then_said_to_be(wiki: Wiki) -> None:
    wiki.busy = 2
    await content(server, "get_article_summary", title="Ada Lovelace")
    wiki.busy = 100
    assert "asked too often" in await refusal(server, "get_article_summary", title="Ada Lovelace")


async def test_a_title_that_cannot_be_one_is_refused(wiki: Wiki) -> None:
    assert "invalid characters" in await refusal(server, "get_article_summary", title="<x>")


@pytest.mark.parametrize("language", ["evil.example/", "en.evil", "a@b", "EN", "", "e\nn"])
async def test_a_language_cannot_lead_to_another_host(
    wiki: Wiki, monkeypatch: pytest.MonkeyPatch, language: str
) -> None:
    monkeypatch.delenv("WIKIPEDIA_BASE_URL")
    said = await refusal(server, "get_article_summary", title="Ada Lovelace", language=language)
    assert "language" in said
    assert not wiki.asked
