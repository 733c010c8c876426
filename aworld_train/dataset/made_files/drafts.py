"""How a question is put to documents: level 1 opens one, level 2 has to find it, and level 3 joins several.

All files of a draft have its own name in their paths, so no two tasks share a document.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from aworld_train.dataset.made_files.kinds import (
    PICTURES,
    SPEECH,
    TABLES,
    can_say,
    make_document,
    picture,
    speech,
)
from aworld_train.dataset.made_files.packages import packed
from aworld_train.dataset.made_files.questions import JOINS, QUESTIONS
from aworld_train.dataset.made_files.tables import PLACES, TOPICS, YEARS, Column, Table, Topic, Value
from aworld_train.errors import UsageError

WAYS = ("folder", "zip", "nested-zip", "note", "picture", "recording")
"""How the document of level 2 is found, or the thing in it that is asked about."""
FOLDER, ARCHIVE, NESTED, NOTE, PICTURE, RECORDING = WAYS

_READ_EXACTLY = tuple(kind for kind in TABLES if kind not in PICTURES)
TAGS = ((*TABLES, SPEECH), WAYS, tuple(QUESTIONS), tuple(JOINS))
"""The tags of tasks by their sort: kinds of documents, ways to them, questions about one and about several."""

_LISTS = 3
_FEE = Column("fee", "EUR", 2, 60)


Files = Mapping[str, bytes]
Tags = tuple[str, ...]


class Draft(NamedTuple):
    """A task before it has a number; ``holder`` is the document with the answer, ``archive.zip/name`` if packed.

    ``files`` are contents by path below the folder of attachments. Those in a folder of their own have to be found.
    """

    question: str
    answer: str
    files: Files
    holder: str
    tags: Tags


class Drafting(NamedTuple):
    """What a draft is made with; ``at`` is the folder of attachments as tools see it."""

    rng: Random
    name: str
    at: str
    tags: frozenset[str]
    max_rows: int

    def choose(self, names: Sequence[str]) -> str:
        if not (allowed := [name for name in names if name in self.tags]):
            raise UsageError(
                f"--tag: tasks of this level need one of {', '.join(names)}; add one, or give --level."
            )
        return self.rng.choice(allowed)

    def one_document(self) -> Draft:
        kind = self.choose((*TABLES, SPEECH))
        file = f"{self.name}.{kind}"
        if kind == SPEECH:
            number = str(self.rng.choice([number for number in range(1000, 10_000) if can_say(number)]))
            text = f"Which number is said in the recording {self.at}/{file}, digit by digit?"
            return Draft(text, number, {file: speech(number)}, file, (kind, "spoken"))
        question_name = self.choose(tuple(QUESTIONS))
        table, content = self._document(kind)
        question, answer = QUESTIONS[question_name](table, self.rng)
        text = f"According to the list of {table.topic.things} in {self.at}/{file}, {question}"
        return Draft(text, answer, {file: content}, file, (kind, question_name))

    def found_document(self) -> Draft:
        way = self.choose(WAYS if "value" in self.tags else (FOLDER, ARCHIVE, NESTED, NOTE))
        if way in (PICTURE, RECORDING):
            return self._shown_thing(way)
        topic, years = self.rng.choice(TOPICS), self.rng.sample(YEARS, _LISTS)
        question_name, chosen = self.choose(tuple(QUESTIONS)), self.rng.randrange(_LISTS)
        lists, tables, kinds = {}, [], []
        for number, year in enumerate(years):
            kind = self.choose(_READ_EXACTLY)
            table, content = self._document(kind, topic=topic, year=year)
            kinds.append(kind)
            tables.append(table)
            stem = f"{self.name}-{number}" if way == NOTE else f"{topic.things}-{year}"
            lists[f"{stem}.{kind}"] = content
        question, answer = QUESTIONS[question_name](tables[chosen], self.rng)
        names, tags = list(lists), (way, kinds[chosen], question_name)
        if way == NOTE:
            kind, content = self._note(names, names[chosen])
            note = f"{self.name}-note.{kind}"
            text = (
                f"The note {self.at}/{note} says which list of {topic.things} is valid. "
                f"According to that list, {question}"
            )
            files = {note: content, **lists}
            return Draft(text, answer, files, names[chosen], (*tags, kind))
        if way == NESTED:
            members = zip(years, lists.items(), strict=True)
            lists = {f"{year}.zip": packed({name: content}) for year, (name, content) in members}
            names = [f"{year}.zip/{name}" for year, name in zip(years, names, strict=True)]
        text = f"According to the list of {topic.things} of {years[chosen]} in {{where}}, {question}"
        return self._in_package(way, lists, names[chosen], text, answer, tags)

    def joined_documents(self) -> Draft:
        """The fee of each group is in one of two lists, and a note says which of these is valid."""
        way, question_name = self.choose((FOLDER, ARCHIVE)), self.choose(tuple(JOINS))
        groups = self.rng.sample(PLACES["latin"], 5)
        kind = self.choose(_READ_EXACTLY)
        table, content = self._document(kind, groups=groups)
        topic = table.topic
        other = self.rng.choice([other for other in TOPICS if other != topic])
        other_kind = self.choose(_READ_EXACTLY)
        lists = {
            f"{topic.things}.{kind}": content,
            f"{other.things}.{other_kind}": self._document(other_kind, topic=other)[1],
        }
        fees: dict[str, dict[str, int]] = {}
        for letter in "ab":
            rates = dict(zip(groups, self.rng.sample(range(_FEE.low, _FEE.high), len(groups)), strict=True))
            fee_kind = self.choose(_READ_EXACTLY)
            fee_table = Table(Topic("fees", topic.group, "", (_FEE,)), "Fees", tuple(rates.items()))
            fees[f"fees-{letter}.{fee_kind}"] = rates
            lists[f"fees-{letter}.{fee_kind}"] = TABLES[fee_kind].write(fee_table)
        valid = self.rng.choice(list(fees))
        note_kind, note = self._note(list(fees), valid)
        lists[f"note.{note_kind}"] = note
        question, answer = JOINS[question_name](table, self.rng, fees[valid])
        text = (
            f"In {{where}} is a list of {topic.things}, and a note says which list of fees is valid. "
            f"By these, {question}"
        )
        tags = (way, kind, valid.rpartition(".")[2], note_kind, question_name)
        return self._in_package(
            way, dict(sorted(lists.items())), f"{topic.things}.{kind}", text, answer, tags
        )

    def _document(self, kind: str, **options: Any) -> tuple[Table, bytes]:
        return make_document(self.rng, kind, self.max_rows, **options)

    def _shown_thing(self, way: str) -> Draft:
        """The name of a thing is in a picture, or one of its numbers is said, and the list has what is asked."""
        kind = self.choose(_READ_EXACTLY)
        rows: list[tuple[Value, ...]] = []
        while not rows:  # not every table has a number that can be said
            table, content = self._document(kind)
            topic = table.topic
            index = next(n for n, column in enumerate(topic.columns) if not column.has_tenths)
            rows = [row for row in table.rows if way == PICTURE or can_say(row[2 + index])]
        row, column = self.rng.choice(rows), topic.columns[index]
        number = str(row[2 + index])
        shown_kind = SPEECH if way == RECORDING else self.rng.choice(PICTURES)
        list_file, shown_file = f"{self.name}.{kind}", f"{self.name}-0.{shown_kind}"
        in_list = f"the list of {topic.things} in {self.at}/{list_file}"
        if way == RECORDING:
            unit = f" in {column.unit}" if column.unit else ""
            text = (
                f"The recording {self.at}/{shown_file} says a number, digit by digit. "
                f"According to {in_list}, which {topic.thing} has this {column.name}{unit}?"
            )
            answer, shown = str(row[0]), speech(number)
        else:
            unit = f" Answer with the number and its unit, {column.unit}." if column.unit else ""
            text = (
                f"The picture {self.at}/{shown_file} names a {topic.thing}. "
                f"According to {in_list}, what is its {column.name}?{unit}"
            )
            answer, shown = f"{number} {column.unit}".strip(), picture([str(row[0])], shown_kind)
        files = {shown_file: shown, list_file: content}
        return Draft(text, answer, files, list_file, (way, kind, "value"))

    def _note(self, names: Sequence[str], valid: str) -> tuple[str, bytes]:
        """A document that says which list is valid: its kind and content."""
        kind = self.choose(_READ_EXACTLY)
        rows = tuple((name, "valid" if name == valid else "withdrawn") for name in names)
        table = Table(Topic("lists", "file", "", (Column("status"),)), "Status of the lists", rows)
        return kind, TABLES[kind].write(table)

    def _in_package(self, way: str, lists: Files, holder: str, text: str, answer: str, tags: Tags) -> Draft:
        """A draft whose text names, at ``{where}``, an archive or a folder, and nothing in it."""
        if way == FOLDER:
            files = {f"{self.name}/{name}": content for name, content in lists.items()}
            text = text.format(where=f"the folder {self.at}/{self.name}")
            return Draft(text, answer, files, f"{self.name}/{holder}", tags)
        archive = f"{self.name}.zip"
        text = text.format(where=f"the archive {self.at}/{archive}")
        return Draft(text, answer, {archive: packed(lists)}, f"{archive}/{holder}", tags)


LEVELS = {
    "1": Drafting.one_document,
    "2": Drafting.found_document,
    "3": Drafting.joined_documents,
}
