"""Attacks on rewards, a table each: what a policy may write to be paid without being right, and what it gets.

=========================  =======================================================================================
`test_expensive_math`      Answers that take `math` for ever to compute: wrong, and nobody waits for them.
`test_judge_injections`    Answers that address `llm_judge`: an honest judge is read as it meant.
`test_false_equalities`    What `math` could take for equal, and what is equal though it looks different.
`test_answer_formats`      Where the answer is among thinking, quotes, boxes and candidates, and its score.
`code_programs`            Programs that attack the sandbox of `code_tests`; also run in a real tool environment.
=========================  =======================================================================================

To add an attack, add a row.
"""
