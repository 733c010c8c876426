"""What is said about first prompts that are longer than the recipe allows."""

from aworld_train.adapter.episodes.first_prompt import FirstPrompts


def test_prompts_of_some_tasks_that_do_not_fit_are_said_at_the_start() -> None:
    some = FirstPrompts(shortest=40, longest=80, tools=30, tool_count=2, largest={"a": 20, "b": 10})
    assert (some.fault(64), some.remark(96)) == (None, None)
    assert "has 80 tokens, 30 of them for the schemas of 2 tools (the longest: a 20, b 10)" in (
        some.remark(64) or ""
    )


def test_a_run_in_which_no_prompt_fits_is_told_what_to_set() -> None:
    none = FirstPrompts(shortest=90, longest=120, tools=70, tool_count=1, largest={"a": 70})
    assert none.fault(64) == (
        "No first prompt fits into dataset.max_prompt_tokens (64): that of the shortest task has 90 tokens, 70 of them "
        "for the schemas of 1 tool (the longest: a 70). Set dataset.max_prompt_tokens to 120 or more, or name fewer "
        "servers in env.servers."
    )
    without_tools = FirstPrompts(shortest=90, longest=120, tools=0, tool_count=0, largest={})
    assert (without_tools.fault(64) or "").endswith(
        "has 90 tokens. Set dataset.max_prompt_tokens to 120 or more."
    )
