"""Every value that another library reads in a page or document is in what the tools give: numbers, signs, exponents,
units and ticks. Of the files from elsewhere (`tests.strangers`) and of two packages of PyPI (docutils, xlsx2csv), every
third is read by default.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from mcp.shared.memory import create_connected_server_and_client_session as connect

from tests import constants_made
from tests.conftest import Facts, text
from tests.strangers import values
from tests.strangers.files import FILES, PART, TRY_ALL
from tests.strangers.packages import Package, UnreachableError
from tests.test_manifest import server_of
from tests.test_strangers import _MAX_PARTS, _NEXT

_DOCUTILS = Package("docutils", "0.23", "746f5060322511280a1e50eb76846ed6bf2342984b2ac04dc42caa1a8d78799e")
_XLSX2CSV = Package("xlsx2csv", "0.8.6", "618fc502612860de8ab8e3d6195e99ef332fffc68337f6b89e59690aad0d20b5")
_PAGES = (
    *(
        "buggy_mathml",
        "compact_lists",
        "dangerous",
        "field_name_limit",
        "footnotes_html5",
        "length_units_html5",
    ),
    *(
        "math_experiments_mathml",
        "math_output_html",
        "math_output_latex",
        "math_output_mathml",
        "mathematics_mathml",
    ),
    *("misc_rst_html4css1", "misc_rst_html5", "pep_html", "rst_html5_tuftig", "standalone_rst_html4css1"),
    *("standalone_rst_html5", "standalone_rst_s5_html_1"),
)
_TEXTS = (
    *(
        "basic",
        "classifier",
        "contents",
        "custom_headfoot",
        "footnotes",
        "header_footer",
        "image",
        "literal_block",
    ),
    *("nested_class", "no_class", "raw", "tables1", "unnested_class"),
)
_SHEETS = (
    *(
        "datetime",
        "empty_row",
        "escape",
        "float",
        "float2",
        "input-weird",
        "junk-small",
    ),
    *("last-column-empty", "percentage", "sheets", "sheets_order", "skip_empty_lines", "twolettercolumns"),
    *("utf8", "variousdelim", "xlsx2csv-test-file"),
)
_READERS: dict[str, Callable[[Path], str]] = {
    ".html": values.of_html,
    ".docx": values.of_docx,
    ".pptx": values.of_pptx,
    ".odt": values.of_odf,
    ".xlsx": values.of_xlsx,
}
_TOOLS = {
    ".html": ("documents-html-server", "extract_html_content", {"include_links": False}),
    ".epub": ("documents-epub-server", "extract_epub_content", {}),
    **dict.fromkeys((".docx", ".odt", ".rtf"), ("documents-docx-server", "extract_docx_content", {})),
    ".pptx": ("documents-pptx-server", "extract_pptx_content", {}),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), ("documents-csv-server", "extract_csv_content", {})),
    ".pdf": ("documents-pdf-server", "convert_document_to_markdown", {}),
}
_FEW = 10  # files of a kind that are read anyway
_EXPECTED = "test/functional/expected"


def _files() -> list[tuple[Package, str]]:
    others = [one for one in FILES if one.kind in _READERS and one.package.name != "chardet"]
    readable = [one for one in others if not (one.check.refuses or "password" in one.arguments)]
    return [
        *dict.fromkeys((one.package, one.member) for one in readable),
        *((_DOCUTILS, f"{_EXPECTED}/{name}.html") for name in _PAGES),
        *((_DOCUTILS, f"{_EXPECTED}/odt_{name}.odt") for name in _TEXTS),
        *((_XLSX2CSV, f"test/{name}.xlsx") for name in _SHEETS),
    ]


async def _shown(path: Path) -> str:
    server, tool, arguments = _TOOLS[path.suffix]
    shown, more = "", {"file_path": path.name, **arguments}
    async with connect(server_of(server)._mcp_server) as session:
        for _ in range(_MAX_PARTS):
            result = await session.call_tool(tool, more)
            assert not result.isError, text(result)
            facts, part = Facts(result), text(result)
            following = {_NEXT[name]: facts[name] for name in _NEXT if facts.get(name)}
            # A note on how to go on follows a part of a text; rows are whole.
            shown += part.rpartition("\n[... ")[0] if "start" in following else f"{part}\n"
            if not following:
                return shown
            more |= following
    raise AssertionError(f"{path.name} has more than {_MAX_PARTS} parts")


@pytest.mark.parametrize("kind", list(_READERS))
async def test_no_value_of_a_file_from_elsewhere_is_lost(
    kind: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [one for one in _files() if one[1].endswith(kind)]
    if TRY_ALL not in os.environ and len(files) > _FEW:
        files = files[::PART]
    missing: dict[str, Counter[str]] = {}
    compared = 0
    for package, member in files:
        try:
            path = package.copy(member, workspace)
        except UnreachableError as error:
            if os.environ.get("GAIA_TOOLS_TESTS_NEED_ALL"):
                raise
            pytest.skip(str(error))
        expected = values.values(_READERS[kind](path))
        compared += expected.total()
        if lost := expected - values.values(await _shown(path)):
            missing[f"{package.name}/{member}"] = lost
    with capsys.disabled():
        sys.stdout.write(f"\n{kind}: {compared} values of {len(files)} files compared\n")
    assert compared > 0 and not missing


@pytest.mark.parametrize("kind", list(constants_made.WRITERS))
async def test_constants_keep_their_exponents_and_units(
    kind: str, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = constants_made.constants(3)
    path = workspace / f"constants{kind}"
    constants_made.WRITERS[kind](list(map(constants_made.pieces, lines)), path)
    expected = values.values("\n".join(lines))
    lost = expected - values.values(await _shown(path))
    with capsys.disabled():
        sys.stdout.write(f"\n{kind}: {expected.total()} values of {len(lines)} constants compared\n")
    assert sum("^" in one for one in expected) > 20 and not lost
