"""How a tool's result is compared with another reading of the same file."""

import datetime
import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_SHOWN = 1500
_SIGN = re.compile(r"(?<=\w)[\^_](?=\w)")


@dataclass(frozen=True)
class Check:
    """A comparison ``by`` another reading, for the README; of a call that has to fail, the content is its message."""

    by: str
    difference: Callable[[dict[str, Any], Path], str]
    refuses: bool = False
    program: str = ""


def same_rows(by: str, read: Callable[[Path], list[list[Any]]]) -> Check:
    """The table has the same values in the same places."""

    def difference(found: dict[str, Any], path: Path) -> str:
        return _difference(_table(read(path)), _table(found["content"]))

    return Check(by, difference)


def same_words(by: str, read: Callable[[Path], str], share: float = 1.0, program: str = "") -> Check:
    """Each word that the other reading has is in the text as often, or at least a share of them all."""

    def difference(found: dict[str, Any], path: Path) -> str:
        text = _all_text(found)
        # The other reading joins a superscript to what is before it: km2.
        expected, actual = (
            Counter(words(read(path))),
            Counter(words(text)) | Counter(words(_SIGN.sub("", text))),
        )
        missing = expected - actual
        total = expected.total()
        assert total, "the other reading has no word"
        reached = 1 - missing.total() / total
        return "" if reached >= share else f"{reached:.1%} of {total} words; missing: {list(missing)[:60]}"

    return Check(by, difference, program=program)


def same_text(encoding: str, by: str = "its encoding") -> Check:
    """The text is that of the file's bytes in an encoding, letter by letter."""

    def difference(found: dict[str, Any], path: Path) -> str:
        expected = path.read_bytes().decode(encoding).lstrip("\ufeff")
        return _difference(expected, found["content"].lstrip("\ufeff"))

    return Check(by, difference)


def same_value(by: str, parse: Callable[[str], Any], read: Callable[[Path], Any]) -> Check:
    """What is made of the text equals what the other reading gives."""

    def difference(found: dict[str, Any], path: Path) -> str:
        return _difference(read(path), parse(found["content"]))

    return Check(by, difference)


def states(by: str, *phrases: str) -> Check:
    """Each phrase is in the text, whatever its spaces and marks."""

    def difference(found: dict[str, Any], path: Path) -> str:
        text = _plain(_all_text(found))
        missing = [one for one in phrases if _plain(one) not in text]
        return f"missing: {missing}; text: {text[:_MAX_SHOWN]}" if missing else ""

    return Check(by, difference)


def facts(by: str, **expected: Any) -> Check:
    """Values of the structured content; a dictionary's are looked for in one of the same name."""

    def difference(found: dict[str, Any], path: Path) -> str:
        return "; ".join(_facts(expected, found))

    return Check(by, difference)


def facts_by(by: str, read: Callable[[Path], dict[str, Any]]) -> Check:
    def difference(found: dict[str, Any], path: Path) -> str:
        return "; ".join(_facts(read(path), found))

    return Check(by, difference)


def same_tree(by: str, read: Callable[[Path], dict[str, int]], program: str = "") -> Check:
    """The archive lists the same files with the same sizes."""

    def difference(found: dict[str, Any], path: Path) -> str:
        listed = {one["name"]: one["bytes"] for one in found["entries"] if one["kind"] == "file"}
        return _difference(_composed(read(path)), _composed(listed))

    return Check(by, difference, program=program)


def extracts(by: str, read: Callable[[Path], bytes]) -> Check:
    """The one file that is extracted has the same bytes."""

    def difference(found: dict[str, Any], path: Path) -> str:
        (name,) = found["files"]
        written, expected = (path.parent / name).read_bytes(), read(path)
        return "" if written == expected else f"{written[:200]!r} is not {expected[:200]!r}"

    return Check(by, difference)


def _composed(sizes: dict[str, int]) -> dict[str, int]:
    """Letters with marks may be written as one sign or as two."""
    return dict(sorted((unicodedata.normalize("NFC", name), size) for name, size in sizes.items()))


def refuses(by: str, *phrases: str) -> Check:
    """The call fails, and its message has each phrase."""

    def difference(found: dict[str, Any], path: Path) -> str:
        missing = [one for one in phrases if one.lower() not in found["message"].lower()]
        return f"missing: {missing}; message: {found['message'][:_MAX_SHOWN]}" if missing else ""

    return Check(by, difference, refuses=True)


def words(text: str) -> list[str]:
    """Words in lower case; Chinese and Japanese signs one by one."""
    normal = unicodedata.normalize("NFKC", text).lower().replace("\u00ad", "")
    return re.findall(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W_\u3040-\u30ff\u3400-\u9fff]+", normal)


def _plain(text: str) -> str:
    """Letters and digits alone."""
    return "".join(re.findall(r"\w", unicodedata.normalize("NFKC", text).lower())).replace("_", "")


def _all_text(found: dict[str, Any]) -> str:
    return "\n".join(
        str(found[name]) for name in ("content", "text", "formatting", "output") if name in found
    )


def _facts(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    wrong = []
    for name, value in expected.items():
        actual = found.get(name, found.get(name.upper()))
        if isinstance(value, dict) and isinstance(actual, dict):
            wrong += _facts(value, actual)
        elif isinstance(value, float) and isinstance(actual, int | float):
            if abs(value - actual) > max(0.01 * abs(value), 0.005):
                wrong.append(f"{name} is {actual}, not {value}")
        elif actual != value:
            wrong.append(f"{name} is {actual!r}, not {value!r}")
    return wrong


def _table(rows: list[list[Any]]) -> list[list[str]]:
    """Values as text that does not depend on who wrote them, without empty cells and rows at the ends."""
    plain = [[_cell(value) for value in row] for row in rows]
    for row in plain:
        while row and not row[-1]:
            row.pop()
    while plain and not plain[-1]:
        plain.pop()
    return plain


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:.10g}"
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat(*([" "] if isinstance(value, datetime.datetime) else []))
    text = str(value).replace("\r\n", "\n")
    return re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)", r"\1 \2", text).removesuffix(" 00:00:00")


def _difference(expected: Any, found: Any) -> str:
    if expected == found:
        return ""
    lines = difflib.unified_diff(
        _lines(expected), _lines(found), "the other reading", "the tool", n=0, lineterm=""
    )
    return "\n".join(lines)[:_MAX_SHOWN] or f"{expected!r:.200} is not {found!r:.200}"


def _lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.splitlines()
    return [repr(one) for one in (value.items() if isinstance(value, dict) else value)]
