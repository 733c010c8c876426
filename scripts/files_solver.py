"""Solves the tasks of `dataset build files` with the tools of gaia-mcp-server, as a model behind OpenAI's chat API.

It knows the forms of the questions and which tool reads which file, and nothing else: answers are computed from what
tools returned. A turn follows from the conversation alone, so any number of episodes can be played at once.

    python scripts/files_solver.py 8123 &    # prints its address; without a port it takes any that is free
    aworld-train eval recipe.yaml --model-url http://127.0.0.1:8123/v1

With --mistakes 0.6, six of ten documents of the kinds `MISTAKEN` are opened with a wrong tool: transcripts for a
model that is to know its tools by half.
"""

import argparse
import json
import random
import re
import socket
import sys
from collections.abc import Generator, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from aiohttp import web

Message = dict[str, Any]

READERS = {
    **dict.fromkeys(("csv", "tsv", "xlsx", "ods", "json"), "extract_csv_content"),
    **dict.fromkeys(("txt", "xml"), "extract_text_content"),
    **dict.fromkeys(("png", "jpg"), "extract_text_ocr"),
    "docx": "extract_docx_content",
    "pptx": "extract_pptx_content",
    "pdf": "convert_document_to_markdown",
    "html": "extract_html_content",
    "epub": "extract_epub_content",
    "wav": "transcribe_audio",
    "zip": "extract_archive",
}
"""The tool that reads a file, by the ending of its name."""

MISTAKEN, WRONG_TOOL = ("docx", "epub", "html", "pptx"), "extract_csv_content"
"""Kinds of documents that are also opened with a wrong tool, and that tool, which can read none of them."""

_MISTAKES = web.AppKey("mistakes", float)

_DIGITS = {
    **{"zero": "0", "oh": "0", "one": "1", "won": "1", "two": "2", "to": "2", "too": "2", "three": "3"},
    **{"four": "4", "for": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "ate": "8", "nine": "9"},
}
"""Digits by the words that a recogniser of speech writes for them."""
_FIELD = re.compile(r"(\w+)(?: \(\w+\))? ([^,]+)")
_ATTRIBUTES = re.compile(r'(\w+)="([^"]*)"')


class Call(NamedTuple):
    """A tool, and the file or command that it is given."""

    tool: str
    argument: str

    @property
    def arguments(self) -> dict[str, str]:
        return {"command" if self.tool == "execute_command" else "file_path": self.argument}


class Unsolvable(ValueError):
    """A question of no known form, or a result without what was looked for."""


Steps = Generator[Call, str, str]
Row = dict[str, str]


def next_message(messages: Sequence[Message], mistakes: float = 0.0) -> Message:
    """The assistant's next message: a call of a tool, or the answer.

    ``mistakes`` is the share of questions about one document of a kind in `MISTAKEN` in which the wrong tool is called.
    """
    question = next(_text(message) for message in messages if message["role"] == "user")
    results = [_text(message) for message in messages if message["role"] == "tool"]
    one_document = re.search(r"of \w+ in \S+\.(\w+),", question)
    # The same mistakes wherever the documents are.
    draw = random.Random(re.sub(r"of (\w+) in \S+/", r"of \1 in /attachments/", question)).random()
    is_mistaken = one_document and one_document[1] in MISTAKEN and draw < mistakes
    if is_mistaken and results:
        return {"role": "assistant", "content": "Found: nothing\n<answer> unknown</answer>"}
    steps = solve(question)
    try:
        call = next(steps)
        for result in results:
            call = steps.send(result)
        if is_mistaken:
            call = call._replace(tool=WRONG_TOOL)
    except StopIteration as end:
        return {"role": "assistant", "content": _with_evidence(question, results[-1], end.value)}
    except (LookupError, ArithmeticError, ValueError, RuntimeError) as error:
        # Of a row that is not in the result, a generator makes a RuntimeError.
        return {"role": "assistant", "content": f"<answer>{type(error).__name__}: {error}</answer>"}
    function = {"name": call.tool, "arguments": json.dumps(call.arguments)}
    tool_call = {"id": f"call_{len(results)}", "type": "function", "function": function}
    # The file is named once more before its tool, so that small models see its kind where they choose.
    content = f"File: {call.argument}" if one_document else None
    return {"role": "assistant", "content": content, "tool_calls": [tool_call]}


