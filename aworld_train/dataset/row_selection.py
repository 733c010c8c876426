"""Chooses among token rows: no two alike, the best of a task, as many of each level, and some tasks held out.

What came from one episode or conversation is taken or left out as a whole. Chances are keyed hashes of tasks, so the
same rows are chosen in whatever order they come.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from aworld_train.dataset.token_rows import TokenRow


@dataclass(frozen=True)
class Choice:
    """``per_task`` is how many of a task's best are taken, ``held_out`` the share of tasks for the validation."""

    per_task: int | None = None
    balance_levels: bool = False
    max_tokens: int | None = None
    held_out: float = 0.1
    seed: int = 42


@dataclass(frozen=True)
class ChosenRows:
    """The rows of each split, and how many episodes or conversations were left out, by reason."""

    train: Sequence[TokenRow]
    val: Sequence[TokenRow]
    dropped: Counter[str] = field(default_factory=Counter)


Group = Sequence[TokenRow]
"""The rows of one episode or conversation."""


def choose_rows(rows: Iterable[TokenRow], choice: Choice) -> ChosenRows:
    by_origin: dict[str, list[TokenRow]] = defaultdict(list)
    for row in rows:
        by_origin[row.origin].append(row)
    dropped = Counter[str]()
    groups = _distinct(_short(list(by_origin.values()), choice.max_tokens, dropped), dropped)
    if choice.per_task is not None:
        groups = _best(groups, choice.per_task, dropped)
    if choice.balance_levels:
        groups = _balanced(groups, choice.seed, dropped)
    groups = sorted(groups, key=lambda group: (_chance(group, choice.seed), group[0].origin))
    tasks = list(dict.fromkeys(group[0].task for group in groups))
    held_out = set(tasks[: round(choice.held_out * len(tasks))])
    split = {
        name: [row for group in groups if (group[0].task in held_out) == (name == "val") for row in group]
        for name in ("train", "val")
    }
    return ChosenRows(split["train"], split["val"], dropped)


def _short(groups: list[Group], max_tokens: int | None, dropped: Counter[str]) -> list[Group]:
    if max_tokens is None:
        return groups
    kept = [group for group in groups if all(len(row.input_ids) <= max_tokens for row in group)]
    return _counted(groups, kept, "longer than --max-tokens", dropped)


def _distinct(groups: list[Group], dropped: Counter[str]) -> list[Group]:
    seen: dict[tuple[bytes, ...], Group] = {}
    for group in groups:
        key = tuple(_digest(row) for row in group)
        if key not in seen or group[0].origin < seen[key][0].origin:
            seen[key] = group
    return _counted(groups, list(seen.values()), "repeats another one", dropped)


def _digest(row: TokenRow) -> bytes:
    return hashlib.sha256(repr((list(row.input_ids), list(row.loss_mask))).encode()).digest()


def _best(groups: list[Group], count: int, dropped: Counter[str]) -> list[Group]:
    """Of each task those with the highest reward, of these the shortest."""
    by_task: dict[str, list[Group]] = defaultdict(list)
    for group in groups:
        by_task[group[0].task].append(group)
    kept = [group for of_task in by_task.values() for group in sorted(of_task, key=_rank)[:count]]
    return _counted(groups, kept, "a better one of its task was taken", dropped)


def _rank(group: Group) -> tuple[float, int, str]:
    reward = group[0].reward
    return (
        -reward if reward is not None else float("inf"),
        sum(row.trained for row in group),
        group[0].origin,
    )


def _balanced(groups: list[Group], seed: int, dropped: Counter[str]) -> list[Group]:
    """As many of each level as there are of the rarest."""
    by_level: dict[str, list[Group]] = defaultdict(list)
    for group in sorted(groups, key=lambda group: (_chance(group, seed), group[0].origin)):
        by_level[group[0].level].append(group)
    count = min(map(len, by_level.values()), default=0)
    kept = [group for of_level in by_level.values() for group in of_level[:count]]
    return _counted(groups, kept, "its level has enough (--balance)", dropped)


def _chance(group: Group, seed: int) -> str:
    return hashlib.sha256(f"{seed} {group[0].task}".encode()).hexdigest()


def _counted(before: list[Group], kept: list[Group], reason: str, dropped: Counter[str]) -> list[Group]:
    if len(kept) < len(before):
        dropped[reason] += len(before) - len(kept)
    return kept
