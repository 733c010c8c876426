"""Checks the names of scorers and answer schemas, so that unknown ones are found before training."""

import re
from functools import cache

from aworld_train.errors import DatasetError, RewardError, suggestion
from aworld_train.reward import extraction
from aworld_train.reward.scorers import scorer_names

_USER_DEFINED = re.compile(r"[^:]+:[A-Za-z_]\w*")


@cache
def check_scorer_name(name: str) -> None:
    """Check that there is such a scorer; a user-defined one (``module:function``) is loaded only by the run."""
    known = scorer_names()
    if name not in known and not _USER_DEFINED.fullmatch(name):
        raise DatasetError(f"unknown scorer {name!r}; there are {', '.join(known)}.{suggestion(name, known)}")


@cache
def check_schema_name(name: str) -> None:
    try:
        extraction.check_schema_name(name)
    except RewardError as error:
        raise DatasetError(f"unusable answer_schema {name!r}: {error.message}") from error
