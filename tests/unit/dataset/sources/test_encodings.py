"""Text files in other encodings than UTF-8, and compressed by xz."""

import codecs
import io
import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.dataset import build
from aworld_train.dataset.sources import find_source
from aworld_train.dataset.sources.encodings import encoding_name, utf8_lines
from aworld_train.dataset.sources.input_files import read_lines
from aworld_train.dataset.sources.options import SourceOptions
from aworld_train.dataset.sources.xz import MAX_MEMORY
from aworld_train.dataset.tasks import Dropped, Task
from aworld_train.errors import DatasetError, UsageError
from tests.task_tables import one_by_one

TEXTS = {
    "jsonl": '{"query": "Où est l’été?", "answer": "à Orléans"}\n{"query": "Wo?", "answer": "in Köln"}\n',
    "csv": 'query,answer\n"Où est l’été?",à Orléans\nWo?,in Köln\n',
}


def read(source: str, content: bytes, tmp_path: Path, encoding: str = "utf-8") -> list[Task | Dropped]:
    path = tmp_path / f"in.{source}"
    path.write_bytes(content)
    return one_by_one(find_source(source)(SourceOptions(files=(str(path),), encoding=encoding)))


@pytest.mark.parametrize("source", TEXTS)
@pytest.mark.parametrize(
    "encoding", ["cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8", "gb18030"]
)
@pytest.mark.parametrize("with_mark", [False, True])
def test_text_of_any_encoding_is_read(source: str, encoding: str, with_mark: bool, tmp_path: Path) -> None:
    marked = with_mark and encoding.startswith("utf") and encoding not in ("utf-16", "utf-32")
    content = (("\ufeff" if marked else "") + TEXTS[source]).encode(encoding)
    first, second = read(source, content, tmp_path, encoding)
    assert isinstance(first, Task) and (first.message, first.answer) == ("Où est l’été?", "à Orléans")
    assert isinstance(second, Task) and (second.message, second.answer) == ("Wo?", "in Köln")


@pytest.mark.parametrize("source", TEXTS)
def test_what_is_not_utf8_is_dropped_with_the_encoding_to_try(source: str, tmp_path: Path) -> None:
    first, second = read(source, TEXTS[source].encode("cp1252"), tmp_path)
    for item in (first, second):
        assert isinstance(item, Dropped)
        assert item.reason == "not UTF-8; for text from Windows try --encoding cp1252"


@pytest.mark.parametrize("source", TEXTS)
@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (b"", "utf-16-le"),
        (b"", "utf-16-be"),
    ],
)
def test_utf16_and_utf32_are_recognised_and_said(
    source: str, mark: bytes, encoding: str, tmp_path: Path
) -> None:
    order = "be" if mark in (codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE) else "le"
    codec = f"{encoding}-{order}" if mark else encoding
    content = mark + TEXTS[source].encode(codec)
    with pytest.raises(DatasetError, match=rf"written in {encoding.upper()}\. Give --encoding {encoding}\."):
        read(source, content, tmp_path)
    assert all(isinstance(item, Task) for item in read(source, content, tmp_path, encoding))


@pytest.mark.parametrize("source", TEXTS)
def test_a_byte_without_a_character_costs_its_own_record(source: str, tmp_path: Path) -> None:
    content = TEXTS[source].encode("cp1252").replace("été".encode("cp1252"), b"\x81")
    first, second = read(source, content, tmp_path, "cp1252")
    assert isinstance(first, Dropped) and first.reason == "not cp1252 text; is that its --encoding?"
    assert isinstance(second, Task)


def test_a_header_in_another_encoding_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"The header of .* is not UTF-8; .*--encoding cp1252\."):
        read("csv", "Réponse,query\n".encode("cp1252"), tmp_path)


def test_text_of_another_encoding_as_a_whole_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"in\.csv is not utf-16 text: .* Give another --encoding"):
        read("csv", b"query,answer\nq,a\n", tmp_path, "utf-16")


@pytest.mark.parametrize(
    ("name", "hint"), [("cp1253x", ""), ("utf-61", "Did you mean 'utf-16'"), ("hex", ""), ("", "")]
)
def test_an_encoding_that_there_is_not_is_refused(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=f"no such text encoding.*{hint}"):
        encoding_name(name)


def test_options_from_python_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such text encoding"):
        build("jsonl", tmp_path / "out", files=[tmp_path / "x.jsonl"], encoding="odd")
    with pytest.raises(UsageError, match="where the question goes"):
        build("jsonl", tmp_path / "out", files=[tmp_path / "x.jsonl"], choices_prompt="{choice}")


def test_an_encoding_is_no_option_of_parquet(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no use for --encoding"):
        build("parquet", tmp_path / "out", files=[tmp_path / "x.parquet"], encoding="cp1252")


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\ufeff")),
    st.sampled_from(["utf-16", "utf-32", "utf-7"]),
)
def test_lines_are_those_of_the_text(text: str, encoding: str) -> None:
    file = io.BufferedReader(io.BytesIO(text.encode(encoding)))  # type: ignore[arg-type]
    lines = list(utf8_lines(Path("x"), file, encoding, 1000))
    assert b"".join(lines) == text.encode() and all(line.count(b"\n") <= 1 for line in lines)
    assert len(lines) == len(text.split("\n")) - text.endswith("\n") if text else not lines


def test_streams_of_xz_that_follow_each_other_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.xz"
    path.write_bytes(lzma.compress(b"first\n" * 30_000) + b"\0" * 8 + lzma.compress(b"second\n"))
    lines = [line for _, line in read_lines(path)]
    assert (len(lines), lines[0], lines[-1]) == (30_001, b"first\n", b"second\n")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "cut off"),
        (b"no xz", "cut off|format"),
        (lzma.compress(b"a\n") + b"more", "format|cut off"),
        (lzma.compress(b"a\n")[:-9] + b"x" * 9, "Corrupt|cut off"),
    ],
)
def test_damaged_xz_is_an_error(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.xz"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=f"cannot be read to its end: .*({reason})"):
        list(read_lines(path))


def test_xz_that_asks_for_too_much_memory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.xz"
    filters = [
        {
            "id": lzma.FILTER_LZMA2,
            "dict_size": 2 * MAX_MEMORY,
            "mode": lzma.MODE_FAST,
            "mf": lzma.MF_HC4,
            "nice_len": 4,
        }
    ]
    packer = lzma.LZMACompressor(filters=filters)
    path.write_bytes(packer.compress(json.dumps({"query": "q", "answer": "a"}).encode()) + packer.flush())
    with pytest.raises(DatasetError, match="needs more than 128 MiB to decompress"):
        list(read_lines(path))


def test_an_endless_line_in_xz_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aworld_train.dataset.sources.input_files.MAX_LINE_BYTES", 10_000)
    path = tmp_path / "in.jsonl.xz"
    path.write_bytes(lzma.compress(b"x" * 10_000_000 + b"\nshort\n"))
    assert list(read_lines(path)) == [(1, None), (2, b"short\n")]
