"""Which scorers and answer schemas there are, so that a row that names another is found before training."""

from functools import cache

from aworld_train.errors import DatasetError, nearest

SCORERS = ("number", "gaia", "math", "exact", "f1", "contains", "code_tests", "llm_judge", "composite")
SCHEMAS = ("answer", "boxed", "last_line", "json:<path>", "regex:<pattern>")


@cache
def check_scorer_name(name: str) -> None:
    """See that there is such a scorer; ``module:function`` is one's own and is loaded by the run.

    Raises:
        DatasetError: There is none.
    """
    if name not in SCORERS and not (":" in name and name.rpartition(":")[2].isidentifier()):
        raise DatasetError(_unknown("scorer", name, SCORERS))


@cache
def check_schema_name(name: str) -> None:
    """See that there is such an answer schema.

    Raises:
        DatasetError: There is none.
    """
    kind, _, detail = name.partition(":")
    if name not in SCHEMAS[:3] and not (kind in ("json", "regex") and detail):
        raise DatasetError(_unknown("answer_schema", name, SCHEMAS))


def _unknown(what: str, name: str, known: tuple[str, ...]) -> str:
    hint = nearest(name, known)
    meant = f" Did you mean {hint}?" if hint else ""
    return f"unknown {what} {name!r}; there are {', '.join(known)}.{meant}"
