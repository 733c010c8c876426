"""Tables of invented things, which documents of every kind show: a name, a group, and columns of different numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import NamedTuple

Value = str | int | Decimal


class Column(NamedTuple):
    """A column of numbers from ``low`` on and below ``high``."""

    name: str
    unit: str = ""
    low: int = 0
    high: int = 0

    @property
    def heading(self) -> str:
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def has_tenths(self) -> bool:
        return self.unit in ("m", "ha")


class Topic(NamedTuple):
    """What a table is about: ``things``, each of a ``group`` such as a harbour."""

    things: str
    thing: str
    group: str
    columns: tuple[Column, ...]


TOPICS = (
    Topic("ferries", "ferry", "harbour", (Column("length", "m", 20, 180), Column("capacity", "", 100, 1900))),
    Topic(
        "lighthouses",
        "lighthouse",
        "district",
        (Column("height", "m", 8, 90), Column("power", "W", 100, 4800)),
    ),
    Topic("orchards", "orchard", "valley", (Column("harvest", "kg", 150, 9000), Column("area", "ha", 2, 60))),
    Topic("bridges", "bridge", "county", (Column("span", "m", 12, 400), Column("load", "kg", 1000, 40000))),
    Topic(
        "museums", "museum", "town", (Column("turnout", "", 1200, 90000), Column("floor", "m2", 150, 6000))
    ),
    Topic(
        "reservoirs", "reservoir", "region", (Column("depth", "m", 5, 120), Column("catch", "kg", 200, 5000))
    ),
    Topic(
        "workshops",
        "workshop",
        "quarter",
        (Column("rent", "EUR", 300, 4800), Column("headcount", "", 100, 700)),
    ),
    Topic("sledges", "sledge", "station", (Column("mass", "kg", 20, 320), Column("range", "km", 100, 900))),
)

YEARS = range(1990, 2025)
MAX_GROUPS = 5

# Words that recognition of text reads without doubt.
_FIRST = (
    *("Amber", "Autumn", "Broken", "Bronze", "Copper", "Crimson", "Crystal", "Distant", "Eastern", "Frozen"),
    *("Gentle", "Golden", "Hidden", "Hollow", "Wooden", "Lonely", "Marble", "Misty", "Northern", "Purple"),
    *("Quiet", "Rapid", "Royal", "Rusty", "Secret", "Silent", "Silver", "Southern", "Summer", "Winter"),
)
_SECOND = (
    *("Anchor", "Badger", "Beacon", "Candle", "Castle", "Cedar", "Dolphin", "Dragon", "Eagle", "Falcon"),
    *("Garden", "Hammer", "Harvest", "Heron", "Window", "Lantern", "Maple", "Meadow", "Mirror", "Mountain"),
    *("Orchid", "Otter", "Pelican", "Raven", "River", "Shadow", "Sparrow", "Thunder", "Tiger", "Walnut"),
)

PLACES = {
    "latin": (
        *("Bergen", "Bilbao", "Bremen", "Brest", "Corfu", "Delft", "Dublin", "Genoa", "Ghent", "Kiruna"),
        *("Lille", "Lund", "Madrid", "Naples", "Odessa", "Oslo", "Porto", "Riga", "Split", "Tartu"),
        *("Trieste", "Turku", "Varna", "Vienna"),
    ),
    "greek": (
        *("Αθήνα", "Βόλος", "Δράμα", "Ηράκλειο", "Θεσσαλονίκη", "Ιωάννινα", "Καβάλα", "Καλαμάτα", "Κέρκυρα"),
        *("Λάρισα", "Πάτρα", "Ρόδος", "Τρίκαλα", "Χαλκίδα"),
    ),
    "russian": (
        *("Архангельск", "Владимир", "Вологда", "Иркутск", "Казань", "Кострома", "Мурманск", "Новгород"),
        *("Псков", "Рязань", "Самара", "Смоленск", "Тверь", "Ярославль"),
    ),
    "japanese": (
        *("札幌", "仙台", "横浜", "名古屋", "京都", "大阪", "神戸", "広島", "福岡", "長崎", "熊本", "鹿児島"),
        *("金沢", "新潟"),
    ),
}


@dataclass(frozen=True)
class Table:
    """Rows of a name, a group where the topic has one, and a value for each column.

    In a made table no name and no number of a column comes twice.
    """

    topic: Topic
    title: str
    rows: tuple[tuple[Value, ...], ...]

    @property
    def header(self) -> tuple[str, ...]:
        topic = self.topic
        labels = (topic.thing, topic.group, *(column.heading for column in topic.columns))
        return tuple(filter(None, labels))

    @property
    def groups(self) -> list[str]:
        return sorted({str(row[1]) for row in self.rows})

    @property
    def sentences(self) -> list[str]:
        labels = self.header[1:]
        return [
            f"{row[0]}: {', '.join(f'{label} {value}' for label, value in zip(labels, row[1:], strict=True))}."
            for row in self.rows
        ]


def make_table(
    rng: Random,
    *,
    count: int,
    script: str = "latin",
    topic: Topic | None = None,
    year: int = 0,
    groups: Sequence[str] = (),
) -> Table:
    """A table of ``count`` rows; each of its groups has two at least."""
    topic = topic or rng.choice(TOPICS)
    groups = (groups or rng.sample(PLACES[script], MAX_GROUPS))[: count // 2]
    names = rng.sample([f"{first} {second}" for first in _FIRST for second in _SECOND], count)
    places = [*groups, *groups, *rng.choices(groups, k=count - 2 * len(groups))]
    rng.shuffle(places)
    numbers = [_numbers(rng, column, count) for column in topic.columns]
    title = f"{topic.things.capitalize()} of {year or rng.choice(YEARS)}"
    return Table(topic, title, tuple(zip(names, places, *numbers, strict=True)))


def _numbers(rng: Random, column: Column, count: int) -> Sequence[Value]:
    if not column.has_tenths:
        return rng.sample(range(column.low, column.high), count)
    return [Decimal(tenths) / 10 for tenths in rng.sample(range(10 * column.low, 10 * column.high), count)]
