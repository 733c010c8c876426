"""Which scorers and answer schemas there are, so that a row that names another is found before training."""

import re
from functools import cache

from aworld_train.errors import DatasetError, RewardError, nearest
from aworld_train.reward import extraction
from aworld_train.reward.scorers import scorer_names

_OWN = re.compile(r"[^:]+:[A-Za-z_]\w*")


@cache
def check_scorer_name(name: str) -> None:
    """See that there is such a scorer; ``module:function`` is one's own and is loaded by the run.

    Raises:
        DatasetError: There is none.
    """
    known = scorer_names()
    if name not in known and not _OWN.fullmatch(name):
        hint = nearest(name, known)
        meant = f" Did you mean {hint}?" if hint else ""
        raise DatasetError(f"unknown scorer {name!r}; there are {', '.join(known)}.{meant}")


@cache
def check_schema_name(name: str) -> None:
    """See that there is such an answer schema.

    Raises:
        DatasetError: There is none.
    """
    try:
        extraction.check_schema_name(name)
    except RewardError as error:
        raise DatasetError(f"unusable answer_schema {name!r}: {error.message}") from error
