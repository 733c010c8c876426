"""The right answers of a record: one, or several of which each is right.

Several are a list, or one of the mappings of public datasets: SQuAD's ``{text: [...], answer_start: [...]}``,
TriviaQA's ``{value: ..., aliases: [...]}``, DROP's ``{spans: [...]}``, Search-R1's ``{target: [...]}``.
"""

from collections.abc import Iterator, Mapping

from aworld_train.dataset.sources.values import (
    HIDDEN_ANSWER,
    NO_ANSWER,
    UnusableRecord,
    answer_text,
    parsed_json,
)

NOT_A_LIST = "ground_truths is not a list"

_INSIDE = ("value", "text", "target", "spans", "aliases")
"""Where a mapping has its answers, the best first."""


def right_answers(
    answer: object, others: object = None, *, structured: bool = False
) -> tuple[str, tuple[str, ...]]:
    """The ground truth of a record, and all its right answers, the ground truth first, where there are several.

    Answers that are empty or hidden are left out. ``others`` may be a JSON list as text. With ``structured``, for
    scorers that read JSON, a list or mapping in ``answer`` is one answer. Raises UnusableRecord if no answer is left.
    """
    single = type(answer) is str or not isinstance(answer, list | tuple | Mapping)
    if others is None and (structured or single):
        return answer_text(answer, structured=structured), ()
    texts: dict[str, None] = {}
    reason: UnusableRecord | None = None
    if structured and answer is not None:
        texts[answer_text(answer, structured=True)] = None
        answer = None
    for value in (*_values(answer), *_values(_parsed(others))):
        try:
            texts[answer_text(value)] = None
        except UnusableRecord as error:
            if str(error) not in (NO_ANSWER, HIDDEN_ANSWER):
                raise
            reason = reason or error
    if not texts:
        raise reason or UnusableRecord(NO_ANSWER)
    return next(iter(texts)), tuple(texts) if len(texts) > 1 else ()


def _values(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _values_inside(item) if isinstance(item, Mapping) else (item,)
    elif isinstance(value, Mapping):
        yield from _values_inside(value)
    elif value is not None:
        yield value


def _values_inside(mapping: Mapping[str, object]) -> Iterator[object]:
    names = [name for name in _INSIDE if name in mapping]
    if not names:
        yield mapping
    for name in names:
        value = mapping[name]
        yield from value if isinstance(value, list | tuple) else (value,)


def _parsed(value: object) -> object:
    is_list = isinstance(value, str) and value.lstrip().startswith("[")
    return parsed_json(str(value), NOT_A_LIST) if is_list else value
