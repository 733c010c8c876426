"""Verdicts on disk: what was kept is found, what is damaged is not, and many processes may keep at the same time."""

import multiprocessing
from pathlib import Path

import pytest

from aworld_train.reward.judge.cache import VerdictCache
from aworld_train.reward.judge.question import Question
from aworld_train.reward.judge.verdict import JudgedVerdict, Verdict

KEY = "ab" * 32
RIGHT = JudgedVerdict(Verdict.correct, 'Both say "Zürich".\n')
WRONG = JudgedVerdict(Verdict.incorrect, "")


def test_caches_of_one_directory_share_verdicts(tmp_path: Path) -> None:
    VerdictCache(tmp_path / "not" / "there").write(KEY, "judge", RIGHT)
    assert VerdictCache(tmp_path / "not" / "there").read(KEY) == RIGHT


def test_a_verdict_that_was_never_kept_is_none(tmp_path: Path) -> None:
    assert VerdictCache(tmp_path / "nothing").read(KEY) is None
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"[" * 100_000,
        b"\xff\xfe",
        b"{}",
        b'{"key": "%s", "verdict": "corr", "reason": ""}' % KEY.encode(),
        b'{"key": "%s", "verdict": ["correct"], "reason": ""}' % KEY.encode(),
        b'{"key": "other", "verdict": "correct", "reason": ""}',
    ],
)
def test_a_damaged_entry_is_none_and_is_replaced(tmp_path: Path, damage: bytes) -> None:
    cache = VerdictCache(tmp_path)
    cache.write(KEY, "judge", RIGHT)
    [file] = tmp_path.glob("*/*.json")
    file.write_bytes(damage)
    assert cache.read(KEY) is None
    cache.write(KEY, "judge", WRONG)
    assert cache.read(KEY) == WRONG


def test_an_entry_that_is_cut_off_anywhere_is_none(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    cache.write(KEY, "judge", RIGHT)
    [file] = tmp_path.glob("*/*.json")
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        assert cache.read(KEY) is None


def _keep_and_read(directory: Path) -> bool:
    cache = VerdictCache(directory)
    for _ in range(200):
        cache.write(KEY, "judge", RIGHT)
        if cache.read(KEY) != RIGHT:
            return False
    return True


def test_processes_that_keep_the_same_verdict_at_the_same_time_always_read_a_whole_one(
    tmp_path: Path,
) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_keep_and_read, [tmp_path] * 2) == [True] * 2
    assert [file.name for file in tmp_path.glob("*/*")] == [f"{KEY}.json"]


def test_a_directory_that_cannot_be_written_raises(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    cache = VerdictCache(tmp_path / "file")
    assert cache.read(KEY) is None
    with pytest.raises(OSError):
        cache.write(KEY, "judge", RIGHT)


def test_a_key_is_of_all_that_makes_a_verdict() -> None:
    question = Question("What?", "6", "six", "Judge.")
    others = [
        Question("What", "6", "six", "Judge."),
        Question("What?", "7", "six", "Judge."),
        Question("What?", "6", "seven", "Judge."),
        Question("What?", "6", "six", "Judge well."),
        Question("What?", "6s", "ix", "Judge."),
    ]
    keys = [other.key("judge") for other in [question, *others]] + [question.key("another")]
    assert len(set(keys)) == len(keys)
    assert question.key("judge") == Question("What?", "6", "six", "Judge.").key("judge")
