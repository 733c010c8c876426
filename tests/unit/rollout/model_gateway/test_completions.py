"""The dialect of text completions: what is asked, and an answer with its tokens."""

import json
from dataclasses import replace
from typing import Any

import pytest

from aworld_train.episode.message import Message
from aworld_train.rollout.messages import ChatRequest, Completion, RequestRefused
from aworld_train.rollout.model_gateway.completions import answer, events, read
from aworld_train.rollout.model_gateway.dialect import EMPTY, ParsedRequest, Surroundings
from aworld_train.rollout.response_constraints import RequestRules

COMPLETION = Completion(
    "a word",
    finish_reason="stop",
    prompt_tokens=3,
    tokens=[5, 6, 7],
    logprobs=[-0.5, -1.5, -2.0],
    texts=["a ", "wo", "rd"],
    top_logprobs=[[("a ", -0.5)], [("wo", -1.5)], [("rd", -2.0)]],
)
CHOICE = {"index": 0, "text": "a word", "logprobs": None, "finish_reason": "stop"}
LOGPROBS = {
    "tokens": ["a ", "wo", "rd"],
    "token_logprobs": [-0.5, -1.5, -2.0],
    "top_logprobs": [{"a ": -0.5}, {"wo": -1.5}, {"rd": -2.0}],
    "text_offset": [0, 2, 4],
}


@pytest.mark.parametrize("prompt", ["Go on", ["Go on"]])
def test_one_text_is_continued_without_a_template(prompt: Any) -> None:
    messages = (Message("user", "Go on"),)
    assert read({"prompt": prompt}, None, EMPTY) == ParsedRequest(ChatRequest(messages, plain=True))
    options: Any = {"max_tokens": 1, "temperature": 0, "top_p": 0.5, "top_k": 3}
    stream: Any = {"stream": True, "stream_options": {"include_usage": True}}
    body = {"prompt": prompt, "n": 2, "logprobs": 2, "stop": "end", "suffix": "", **options, **stream}
    found = read(body, None, Surroundings(RequestRules(max_top_logprobs=2)))
    request = ChatRequest(
        messages, plain=True, choices=2, logprobs=True, top_logprobs=2, stop=("end",), **options
    )
    assert found == ParsedRequest(request, stream=True, usage=True)


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (2, 1)])
def test_the_usual_number_of_likely_tokens_is_taken_from_every_engine(limit: int, count: int) -> None:
    around = Surroundings(RequestRules(max_top_logprobs=limit))
    request = read({"prompt": "Go on", "logprobs": 1}, None, around).request
    assert (request.logprobs, request.top_logprobs) == (True, count)


@pytest.mark.parametrize(
    ("body", "parameter"),
    [
        *[({"prompt": prompt}, "prompt") for prompt in ([1, 2], ["a", "b"], [[1]], [], [""], "", 7, None)],
        ({"suffix": "x"}, "suffix"),
        ({"logprobs": 2}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stream_options": [1]}, "stream_options"),
        ({"model": 1}, "model"),
        ({"best_of": 2}, "best_of"),
    ],
)
def test_what_the_model_cannot_continue_is_refused(body: Any, parameter: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        read({"model": "m", "prompt": "Go on", **body}, None, EMPTY)
    assert caught.value.parameter == parameter


@pytest.mark.parametrize(("options", "logprobs"), [({}, None), ({"logprobs": 0}, LOGPROBS)])
def test_an_answer_has_its_tokens_with_their_places_if_they_were_asked_for(
    options: Any, logprobs: Any
) -> None:
    parsed = read({"model": "m", "prompt": "Go on", **options}, None, EMPTY)
    body = answer([COMPLETION], parsed, "m")
    assert body["choices"] == [{**CHOICE, "logprobs": logprobs}]
    assert (body["object"], body["model"]) == ("text_completion", "m")
    assert body["usage"] == {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}


def test_of_likely_tokens_with_the_same_text_the_first_is_shown() -> None:
    parsed = read({"model": "m", "prompt": "Go on", "logprobs": 0}, None, EMPTY)
    alike = replace(COMPLETION, top_logprobs=[[("a ", -0.5), ("a ", -2.5)], [("b", -1.0)]])
    first, second = (answer([one], parsed, "m")["choices"][0]["logprobs"] for one in (alike, COMPLETION))
    assert first["top_logprobs"] == [{"a ": -0.5}, {"b": -1.0}]
    without = answer([replace(COMPLETION, top_logprobs=())], parsed, "m")["choices"][0]["logprobs"]
    assert without == {**second, "top_logprobs": None}


@pytest.mark.parametrize("counted", [True, False])
def test_an_answer_in_events_has_the_same_choices_and_an_end(counted: bool) -> None:
    parsed = read(
        {"model": "m", "prompt": "Go on", "stream_options": {"include_usage": counted}}, None, EMPTY
    )
    *parts, end = b"".join(events([COMPLETION] * 2, parsed, "m")).decode().strip().split("\n\n")
    bodies = [json.loads(part.removeprefix("data: ")) for part in parts]
    choices = [choice for body in bodies for choice in body["choices"]]
    assert choices == [CHOICE, {**CHOICE, "index": 1}]
    assert end == "data: [DONE]"
    assert ("usage" in bodies[-1]) == counted == (len(bodies) == 3)
