"""Texts and patterns that make a careless parser slow, to be repeated in long texts."""

UNITS = ["<answer>", "</answer>", "<think>", "</think>", "<answer></answer>", "<think></think>", "<"]
UNITS += ["\\boxed{", "\\boxed", "\\boxed ", "\\boxed 5", "\\", "\\\\", "{", "}", "{}", "[]", "[1,"]
UNITS += ['{"a":', '{"', '{"\\"', '"', '{"{":":":', "[[[x]]]", '["', "xa", "1", "é1", "\ud800", " ", "\n"]

SLOW_PATTERNS = [r"regex:x[a-z]*\d|a", "regex:(a+)+$", "regex:(x+x+)+y"]