def _with_evidence(question: str, result: str, answer: str) -> str:
    """A place is answered below the question and the row that names it, which small models learn to copy."""
    place_question = re.search(r"which \w+ does (.+?) belong to\?", question)
    row = place_question and re.search(
        rf"{re.escape(place_question[1])}\W+(?:\w+\W+)?{re.escape(answer)}", result
    )
    if not place_question or not row:
        return f"<answer>{answer}</answer>"
    return f"Asked: {place_question[0]} Found: {row[0]}\n<answer> {answer}</answer>"


def solve(question: str) -> Steps:
    """The calls, each of which gets its result, and the answer."""
    if found := re.search(r"said in the recording (\S+), digit", question):
        return (yield from _spoken(found[1]))
    if found := re.search(
        r"In the (folder|archive) (\S+) is a list of (\w+), and a note .* By these, (.+)", question
    ):
        return (yield from _join(*found.groups()))
    if found := re.search(r"The note (\S+) says which .* According to that list, (.+)", question):
        valid = yield from _valid_list(found[1])
        rows = yield from _read(f"{found[1].rpartition('/')[0]}/{valid}")
        return _answer(found[2], rows)
    if found := re.search(
        r"The (?:picture|recording) (\S+) .* in (\S+), (?:which|what) .*?(\w+)(?: in \w+)?\?", question
    ):
        return (yield from _shown_thing(*found.groups(), question))
    if found := re.search(r"the list of (\w+) of (\d+) in the (folder|archive) (\S+), (.+)", question):
        things, year, way, path, text = found.groups()
        rows = yield from _read((yield from _find(way, path, things, year)))
        return _answer(text, rows)
    if found := re.search(r"According to the list of \w+ in (\S+), (.+)", question):
        return _answer(found[2], (yield from _read(found[1])))
    raise Unsolvable(question)


def _read(path: str) -> Generator[Call, str, list[Row]]:
    result = yield Call(READERS[path.rpartition(".")[2]], path)
    return rows_of(result)


def _spoken(path: str) -> Steps:
    result = yield Call(READERS["wav"], path)
    spoken_lines = re.findall(r"^\[[\d:.]+\] (.+)", result, re.MULTILINE)
    return "".join(_DIGITS.get(word, "") for word in " ".join(spoken_lines).split())


def _shown_thing(shown: str, path: str, column: str, question: str) -> Steps:
    if shown.endswith(".wav"):
        key, value = column, (yield from _spoken(shown))
    else:
        key, value = "", (yield Call(READERS["png"], shown)).strip().rpartition("\n")[2]
    rows = yield from _read(path)
    (row,) = [row for row in rows if row[key or _name(row)] == value]
    return row[_name(row)] if key else _with_unit(Decimal(row[column]), question)


def _find(way: str, path: str, things: str, year: str) -> Steps:
    """The path of a year's list, which may be in an archive of its own in the archive."""
    files = yield from _unpacked(way, path)
    if nested := [file for file in files if file.endswith(f"{year}.zip")]:
        files = yield from _unpacked("archive", nested[0])
    return next(file for file in files if f"/{things}-{year}." in file)


def _unpacked(way: str, path: str) -> Generator[Call, str, list[str]]:
    if way == "archive":
        return re.findall(r"^\S+/\S+$", (yield Call("extract_archive", path)), re.MULTILINE)
    names = yield Call("execute_command", f"ls {path}")
    return [f"{path}/{name}" for name in re.findall(r"^[\w-]+\.\w+$", names, re.MULTILINE)]


def _valid_list(note: str) -> Steps:
    rows = yield from _read(note)
    (valid,) = [row for row in rows if row["status"] == "valid"]
    return valid[_name(valid)]


def _join(way: str, path: str, things: str, question: str) -> Steps:
    files = yield from _unpacked(way, path)
    by_stem = {file.rpartition("/")[2].partition(".")[0]: file for file in files}
    valid = yield from _valid_list(by_stem["note"])
    rates = {
        row[_name(row)]: Decimal(row["fee"]) for row in (yield from _read(by_stem[valid.partition(".")[0]]))
    }
    rows = yield from _read(by_stem[things])
    found = re.search(r"for every \w+ of (\w+)", question)
    if not found:
        raise Unsolvable(question)
    amounts = {row[_name(row)]: Decimal(row[found[1]]) * rates[_group(row)] for row in rows}
    if found := re.search(r"of (\w+) and (\w+) together pay", question):
        groups = found.groups()
        total = sum(amounts[row[_name(row)]] for row in rows if _group(row) in groups)
        return _with_unit(Decimal(total), question)
    return _above(amounts, question)


