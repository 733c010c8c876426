"""What of a request's sampling is passed on, refused or ignored."""

import logging
from typing import Any

import pytest

from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway import sampling
from aworld_train.rollout.response_constraints import RequestRules

# What servers and clients send without wanting anything.
NEUTRAL: Any = {
    "add_generation_prompt": True, "allowed_token_ids": [], "bad_words": [], "best_of": 1, "chat_template": "",
    "continue_final_message": False, "documents": [], "ebnf": "", "echo": False, "frequency_penalty": 0,
    "guided_choice": [], "guided_grammar": "", "guided_json": {}, "guided_regex": "", "ignore_eos": False,
    "length_penalty": 1.0, "logit_bias": {}, "logits_processors": [], "min_p": 0, "min_tokens": 0,
    "modalities": ["text"], "n": 1, "presence_penalty": 0.0, "prompt_logprobs": False, "regex": "",
    "repetition_penalty": 1, "stop_token_ids": [], "structured_outputs": {}, "top_logprobs": 0, "typical_p": 1,
    "use_beam_search": False,
}  # fmt: skip

REASONS = {
    **dict.fromkeys(
        ("add_generation_prompt", "chat_template", "continue_final_message", "documents"),
        "how the prompt is written",
    ),
    **{"audio": "the model answers with text alone", "modalities": "the model answers with text alone"},
    **{"best_of": "`n` asks for several", "echo": "the prompt is not repeated"},
    **{"n": "one answer comes to each request", "prompt_logprobs": "of sampled tokens alone"},
    **{"stop_token_ids": "`stop` takes texts", "top_logprobs": "/v1/responses have it"},
    "web_search_options": "an agent's own tools",
}


@pytest.mark.parametrize(
    "body", [NEUTRAL, dict.fromkeys(sampling.NEUTRAL), {"guided_json": "", "prompt_logprobs": 0, "x": {}}]
)
def test_what_changes_nothing_is_accepted(body: Any) -> None:
    sampling.refuse_changes(body, frozenset())


@pytest.mark.parametrize("name", sampling.NEUTRAL)
def test_a_change_is_refused_unless_it_is_read_elsewhere(name: str) -> None:
    body = {"model": "m", name: [NEUTRAL.get(name), 2]}
    sampling.refuse_changes(body, frozenset({name}))
    with pytest.raises(RequestRefused) as caught:
        sampling.refuse_changes(body, frozenset({"n" if name != "n" else "echo"}))
    assert REASONS.get(name, "how tokens are sampled") in str(caught.value)
    assert caught.value.parameter == name


@pytest.mark.parametrize(
    ("options", "strict", "refusal"),
    [
        (None, True, ""),
        ({}, True, ""),
        ({"a": 1}, False, ""),
        ({"a": 1}, True, "chat_template_kwargs: it would change how the prompt is written"),
        ([1], False, "chat_template_kwargs must be an object"),
        ({"a": 1, "b": 1}, False, "chat_template_kwargs.b: .* template, and 'b' is 2 there$"),
        ({"x" * 101: 1}, False, f"and '{'x' * 100}' is not among them$"),
    ],
)
def test_arguments_of_the_template_are_the_recipes(options: Any, strict: bool, refusal: str) -> None:
    body = {"chat_template_kwargs": options}
    rules = RequestRules(strict, {"a": 1, "b": 2, "c": 3})
    if not refusal:
        sampling.refuse_other_template_options(body, rules)
        return
    with pytest.raises(RequestRefused, match=refusal):
        sampling.refuse_other_template_options(body, rules)


def test_wishes_within_their_ranges_are_passed_on() -> None:
    nothing = {"temperature": None, "top_p": None, "top_k": None}
    assert sampling.requested_sampling({"x": 1}) == nothing
    highest = {"temperature": 3.0, "top_p": 1.0, "top_k": -1}
    assert sampling.requested_sampling(highest) == highest
    for name, value in (("temperature", -1), ("top_p", 1.01), ("top_k", -2)):
        with pytest.raises(RequestRefused) as caught:
            sampling.requested_sampling({name: value})
        assert caught.value.parameter == name


@pytest.mark.parametrize(
    ("count", "limit", "refusal"),
    [
        (None, 0, ""),
        (0, 0, ""),
        (2, 2, ""),
        (1, 0, "p: this engine gives the log-probability of the sampled token alone"),
        (3, 2, "p must be an integer from 0 to 2, and is 3"),
        (-1, 2, "p must be an integer from 0 on, and is -1"),
    ],
)
def test_likely_tokens_are_as_many_as_the_engine_has(count: Any, limit: int, refusal: str) -> None:
    rules = RequestRules(max_top_logprobs=limit)
    if not refusal:
        assert sampling.top_logprobs({"p": count}, rules, "p") == (count or 0)
        return
    with pytest.raises(RequestRefused) as caught:
        sampling.top_logprobs({"p": count}, rules, "p")
    assert str(caught.value) == refusal


@pytest.mark.parametrize(("value", "texts"), [(None, ()), ("a", ("a",)), ([], ()), (["a", "b"], ("a", "b"))])
def test_a_turn_may_end_at_several_texts(value: Any, texts: tuple[str, ...]) -> None:
    assert sampling.stop_texts({"stop": value}, "stop") == texts


@pytest.mark.parametrize(("value", "parameter"), [(1, "stop"), ("", "stop[0]"), (["a", 1], "stop[1]")])
def test_a_turn_does_not_end_at_what_is_no_text(value: Any, parameter: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        sampling.stop_texts({"stop": value}, "stop")
    assert caught.value.parameter == parameter


def test_a_parameter_that_does_nothing_is_noted_once_and_so_are_not_too_many(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sampling, "_ignored", set())
    monkeypatch.setattr(sampling, "_MAX_NAMES", 2)
    caplog.set_level(logging.DEBUG, sampling.__name__)
    for _ in range(2):
        sampling.refuse_changes(
            {"model": "m", "x" * 101: 1, "user": "u", "store": True}, frozenset({"model"})
        )
    assert [record.args for record in caplog.records] == [("x" * 100,), ("user",)]
