"""Conditions on episodes, as `--where` and the page take them: ``outcome=timeout and tool=search``.

A comparison is a name, an operator (``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, or ``~`` for "contains") and a value;
quotes keep spaces. Comparisons are joined by ``and``, ``or``, ``not`` and parentheses. A name without a comparison is
true where the figure is there and not 0. ``null`` is the value of a figure that is missing.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from sqlalchemy import (
    ColumnElement,
    Float,
    Integer,
    String,
    and_,
    false,
    func,
    not_,
    or_,
    select,
    true,
    tuple_,
)

from aworld_train.errors import UsageError, suggestion
from aworld_train.store import tables

_TOKEN = re.compile(
    r"""\s*(?:(?P<operator>!=|<=|>=|=|<|>|~)|(?P<paren>[()])|"(?P<double>[^"]*)"|'(?P<single>[^']*)'"""
    r"""|(?P<word>[^\s()=!<>~"']+))"""
)
_KEYWORDS = ("and", "or", "not")
_MAX_CHARS = 2_000
_MAX_DEPTH = 50

_episodes = tables.episodes.c
_LISTS = {"suspicion": _episodes.suspicions, "finish_reason": _episodes.finish_reasons}
_NOT_COMPARED = ("began", "ended", "spans_sent", "run", "key", "task_index", "suspicions", "finish_reasons")
_NUMBERS: Mapping[str, Any] = {
    column.name: column
    for column in _episodes
    if isinstance(column.type, Integer | Float) and column.name not in _NOT_COMPARED
} | {"index": tables.tasks.c.index}
_TEXTS: Mapping[str, Any] = {
    column.name: column
    for column in _episodes
    if isinstance(column.type, String) and column.name not in _NOT_COMPARED
} | {name: tables.tasks.c[name] for name in ("source", "question", "answer")}
_TOOL_NAMES = ("tool", "failed_tool", "server")
NAMES = (*_NUMBERS, *_TEXTS, *_TOOL_NAMES, *_LISTS, "text", "has_content", "parts.NAME")
"""The names that a condition may have; ``parts.NAME`` is a part of the score."""


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int


def where(condition: str) -> ColumnElement[bool]:
    """A condition as SQL over episodes joined with their tasks; an empty one is true."""
    return _ConditionParser(condition).parse() if condition.strip() else true()


def compared_values(condition: str) -> list[tuple[str, str]]:
    """The names that a condition compares by = or !=, each with the value. Raises as ``where``."""
    parser = _ConditionParser(condition)
    if condition.strip():
        parser.parse()
    return parser.compared


def contains_text(text: str) -> ColumnElement[bool]:
    """Whether an episode's texts, or its task's question, contain a text, in any case."""
    # Episode by episode, so that a page of a list reads no more texts than it needs.
    texts = tables.texts.c
    found = (
        select(texts.episode)
        .where(texts.episode == _episodes.id, texts.text.contains(text.lower(), autoescape=True))
        .exists()
    )
    # Under another name, because the query around it may be joined with the tasks.
    task = tables.tasks.alias("searched_tasks")
    tasks = select(task.c.run, task.c.id).where(
        func.lower(task.c.question).contains(text.lower(), autoescape=True)
    )
    return or_(found, tuple_(_episodes.run, _episodes.task).in_(tasks))


