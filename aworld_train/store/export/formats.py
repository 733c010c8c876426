"""The names of the formats, which the command line shows without loading what writes them."""

from enum import StrEnum


class ExportFormat(StrEnum):
    parquet = "parquet"
    messages = "messages"
    atif = "atif"
    inspect = "inspect"