def _answer(question: str, rows: list[Row]) -> str:
    """The answer to a question about one table."""
    if found := re.search(r"which \w+ does (.+) belong to", question):
        return _group(next(row for row in rows if row[_name(row)] == found[1]))
    if found := re.search(r"of the \w+ (\S+) has the highest (\w+)", question):
        best = max((row for row in rows if _group(row) == found[1]), key=lambda row: Decimal(row[found[2]]))
        return best[_name(best)]
    if found := re.search(r"the total (\w+) of all \w+ of the \w+ (\S+)\?", question):
        total = sum(Decimal(row[found[1]]) for row in rows if _group(row) == found[2])
        return _with_unit(Decimal(total), question)
    if found := re.search(r"highest and the lowest (\w+) differ", question):
        numbers = [Decimal(row[found[1]]) for row in rows]
        return _with_unit(max(numbers) - min(numbers), question)
    if found := re.search(r"have a (\w+) of more than", question):
        return _above({row[_name(row)]: Decimal(row[found[1]]) for row in rows}, question)
    if found := re.search(r"what is the (\w+) of (.+?)\?", question):
        return _with_unit(
            next(Decimal(row[found[1]]) for row in rows if row[_name(row)] == found[2]), question
        )
    raise Unsolvable(question)


def _above(numbers: dict[str, Decimal], question: str) -> str:
    found = re.search(r"more than ([\d.]+)", question)
    if not found:
        raise Unsolvable(question)
    return ", ".join(sorted(name for name, number in numbers.items() if number > Decimal(found[1])))


def _with_unit(number: Decimal, question: str) -> str:
    plain = f"{number.to_integral() if number == number.to_integral() else number:f}"
    found = re.search(r"and its unit, (\w+)\.", question)
    return f"{plain} {found[1]}" if found else plain


def _name(row: Row) -> str:
    """The first column, which names a row."""
    return next(iter(row))


def _group(row: Row) -> str:
    return list(row.values())[1]


def rows_of(result: str) -> list[Row]:
    """The rows of the table in a result: of Markdown, of XML, or of sentences; columns without their units."""
    grid = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in result.splitlines()
        if line[:1] == "|"
    ]
    if grid:
        if grid[0][0] == "A":  # a spreadsheet's: letters above it, and a number before each row
            grid = [cells[1:] for cells in grid[2:]]
        header = [cell.partition(" ")[0] for cell in grid[0]]
        return [
            dict(zip(header, cells, strict=True))
            for cells in grid[1:]
            if cells[0] != grid[0][0] and not cells[0].startswith("---")
        ]
    if "<?xml" in result:
        return [dict(_ATTRIBUTES.findall(line)) for line in result.splitlines() if line.startswith("  <")]
    text = result.partition("\n")[2]  # below the tool's line about the file
    # A row is a name, a colon and fields. In pictures a colon is sometimes missed: then the field that comes first in
    # other rows says where the name ends.
    first_fields = "|".join(set(re.findall(r": (\w+) ", text)))
    sentences = re.findall(rf"(?m)^(\S.*?)(?:: |[;.,]? (?=(?:{first_fields}) \S+, ))(.+?)\.?$", text)
    return [{"name": name, **dict(_FIELD.findall(fields))} for name, fields in sentences]


def _text(message: Message) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


async def _complete(request: web.Request) -> web.Response:
    body = await request.json()
    message = next_message(body["messages"], request.app[_MISTAKES])
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return web.json_response(
        {
            "id": "completion",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": reason}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }
    )


def main() -> None:
    async def models(_: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "files-solver", "object": "model"}]})

    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int, nargs="?", default=0)
    parser.add_argument("--mistakes", type=float, default=0.0, metavar="SHARE")
    arguments = parser.parse_args()
    app = web.Application(client_max_size=1 << 26)
    app[_MISTAKES] = arguments.mistakes
    app.router.add_post("/v1/chat/completions", _complete)
    app.router.add_get("/v1/models", models)
    with socket.create_server(("127.0.0.1", arguments.port)) as server:
        sys.stdout.write(f"http://127.0.0.1:{server.getsockname()[1]}/v1\n")
        sys.stdout.flush()
        web.run_app(app, sock=server, print=None)


if __name__ == "__main__":
    main()
