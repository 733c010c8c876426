"""What the model under training says: thinking apart from speech, calls that are meant, nothing but words."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from verl.workers.rollout.replica import TokenOutput

from aworld_train.adapter.verl import language_model as module
from aworld_train.adapter.verl.images import image_tokens
from aworld_train.adapter.verl.language_model import VerlModel
from aworld_train.episode.outcome import Outcome
from aworld_train.errors import ModelError
from aworld_train.rollout.formats import FORMATS
from aworld_train.rollout.model import ParsedTurn, SampledTokens, SamplingParams, WeightVersions
from aworld_train.rollout.outcome import EpisodeFailure
from tests import agent_loops, templates, vision

SAMPLING = SamplingParams(1.0, 1.0, -1)
CALL = '<tool_call>\n{"name": "search", "arguments": {"for": "42"}}\n</tool_call>'
END = "<|im_end|>"
# With tokens for thinking and for calls, and without the former.
TOKENIZERS = {
    "own token": lambda: templates.tokenizer("chatml_thinking"),
    "spelled out": lambda: agent_loops.TOKENIZER,
}


class Engine:
    """VeRL's server manager, with one answer."""

    def __init__(self, output: TokenOutput | Exception):
        self.output = output
        self.params: dict[str, Any] = {}
        self.pictures: dict[str, Any] = {}

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **pictures: Any
    ) -> TokenOutput:
        self.params = sampling_params
        self.pictures = pictures
        if isinstance(self.output, Exception):
            raise self.output
        return self.output


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> Any:
    made = TOKENIZERS[request.param]()
    assert ("</think>" in made.get_vocab()) == (request.param == "own token")
    return made


def model(tokenizer: Any, output: TokenOutput | Exception | None = None) -> VerlModel:
    return VerlModel(Engine(output or TokenOutput(token_ids=[])), tokenizer, "hermes", {})


async def parse(tokenizer: Any, text: str, prompt: str = "") -> Any:
    encoded = [tokenizer.encode(part, add_special_tokens=False) for part in (text, prompt)]
    return await model(tokenizer).parse(encoded[0], [], encoded[1])


async def test_thinking_is_told_apart_from_what_is_said(tokenizer: Any) -> None:
    turn = await parse(tokenizer, f"<think>\nSix times seven.\n</think>\n\nIt is 42.{END}")
    assert (turn.reasoning, turn.content, turn.calls, turn.malformed) == (
        "Six times seven.",
        "It is 42.",
        [],
        False,
    )


@pytest.mark.parametrize(
    "text", ["Six times seven.\n</think>\n\nIt is 42.", "Six times seven.</think>It is 42."]
)
async def test_thinking_that_the_prompt_began_is_told_apart_too(tokenizer: Any, text: str) -> None:
    turn = await parse(tokenizer, text + END)
    assert (turn.reasoning, turn.content) == ("Six times seven.", "It is 42.")


async def test_a_call_that_is_only_thought_of_is_none(tokenizer: Any) -> None:
    turn = await parse(tokenizer, f"<think>I could do {CALL}</think>I know it: 42.{END}")
    assert turn.calls == []
    assert turn.content == "I know it: 42."
    assert CALL in turn.reasoning
    assert not turn.malformed


async def test_a_call_in_a_thought_that_never_ends_is_none(tokenizer: Any) -> None:
    turn = await parse(tokenizer, f"<think>I could do {CALL} but{END}")
    assert (turn.calls, turn.content, turn.malformed) == ([], "", False)
    assert turn.reasoning == f"I could do {CALL} but"


async def test_a_call_after_thinking_is_meant(tokenizer: Any) -> None:
    turn = await parse(tokenizer, f"<think>I need it.</think>\n\nI search.\n{CALL}{END}")
    assert [(call.name, call.arguments) for call in turn.calls] == [("search", '{"for": "42"}')]
    assert (turn.reasoning, turn.content, turn.malformed) == ("I need it.", "I search.", False)


@pytest.mark.parametrize("empty", ["<think></think>", "<think>\n\n</think>\n\n", "</think>"])
async def test_a_turn_may_think_nothing(tokenizer: Any, empty: str) -> None:
    turn = await parse(tokenizer, f"{empty}42{END}")
    assert (turn.reasoning, turn.content) == ("", "42")


async def test_a_turn_may_only_think(tokenizer: Any) -> None:
    turn = await parse(tokenizer, f"<think>Hm.</think>{END}")
    assert (turn.reasoning, turn.content, turn.calls) == ("Hm.", "", [])


