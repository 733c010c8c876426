"""Images in episodes, with the templates and the processor of the Qwen-VL family, and VeRL's own code for rows."""

from types import SimpleNamespace
from typing import Any

import pytest

from aworld_train.adapter.episodes.player import FinishedEpisode
from aworld_train.adapter.verl.images import image_tokens
from aworld_train.episode.message import Message
from aworld_train.episode.outcome import Outcome, Treatment
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.episode_result import EpisodeResult
from aworld_train.rollout.images import NoImages
from aworld_train.rollout.tool_record import ToolCounts
from tests.published_templates import Played, Scenario, Step, Tokenizer, played, templates
from tests.vision import VISION_TEMPLATES, image, processor

LOOK: Any = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Takes a picture.",
        "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
    },
}
CALL = ToolCall("look", '{"where": "up"}', "abcdef001")
SPELLED = "it says <|vision_start|><|image_pad|><|video_pad|><|vision_end|> here"
"""A text with the letters of tokens that stand for an image and a video."""


class OtherProcessor:
    """A processor of another family."""

    image_token = "<image>"
    image_processor = object()


def scenario(*, texts: str = "") -> Scenario:
    asked = Message("user", f"What is  in it{texts}?", images=(image(8),))
    picture = Message(
        "tool", f"taken{texts}", call_id=CALL.call_id, name="look", images=(image(5, 300, 200, "blue"),)
    )
    compare = Message("user", f"and{texts} now", images=(image(0, color="green"), image(3, 64, 64)))
    return Scenario(
        (Message("system", f"Be brief{texts}."), asked),
        [LOOK],
        [Step(Message("assistant", "", (CALL,)), [picture]), Step(Message("assistant", "Sky."), [compare])],
    )


def play(name: str, conversation: Scenario) -> Played:
    return played(Tokenizer(name, templates("trl")[name]), conversation, processor())


@pytest.mark.parametrize("name", VISION_TEMPLATES)
def test_prompts_with_images_are_those_of_the_processor(name: str) -> None:
    results, episode, engine = play(name, scenario())
    assert results[0] == "equal" and set(results) <= {"equal", "earlier"}
    ((_, row),) = episode.rows()
    tokens = row.prompt + row.response
    pictures = [each.picture for each in row.images]
    assert [picture.size for picture in pictures] == [(100, 60), (300, 200), (100, 60), (64, 64)]
    assert engine.images[-1] == [each.digest for each in row.images]
    patches = sum(int(grid.prod()) for grid in processor().image_processor(pictures)["image_grid_thw"])
    assert tokens.count(processor().image_token_id) == patches // 4


@pytest.mark.parametrize("name", VISION_TEMPLATES)
def test_text_that_spells_an_image_is_text(name: str) -> None:
    _, plain, _ = play(name, scenario())
    _, spelled, engine = play(name, scenario(texts=SPELLED))
    special = (processor().image_token_id, processor().video_token_id)
    counts = []
    for episode in (plain, spelled):
        ((_, row),) = episode.rows()
        counts.append([(row.prompt + row.response).count(token) for token in special])
    assert counts[0] == counts[1] and counts[0][1] == 0
    assert engine.template.text(engine.prompts[-1]).count("<|video_pad|>") == 4


@pytest.mark.parametrize("texts", ["", SPELLED])
def test_verl_takes_the_rows_as_its_own(texts: str) -> None:
    """Its inputs of the model have the features and the positions of each image token."""
    import torch
    from verl.experimental.agent_loop.agent_loop import AgentLoopWorker

    from aworld_train.adapter.verl.agent_loop import output_rows

    _, episode, _ = play("qwen2_5_vl", scenario(texts=texts))
    result = EpisodeResult(episode, ToolCounts(), Outcome.answered)
    (row,) = output_rows(FinishedEpisode(result, episode.rows(), Treatment.trained, ""))
    worker: Any = SimpleNamespace(
        processor=processor(), tokenizer=processor().tokenizer, _get_mm_processor_kwargs=lambda audio: {}
    )
    tokens = torch.tensor(row.prompt_ids + row.response_ids)
    inputs = AgentLoopWorker._compute_multi_modal_inputs(worker, row, tokens)
    image_count = int((tokens == processor().image_token_id).sum())
    assert len(inputs["image_grid_thw"]) == 4
    assert len(inputs["pixel_values"]) == 4 * image_count
    inputs["mm_token_type_ids"] = torch.zeros(1)  # as the processors of other members of the family return it
    positions = AgentLoopWorker._compute_position_ids(
        worker, tokens[None], torch.ones_like(tokens)[None], inputs
    )
    assert positions.shape == (1, 4, len(tokens))
    assert positions[0, 0].tolist() == list(range(len(tokens)))
    assert int(positions[0, 1].max()) < len(tokens) - image_count // 2


def test_models_and_engines_without_images_say_why() -> None:
    reasons = [
        image_tokens(None, "vllm"),
        image_tokens(processor(), "transformers"),
        image_tokens(processor(), None),
        image_tokens(OtherProcessor(), "vllm"),
    ]
    assert all(isinstance(each, NoImages) for each in reasons)
    texts = [each.reason for each in reasons if isinstance(each, NoImages)]
    assert texts[0] == "the model takes text only"
    assert "rollout.engine=transformers" in texts[1] and "served" in texts[2] and "Qwen-VL" in texts[3]
