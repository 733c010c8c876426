"""Saved web pages are read as a reader sees them; broken and hostile ones end in a result or an error."""

from pathlib import Path

import pytest
from gaia_tools.documents_html import server

from tests.conftest import call, content, refusal, text
from tests.paragraphs import PARAGRAPHS

READ = "extract_html_content"
_PAGE = """<!DOCTYPE html><html><head><title>Grüße  aus
Köln</title><meta charset="{}"><style>p {{}}</style><script>alert(1)</script></head>
<body><h1>Grüße</h1><p>Some <b>bold</b> text with a <a href="https://example.org/x">link</a>.</p>
<ul><li>one<ul><li>inner</li></ul></li></ul>
<table><tr><th>Year</th><th colspan="2">Result</th></tr>
<tr><td rowspan="2">1990</td><td>a|b</td><td>c</td></tr><tr><td>d</td><td>e</td></tr></table>
<p hidden>not seen</p></body></html>"""


@pytest.mark.parametrize("encoding", ["utf-8", "windows-1252", "utf-16"])
async def test_a_page_is_read_as_markdown(workspace: Path, encoding: str) -> None:
    (workspace / "a.html").write_bytes(_PAGE.format(encoding).encode(encoding))
    found = await content(server, READ, file_path="a.html")
    assert found["title"] == "Grüße aus Köln"
    shown = found["content"]
    assert "# Grüße" in shown
    assert "Some **bold** text with a [link](https://example.org/x)." in shown
    assert "- one\n  - inner" in shown
    assert "| Year | Result | Result |" in shown
    assert "| 1990 | a\\|b | c |\n| 1990 | d | e |" in shown
    assert "alert" not in shown
    assert "not seen" not in shown


async def test_links_may_be_left_out(workspace: Path) -> None:
    (workspace / "a.html").write_text(_PAGE.format("utf-8"))
    assert "](" not in text(await call(server, READ, file_path="a.html", include_links=False))


async def test_a_page_without_a_charset_or_with_a_wrong_one_is_read(workspace: Path) -> None:
    body = "<html><body><p>東京都渋谷区のテキスト</p></body></html>"
    (workspace / "a.html").write_bytes(body.encode("cp932"))
    assert "東京都渋谷区のテキスト" in (await content(server, READ, file_path="a.html"))["content"]
    wrong = body.replace("<html>", '<html><meta charset="ascii">')
    (workspace / "b.html").write_bytes(wrong.encode())
    assert "東京都渋谷区のテキスト" in (await content(server, READ, file_path="b.html"))["content"]


async def test_doubt_about_the_encoding_of_a_page_is_told(workspace: Path) -> None:
    body = f"<html><head><title>Most</title></head><body><p>{PARAGRAPHS['czech']}</p></body></html>"
    (workspace / "a.html").write_bytes(body.encode("iso8859-2"))
    result = await call(server, READ, file_path="a.html")
    assert "Most; iso8859_2 (a guess: where letters look wrong, ask again with encoding=cp1250" in text(
        result
    )
    declared = body.replace("<head>", '<head><meta charset="iso-8859-2">')
    (workspace / "b.html").write_bytes(declared.encode("iso8859-2"))
    assert "a guess" not in text(await call(server, READ, file_path="b.html"))


async def test_xhtml_with_its_declaration_is_read(workspace: Path) -> None:
    (workspace / "a.xhtml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "x">'
        '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>T</title></head><body><p>é&nbsp;!</p></body></html>'
    )
    assert (await content(server, READ, file_path="a.xhtml"))["content"] == "é !"


async def test_entities_are_not_expanded_and_files_not_included(workspace: Path) -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    (workspace / "a.html").write_text(
        f'<?xml version="1.0"?><!DOCTYPE html [<!ENTITY l0 "lol"><!ENTITY f SYSTEM "file:///etc/passwd">{laughs}]>'
        "<html><body><p>A &l11; and &f;</p></body></html>"
    )
    shown = (await content(server, READ, file_path="a.html"))["content"]
    assert len(shown) < 5000
    assert "root:" not in shown


async def test_deep_and_spanning_pages_end_in_a_result(workspace: Path) -> None:
    (workspace / "deep.html").write_text("<html><body>" + "<div>" * 20_000 + "bottom")
    assert await content(server, READ, file_path="deep.html")
    (workspace / "wide.html").write_text(
        "<html><table><tr>" + '<td colspan="999999999" rowspan="999999999">x</td>' * 200
    )
    await call(server, READ, file_path="wide.html")


async def test_other_files_are_refused(workspace: Path) -> None:
    (workspace / "a.html").write_bytes(b"%PDF-1.7 ...")
    assert "convert_document_to_markdown" in await refusal(server, READ, file_path="a.html")
    (workspace / "b.html").touch()
    assert "0 bytes" in await refusal(server, READ, file_path="b.html")
    assert "outside" in await refusal(server, READ, file_path="/etc/hostname")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("6 × 10<sup>23</sup>, 10<sup>-3</sup>, H<sub>2</sub>O", "6 × 10^23, 10^-3, H_2O"),
        ("e<sup>x<sup>2</sup></sup> 3<sup>1</sup>/<sub>2</sub>", "e^{x^2} 3 1/2"),
        ("10<span style='vertical-align: super'>5</span>", "10^5"),
        ("x<sup><a href='#n3'>3</a></sup> y<sup class=reference><a href='#c1'>[1]</a></sup>", "x[3] y[1]"),
        ("14<sup>th</sup>", "14th"),
        ("<input type=checkbox checked>a <input type=radio>b <input value=42>", "☑a ○b 42"),
        ("<select><option>a<option selected>b</select>", "b [of: a; b]"),
        ("<progress value=70 max=100></progress>", "70 of 100"),
        ("<header>1</header><main>2</main><details><summary>3</summary>4</details>", "1\n\n2\n\n3\n\n4"),
        ("<ol type=a><li>x<li value=5>y</ol>", "- a. x\n- e. y"),
        ("<math><mfrac><mn>1</mn><mn>2</mn></mfrac></math>", r"$\frac{1}{2}$"),
        ("<m:math xmlns:m='x'><m:msqrt><m:mn>2</m:mn></m:msqrt></m:math>", r"$\sqrt{2}$"),
        ("<span class=MathJax>1020</span><script type='math/tex'>10^{20}</script>", "$10^{20}$"),
        (
            "<span class=katex-mathml><math><mn>7</mn></math></span><span class=katex-html>7</span>",
            "$7$",
        ),
        (
            "<table><tr><th>a<th>b<tr><td>1<b>2</b><td rowspan=2>3<i>4</i><tr><td><img alt=Yes></table>",
            "| a | b |\n| --- | --- |\n| 1**2** | 3*4* |\n| Yes | 3*4* |",
        ),
        ("<ruby>漢<rt>かん</rt></ruby>", "漢(かん)"),
    ],
)
async def test_no_value_of_a_page_changes(workspace: Path, written: str, shown: str) -> None:
    (workspace / "a.html").write_text(f"<html><meta charset=utf-8><body>{written}</body></html>")
    assert (await content(server, READ, file_path="a.html", output_format="json"))["content"] == shown