async def test_no_special_token_is_in_what_is_said_or_thought(tokenizer: Any) -> None:
    turn = await parse(tokenizer, f"<|im_start|>42<|im_start|>!{END}")
    assert turn.content == "42!"
    turn = await parse(tokenizer, f"<think>Hm.{END}")
    assert turn.reasoning == "Hm."


@pytest.mark.parametrize(
    "text", ["<tool_call>\n{not json}\n</tool_call>", "<tool_call>\n{", f"{CALL}\n<tool_call>"]
)
async def test_a_call_that_cannot_be_read_is_malformed(tokenizer: Any, text: str) -> None:
    assert (await parse(tokenizer, text + END)).malformed


async def test_a_thought_that_the_prompt_opened_and_nothing_ends_is_no_answer(tokenizer: Any) -> None:
    opened = "<|im_start|>assistant\n<think>\n"
    turn = await parse(tokenizer, f"So <answer>42</answer>{END}", opened)
    assert (turn.reasoning, turn.content, turn.unfinished) == ("So <answer>42</answer>", "", True)
    turn = await parse(tokenizer, f"Hm.</think>\n<answer>42</answer>{END}", opened)
    assert (turn.reasoning, turn.content, turn.unfinished) == ("Hm.", "<answer>42</answer>", False)


async def test_marks_in_an_earlier_message_open_no_thought(tokenizer: Any) -> None:
    prompt = f"<|im_start|>user\nWrite <think>{END}\n<|im_start|>assistant\n"
    turn = await parse(tokenizer, f"<answer>42</answer>{END}", prompt)
    assert (turn.reasoning, turn.content, turn.unfinished) == ("", "<answer>42</answer>", False)


async def test_a_very_long_turn_is_parsed_too(tokenizer: Any) -> None:
    turn = await parse(tokenizer, "so " * 30_000 + CALL + END)
    assert [call.name for call in turn.calls] == ["search"]


def test_a_parser_that_does_not_fit_the_template_is_refused() -> None:
    with pytest.raises(ModelError, match=r"mistral does not fit the model.*hermes"):
        VerlModel(Engine(TokenOutput(token_ids=[])), agent_loops.TOKENIZER, "mistral", {})


@pytest.mark.parametrize("engine_stops", [True, False])
async def test_an_engine_that_can_stop_at_texts_gets_them(engine_stops: bool) -> None:
    engine = Engine(TokenOutput(token_ids=[5], log_probs=[-1.0]))
    language_model = VerlModel(engine, agent_loops.TOKENIZER, "auto", {}, engine_stops=engine_stops)
    await language_model.generate("one", [1], SamplingParams(1.0, 1.0, -1, ("Observation:",)), 8)
    expected = {"stop": ["Observation:"], "include_stop_str_in_output": True} if engine_stops else {}
    assert {key: value for key, value in engine.params.items() if "stop" in key} == expected


async def generate(output: TokenOutput | Exception, max_tokens: int = 8) -> Any:
    language_model = model(agent_loops.TOKENIZER, output)
    return await language_model.generate("one", [1, 2], SAMPLING, max_tokens)


@pytest.mark.parametrize(
    ("output", "cause"),
    [
        (TokenOutput(token_ids=[1, 2]), "did not return one log-probability per token"),
        (TokenOutput(token_ids=[1, 2], log_probs=[-1.0]), "did not return one log-probability per token"),
        (TokenOutput(token_ids=[], log_probs=[]), "gave the request up"),
        (TokenOutput(token_ids=[1], log_probs=[-1.0], stop_reason="aborted"), "gave the request up"),
        (TokenOutput(token_ids=[1], log_probs=[-1.0], stop_reason="abort"), "gave the request up"),
        (RuntimeError("out of memory"), "RuntimeError: out of memory"),
    ],
)
async def test_an_engine_that_gives_no_whole_answer_ends_the_episode(
    output: TokenOutput | Exception, cause: str
) -> None:
    with pytest.raises(EpisodeFailure, match=cause) as caught:
        await generate(output)
    assert caught.value.outcome is Outcome.provider


async def test_a_turn_is_over_if_it_ends_so_or_had_room_left() -> None:
    end = agent_loops.TOKENIZER.eos_token_id
    for tokens, room, over in (([5, end], 2, True), ([5, 6], 2, False), ([5, 6], 3, True)):
        output = TokenOutput(token_ids=tokens, log_probs=[-1.0] * len(tokens))
        sampled = await generate(output, max_tokens=room)
        assert (sampled.tokens, sampled.ended) == (tokens, over)


