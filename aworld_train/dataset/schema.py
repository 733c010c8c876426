"""The columns of a training file, as verl's RLHFDataset reads them.

``extra_info.index`` is a number that no other row has: where it is missing verl gives every row 0, and rows of
different tasks would share a group. Scoring reads all right answers from ``extra_info.ground_truths``; the answer is
in no other field, because ``extra_info`` reaches the agent's code, without this one, and the logs. A file of another
program may have more columns and fields, in any order; `check_schema` requires only those that training needs.
"""

from collections.abc import Callable

import pyarrow as pa

from aworld_train.errors import DatasetError

SCHEMA_VERSION = 2
VERSION_KEY = b"aworld_train.dataset.schema_version"

GROUND_TRUTHS = "ground_truths"
"""The field of ``extra_info`` with all right answers of a task that has several."""
IMAGES = "images"
"""The field of ``extra_info`` with the images of a task that has some; in VeRL's own form, a column of its own."""
TAGS = "tags"
"""The field of ``extra_info`` with the labels of a task by which evaluations are grouped."""

LISTS = (GROUND_TRUTHS, IMAGES, TAGS)
"""The fields of ``extra_info`` that only datasets with such tasks have, each a list of texts."""

_NAMES = ("scorer", "answer_schema")
"""Fields of ``extra_info`` that decide how an answer is scored; a file may lack them."""

# Parquet calls a list's item "element", so a file reads back with exactly this schema.
_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])

SCHEMA = pa.schema(
    [
        ("data_source", pa.string()),
        ("agent_name", pa.string()),
        ("prompt", pa.list_(pa.field("element", _MESSAGE))),
        ("ability", pa.string()),
        ("reward_model", pa.struct([("style", pa.string()), ("ground_truth", pa.string())])),
        (
            "extra_info",
            pa.struct(
                [
                    ("index", pa.int64()),
                    ("id", pa.string()),
                    ("split", pa.string()),
                    ("file", pa.string()),
                    ("line", pa.int64()),
                    ("question", pa.string()),
                    ("expression", pa.string()),
                    ("scorer", pa.string()),
                    ("answer_schema", pa.string()),
                    ("level", pa.string()),
                    ("attachments", pa.list_(pa.field("element", pa.string()))),
                ]
            ),
        ),
    ],
    metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()},
)


def schema_with(*lists: str) -> pa.Schema:
    position = SCHEMA.get_field_index("extra_info")
    texts = pa.list_(pa.field("element", pa.string()))
    info = [*SCHEMA.field(position).type, *(pa.field(name, texts) for name in lists)]
    return SCHEMA.set(position, SCHEMA.field(position).with_type(pa.struct(info)))


def check_schema(schema: pa.Schema, source: str) -> int | None:
    """Check that training can read rows of this schema; returns the schema version in the file, if any."""
    for name, (fits, description) in _NEEDED.items():
        if name not in schema.names:
            raise DatasetError(f"{source} has no column {name!r}, which must be {description}. {_REMEDY}")
        if not fits(schema.field(name).type):
            raise DatasetError(
                f"{source}: column {name!r} is {schema.field(name).type}, not {description}. {_REMEDY}"
            )
    info = schema.field("extra_info").type
    optional = {"agent_name": schema.field("agent_name").type if "agent_name" in schema.names else pa.null()}
    for name, kind in (optional | {f"extra_info.{name}": _field(info, name) for name in _NAMES}).items():
        if not (_is_text(kind) or pa.types.is_null(kind)):
            raise DatasetError(f"{source}: column {name!r} is {kind}, not text. {_REMEDY}")
    for name in LISTS:
        kind = _field(info, name)
        items = kind.value_type if _is_list(kind) else kind
        # In a file whose lists are all empty, their items have no type.
        if not (pa.types.is_null(items) or (_is_list(kind) and _is_text(items))):
            raise DatasetError(
                f"{source}: column 'extra_info.{name}' is {kind}, not a list of texts. {_REMEDY}"
            )
    if IMAGES in schema.names:
        raise DatasetError(
            f"{source} has images in a column of their own, as VeRL has them, which episodes are not shown. Give them "
            "to `aworld-train dataset build` as parts of the query, in the form of the OpenAI API."
        )
    stated = (schema.metadata or {}).get(VERSION_KEY)
    if stated is None:
        return None
    if not stated.isdigit() or not 1 <= int(stated) <= SCHEMA_VERSION:
        version = stated.decode(errors="replace")
        raise DatasetError(
            f"{source} has schema version {version}; this installation reads up to {SCHEMA_VERSION}. "
            "Update aworld-train, or build the dataset again."
        )
    return int(stated)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _field(kind: pa.DataType, name: str) -> pa.DataType:
    if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
        return pa.null()
    return kind.field(name).type


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_messages(kind: pa.DataType) -> bool:
    if not _is_list(kind):
        return False
    return _is_text(_field(kind.value_type, "role")) and _is_text(_field(kind.value_type, "content"))


_NEEDED: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "data_source": (_is_text, "text"),
    "prompt": (_is_messages, "a list of messages, each with the texts 'role' and 'content'"),
    "reward_model": (
        lambda kind: _is_text(_field(kind, "ground_truth")),
        "a struct with the text 'ground_truth'",
    ),
    "extra_info": (
        lambda kind: pa.types.is_integer(_field(kind, "index")),
        "a struct with the integer 'index'",
    ),
}
_REMEDY = "Make the file with `aworld-train dataset build`, or give it verl's row schema."
