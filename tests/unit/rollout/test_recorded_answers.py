"""Answers of an endpoint that are taken from a file."""

from pathlib import Path
from typing import Any

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.chat_client import EndpointAddress
from aworld_train.rollout.chat_completion import ChatAnswer
from aworld_train.rollout.chat_endpoint import ChatEndpoint, RecordedAnswers
from aworld_train.rollout.model import SamplingParams
from tests.openai_stub import Message as Answer
from tests.openai_stub import OpenAIStub, RecordedRequest, Unavailable, calls, says

REQUEST = {"model": "m", "messages": [{"role": "user", "content": "é?"}], "seed": 1}
ANSWER = ChatAnswer(
    "text\u2028",
    "thought",
    (ToolCall("t", '{"a": 1}', "c1"),),
    "tool_calls",
    5,
    7,
    True,
    {"content": None, "x": [1]},
)


def test_an_answer_is_found_by_its_request_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    recorded = RecordedAnswers(path)
    assert recorded.find(REQUEST) is None
    recorded.keep(REQUEST, ANSWER)
    recorded.close()
    later = RecordedAnswers(path)
    found = later.find({key: REQUEST[key] for key in ("seed", "messages", "model")})
    assert found == ANSWER
    assert found is not None and found.message == ANSWER.message
    assert later.find({**REQUEST, "seed": 2}) is None


def test_a_line_that_a_kill_has_cut_off_costs_that_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    for seed in (1, 2):
        recorded = RecordedAnswers(path)
        recorded.keep({**REQUEST, "seed": seed}, ANSWER)
        recorded.close()
        if seed == 1:
            path.write_bytes(path.read_bytes()[:-20])
    later = RecordedAnswers(path)
    assert later.find({**REQUEST, "seed": 1}) is None
    assert later.find({**REQUEST, "seed": 2}) == ANSWER


async def test_an_episode_that_is_played_again_sends_only_what_has_no_answer(tmp_path: Path) -> None:
    def script(request: RecordedRequest) -> Answer:
        if request.messages[-1]["role"] == "user":
            return calls("t", x=1)
        if len(stub.requests) < 3:
            raise Unavailable(400)
        return says("done")

    async def play(turns: int) -> Any:
        endpoint = ChatEndpoint(
            address, concurrency=1, request_timeout=60, answers=tmp_path / "answers.jsonl"
        )
        model, messages = endpoint.for_episode(), [Message("user", "Go")]
        try:
            for _ in range(turns):
                answer = await model.answer(messages, [], SamplingParams(1.0, 1.0, -1, seed=3), 100)
                if answer.tool_calls:
                    call = answer.tool_calls[0]
                    messages += [
                        Message("assistant", answer.content, answer.tool_calls),
                        Message("tool", "1", call_id=call.call_id, name="t"),
                    ]
            return answer
        finally:
            await endpoint.close()

    with OpenAIStub(script) as stub:
        address = EndpointAddress(stub.url(), "m", None)
        for turns, sent in ((1, 1), (1, 1), (2, 2)):
            try:
                await play(turns)
            except Exception as error:  # the second turn is refused once, which is not recorded
                assert turns == 2, error
            assert len(stub.requests) == sent
        assert (await play(2)).content == "done"
        assert len(stub.requests) == 3
        assert (await play(2)).content == "done"
        assert len(stub.requests) == 3
        # What the endpoint gave is sent back as it gave it.
        assert stub.requests[1].messages == stub.requests[2].messages