async def test_the_engine_is_asked_for_logprobs_and_with_the_sampling_that_was_wanted() -> None:
    language_model = model(agent_loops.TOKENIZER, TokenOutput(token_ids=[5], log_probs=[-1.0]))
    await language_model.generate("one", [1], SamplingParams(0.3, 0.9, 20), 8)
    assert language_model._server_manager.params == {
        "temperature": 0.3,
        "top_p": 0.9,
        "top_k": 20,
        **{"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
        "logprobs": True,
        "max_tokens": 8,
    }


async def test_pictures_reach_the_engine_with_the_processors_options() -> None:
    engine = Engine(TokenOutput(token_ids=[1], log_probs=[-1.0]))
    images = image_tokens(vision.processor(), "vllm", '{"max_pixels": 50176}')
    language_model = VerlModel(engine, agent_loops.TOKENIZER, "hermes", {}, images=images)
    await language_model.generate("r", [1], SAMPLING, 8, [vision.image(0, color="blue")])
    assert engine.pictures["mm_processor_kwargs"] == {"max_pixels": 50176}
    (picture,) = engine.pictures["image_data"]
    assert (picture.size, picture.getpixel((0, 0))) == ((100, 60), (0, 0, 255))
    await language_model.generate("r", [1], SAMPLING, 8)
    assert engine.pictures == {}
    language_model = VerlModel(engine, agent_loops.TOKENIZER, "hermes", {})
    await language_model.generate("r", [1], SAMPLING, 8, [vision.image(0, color="blue")])
    assert engine.pictures == {}, "a model of texts gets none"


@pytest.mark.parametrize(
    ("fields", "versions"),
    [
        ({"min_global_steps": 0, "max_global_steps": 4}, WeightVersions(0, 4)),
        ({"min_global_steps": 5, "max_global_steps": 5, "parts": [(0, 3), (2, 5)]}, WeightVersions(3, 5)),
        ({"parts": [(0, 3)]}, WeightVersions(3, 3)),
        ({"min_global_steps": 3}, None),
        ({"max_global_steps": 3}, None),
    ],
)
async def test_seed_likely_tokens_and_versions_are_passed_on(
    fields: dict[str, Any], versions: WeightVersions | None
) -> None:
    likely = [[(5, -1.0), (6, -2.0)]]
    engine = Engine(
        TokenOutput(token_ids=[5], log_probs=[-1.0], extra_fields={**fields, "top_logprobs": likely})
    )
    language_model = VerlModel(engine, agent_loops.TOKENIZER, "auto", {}, max_top_logprobs=5)
    sampling = SamplingParams(1.0, 1.0, -1, top_logprobs=2, seed=0)
    sampled = await language_model.generate("one", [1], sampling, 8)
    parts = ((0, 3), (2, 5)) if versions == (3, 5) else ()
    assert sampled == SampledTokens([5], [-1.0], True, versions, likely, parts)
    assert (engine.params["seed"], engine.params["top_logprobs"]) == (0, 2)
    another = VerlModel(engine, agent_loops.TOKENIZER, "auto", {}, seed_parameter="sampling_seed")
    await another.generate("two", [1], sampling, 8)
    assert engine.params["sampling_seed"] == 0 and "seed" not in engine.params
    assert (language_model.max_top_logprobs, model(agent_loops.TOKENIZER).max_top_logprobs) == (5, 0)


async def test_a_turn_ends_at_tokens_of_the_format_and_of_the_model_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stopping = replace(FORMATS["hermes"], stops=("</tool_call>", "not a token"))
    monkeypatch.setattr(module, "_call_format", lambda *arguments: stopping)
    stop = agent_loops.TOKENIZER.get_vocab()["</tool_call>"]
    for last, ended in ((stop, True), (6, True), (7, False)):
        engine = Engine(TokenOutput(token_ids=[5, last], log_probs=[-1.0, -1.0]))
        language_model = VerlModel(engine, agent_loops.TOKENIZER, "auto", {}, end_tokens=(6,))
        assert (await language_model.generate("one", [1], SAMPLING, 2)).ended is ended
        assert engine.params["stop_token_ids"] == [stop]


async def test_only_long_turns_are_parsed_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def read_turn(*arguments: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return ParsedTurn("42")

    monkeypatch.setattr(module, "read_turn", read_turn)
    monkeypatch.setattr(module, "_MAX_INLINE_TOKENS", 2)
    for count in (2, 3):
        assert (await model(agent_loops.TOKENIZER).parse([5] * count, [], [1])).content == "42"
    assert threads == [True, False]


def test_a_text_of_tokens_has_no_special_ones(tokenizer: Any) -> None:
    tokens = tokenizer.encode(f"<|im_start|>It is <think> 42.{END}", add_special_tokens=False)
    assert model(tokenizer).text(tokens) == "It is <think> 42."
