"""The dialect of text completions: what is asked, and an answer with its tokens."""

import json
from typing import Any

import pytest

from aworld_train.rollout.messages import Completion, Message, RequestRefused
from aworld_train.rollout.model_gateway.completions import answer, events, read

COMPLETION = Completion(
    "a word",
    finish_reason="stop",
    prompt_tokens=3,
    tokens=[5, 6],
    logprobs=[-0.5, -1.5],
    texts=["a ", "word"],
    top_logprobs=[[("a ", -0.5)], [("word", -1.5)]],
)
CHOICE = {"index": 0, "text": "a word", "logprobs": None, "finish_reason": "stop"}
LOGPROBS = {
    "tokens": ["a ", "word"],
    "token_logprobs": [-0.5, -1.5],
    "top_logprobs": [{"a ": -0.5}, {"word": -1.5}],
    "text_offset": [0, 2],
}


@pytest.mark.parametrize("prompt", ["Go on", ["Go on"]])
def test_one_text_is_continued_without_a_template(prompt: Any) -> None:
    parsed = read({"model": "m", "prompt": prompt, "max_tokens": 7, "stop": "end"})
    assert (parsed.request.messages, parsed.request.plain) == ((Message("user", "Go on"),), True)
    assert (parsed.request.max_tokens, parsed.request.logprobs, parsed.stream) == (7, False, False)
    assert list(parsed.request.stop) == ["end"]


@pytest.mark.parametrize("body", [{"prompt": [1, 2]}, {"prompt": ["a", "b"]}, {"suffix": "x"}, {"prompt": 7}])
def test_what_the_model_cannot_continue_is_refused(body: Any) -> None:
    with pytest.raises(RequestRefused):
        read({"model": "m", "prompt": "Go on", **body})


@pytest.mark.parametrize(("options", "logprobs"), [({}, None), ({"logprobs": 0}, LOGPROBS)])
def test_an_answer_has_its_tokens_with_their_places_if_they_were_asked_for(
    options: Any, logprobs: Any
) -> None:
    parsed = read({"model": "m", "prompt": "Go on", **options})
    body = answer([COMPLETION], parsed, "m")
    assert body["choices"] == [{**CHOICE, "logprobs": logprobs}]
    assert (body["object"], body["model"]) == ("text_completion", "m")
    assert body["usage"]["prompt_tokens"] == 3


@pytest.mark.parametrize("counted", [True, False])
def test_an_answer_in_events_has_the_same_choices_and_an_end(counted: bool) -> None:
    parsed = read({"model": "m", "prompt": "Go on", "stream_options": {"include_usage": counted}})
    *parts, end = b"".join(events([COMPLETION] * 2, parsed, "m")).decode().strip().split("\n\n")
    bodies = [json.loads(part.removeprefix("data: ")) for part in parts]
    choices = [choice for body in bodies for choice in body["choices"]]
    assert choices == [CHOICE, {**CHOICE, "index": 1}]
    assert end == "data: [DONE]"
    assert ("usage" in bodies[-1]) == counted == (len(bodies) == 3)