class _ConditionParser:
    def __init__(self, condition: str):
        self._condition = condition
        if len(condition) > _MAX_CHARS:
            raise UsageError(f"The condition has {len(condition)} characters; the most is {_MAX_CHARS}.")
        self._tokens = list(self._split())
        self._next = 0
        self._depth = 0
        self.compared: list[tuple[str, str]] = []

    def parse(self) -> ColumnElement[bool]:
        result = self._or()
        if self._next < len(self._tokens):
            self._fail(f"{self._tokens[self._next].text!r} is not expected", self._tokens[self._next])
        return result

    def _split(self) -> Any:
        position = 0
        while self._condition[position:].strip():
            match = _TOKEN.match(self._condition, position)
            if match is None:
                character = self._condition[position:].lstrip()[0]
                self._fail(f"{character!r} cannot be read", _Token("", character, position))
            kind = str(match.lastgroup)
            text = match[kind]
            if kind in ("double", "single"):
                kind = "value"
            elif kind == "word" and text.lower() in _KEYWORDS:
                kind, text = "keyword", text.lower()
            yield _Token(kind, text, match.start(match.lastgroup or 0))
            position = match.end()

    def _or(self) -> ColumnElement[bool]:
        alternatives = [self._and()]
        while self._take("keyword", "or"):
            alternatives.append(self._and())
        return or_(*alternatives)

    def _and(self) -> ColumnElement[bool]:
        tests = [self._not()]
        while self._take("keyword", "and"):
            tests.append(self._not())
        return and_(*tests)

    def _not(self) -> ColumnElement[bool]:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail(f"there are more than {_MAX_DEPTH} `not` and parentheses in one another", self._peek())
        try:
            if self._take("keyword", "not"):
                # A comparison with a figure that is missing is neither true nor false in SQL.
                return not_(func.coalesce(self._not(), false()))
            if self._take("paren", "("):
                inner = self._or()
                if not self._take("paren", ")"):
                    self._fail("a `)` is missing", self._peek())
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> ColumnElement[bool]:
        name = self._peek()
        if name is None or name.kind != "word":
            self._fail("a name is missing", name)
        self._next += 1
        operator = self._peek()
        if operator is None or operator.kind != "operator":
            return self._compare(name, "", "")
        self._next += 1
        value = self._peek()
        if value is None or value.kind not in ("word", "value", "keyword"):
            self._fail(f"a value is missing after `{name.text}{operator.text}`", value)
        self._next += 1
        return self._compare(name, operator.text, value.text)

    def _compare(self, name: _Token, operator: str, value: str) -> ColumnElement[bool]:
        if operator in ("=", "!="):
            self.compared.append((name.text, value))
        if name.text in _NUMBERS:
            return self._number(name, _NUMBERS[name.text], operator, value)
        if name.text.startswith("parts."):
            part = tables.episodes.c.parts[name.text.removeprefix("parts.")]
            return self._number(name, part.as_float(), operator, value)
        if name.text in _TEXTS:
            return self._text(name, _TEXTS[name.text], operator, value)
        if name.text == "text":
            if operator not in ("=", "~"):
                self._fail("`text` is searched with `=` or `~`", name)
            return contains_text(value)
        if name.text == "has_content" and not operator:
            return _episodes.has_content
        if name.text in _LISTS:
            return self._member(name, operator, value)
        if name.text not in _TOOL_NAMES:
            hint = suggestion(name.text, NAMES, f" There are {', '.join(NAMES)}.")
            self._fail(f"there is no {name.text!r}.{hint}", name)
        return self._tool(name, operator, value)

    def _number(self, name: _Token, column: Any, operator: str, value: str) -> ColumnElement[bool]:
        if not operator:
            return and_(column.is_not(None), column != 0)
        if value == "null" and operator in ("=", "!="):
            return _is_null(column, operator)
        try:
            number = float(value)
        except ValueError:
            self._fail(f"`{name.text}` is a number, and {value!r} is not", name)
        if operator == "~":
            self._fail(f"`{name.text}` is a number and contains nothing", name)
        return _BY_OPERATOR[operator](column, number)

    def _text(self, name: _Token, column: Any, operator: str, value: str) -> ColumnElement[bool]:
        if not operator:
            return and_(column.is_not(None), column != "")
        if value == "null" and operator in ("=", "!="):
            return _is_null(column, operator)
        if operator == "~":
            return func.lower(column).contains(value.lower(), autoescape=True)
        if operator not in ("=", "!="):
            self._fail(f"`{name.text}` is a text, which is compared with =, != or ~", name)
        equal = column == value
        return equal if operator == "=" else not_(func.coalesce(equal, false()))

    def _member(self, name: _Token, operator: str, value: str) -> ColumnElement[bool]:
        """Whether one of an episode's suspicions or finish reasons is ``value``; with ``!=``, whether none is."""
        column = _LISTS[name.text]
        if not operator:
            return column.is_not(None)
        if value == "null":
            return column.is_(None) if operator == "=" else column.is_not(None)
        contained = func.coalesce(column, "").contains(f",{value},", autoescape=True)
        if operator not in ("=", "!="):
            self._fail(f"`{name.text}` is compared with = or !=", name)
        return contained if operator == "=" else not_(contained)

    def _tool(self, name: _Token, operator: str, value: str) -> ColumnElement[bool]:
        """Whether any of an episode's tool calls passes the comparison; with ``!=``, whether none does."""
        calls = tables.tool_calls.c
        column = calls.server if name.text == "server" else calls.name
        tests = [calls.is_error] if name.text == "failed_tool" else []
        comparison = self._text(name, column, "=" if operator == "!=" else operator, value)
        # Asked of each episode, because a list of all episodes of a frequent tool costs more than a page of them.
        of_episode = calls.episode == _episodes.id
        any_call = select(calls.episode).where(of_episode, comparison, *tests).exists()
        return not_(any_call) if operator == "!=" else any_call

    def _take(self, kind: str, text: str) -> bool:
        token = self._peek()
        if token is None or token.kind != kind or token.text != text:
            return False
        self._next += 1
        return True

    def _peek(self) -> _Token | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def _fail(self, reason: str, token: _Token | None) -> NoReturn:
        position = f"at character {token.position + 1}" if token is not None else "at its end"
        raise UsageError(
            f"The condition {self._condition!r} cannot be read {position}: {reason}. An example: "
            "outcome=timeout and tool=search"
        )


def _is_null(column: Any, operator: str) -> ColumnElement[bool]:
    test: ColumnElement[bool] = column.is_(None) if operator == "=" else column.is_not(None)
    return test


_BY_OPERATOR: Mapping[str, Callable[[Any, float], ColumnElement[bool]]] = {
    "=": lambda column, number: column == number,
    "!=": lambda column, number: or_(column != number, column.is_(None)),
    "<": lambda column, number: column < number,
    "<=": lambda column, number: column <= number,
    ">": lambda column, number: column > number,
    ">=": lambda column, number: column >= number,
}
