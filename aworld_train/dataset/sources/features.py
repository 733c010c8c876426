"""The features of a Hugging Face dataset: what the numbers of its class labels stand for.

`datasets` describes a column by a mapping with ``_type``, or by mappings and lists of such descriptions; parquet files
that it wrote have these in their metadata, so the library itself is not needed.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

METADATA_KEY = b"huggingface"

Decoder = Callable[[Any], object]


def features_of(schema: pa.Schema) -> Mapping[str, object]:
    """The description of each column in the metadata of a file; empty where `datasets` did not write it."""
    try:
        features = json.loads((schema.metadata or {})[METADATA_KEY])["info"]["features"]
    except (KeyError, ValueError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def label_decoder(feature: object) -> Decoder | None:
    """What puts names of class labels in place of their numbers; None where a column has no class labels."""
    if isinstance(feature, list):
        return _items_decoder(feature[0]) if feature else None
    if not isinstance(feature, Mapping):
        return None
    match feature.get("_type"):
        case "ClassLabel":
            names = feature.get("names")
            return _names_decoder(names) if isinstance(names, list) else None
        case "List" | "LargeList" | "Sequence":
            return _items_decoder(feature.get("feature"))
        case None | Mapping():
            return _fields_decoder(feature)
    return None


def _names_decoder(names: list[str]) -> Decoder:
    def decode_name(value: Any) -> object:
        return names[value] if isinstance(value, int) and 0 <= value < len(names) else None

    return decode_name


def _items_decoder(feature: object) -> Decoder | None:
    inner = label_decoder(feature)
    if inner is None:
        return None
    # A sequence of mappings is stored as a mapping of lists.
    lists = {name: [column] for name, column in feature.items()} if isinstance(feature, Mapping) else {}
    as_mapping = _fields_decoder(lists) if "_type" not in lists else None

    def decode_items(value: Any) -> object:
        if isinstance(value, list):
            return [inner(item) for item in value]
        return as_mapping(value) if as_mapping else value

    return decode_items


def _fields_decoder(features: Mapping[str, object]) -> Decoder | None:
    decoders = {
        name: decode for name, feature in features.items() if (decode := label_decoder(feature)) is not None
    }
    if not decoders:
        return None

    def decode_fields(value: Any) -> object:
        if not isinstance(value, Mapping):
            return value
        return {name: decoders[name](item) if name in decoders else item for name, item in value.items()}

    return decode_fields
