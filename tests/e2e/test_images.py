"""Images of tasks and of tools, trained on: a Qwen2.5-VL on CPU, sampled by the real vLLM."""

import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.store.content import EpisodeContent
from aworld_train.store.reading import Store
from aworld_train.training.recorded_run import open_run
from aworld_train.training.run_store import open_run_store
from tests import vision_model
from tests.aworld_environment import vllm_python_or_skip
from tests.e2e.conftest import REPOSITORY, Workspace
from tests.stored_runs import row_tokens
from tests.vision import data_url, png

pytestmark = [pytest.mark.e2e, pytest.mark.vllm, pytest.mark.slow, pytest.mark.timeout(1800)]

CAMERA = REPOSITORY / "tests" / "data" / "camera-environment"
NAME, STEPS, TASKS, N = "images", 3, 2, 4
COLORS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255))
QUESTION = "Which digit?"
PICTURES = 5
LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Take a picture.",
        "parameters": {"type": "object", "properties": {}, "required": []},
    },
}
TASK_TOKENS, TOOL_TOKENS = 15, 9
"""The tokens of the images of tasks, 140 x 84 pixels, and of the tool, 84 x 84: one for 28 x 28 pixels."""
MAX_PROBABILITY_DIFFERENCE = 5e-5  # as for text


@pytest.fixture(scope="module")
def run(workspace: Workspace) -> Path:
    """The folder of a finished run; before it, its dataset is built of content parts, and its model is made."""
    python, torchvision = vllm_python_or_skip(), vision_model.torchvision()
    pictures = [picture(number) for number in range(PICTURES)]
    lines = [record(number, data_url(file)) for number, file in enumerate(pictures)]
    (workspace.path / "pictures.jsonl").write_text("".join([*lines, record(0)]))
    out = ("--split", "train=1", "--file", "pictures.jsonl", "--out", "data/pictures")
    built = workspace.run("dataset", "build", "jsonl", *out)
    assert built.returncode == 0, built.stderr
    tasks = [Message("user", QUESTION, images=(Image.read(file, 0),)) for file in pictures[: len(COLORS)]]
    vision_model.make(workspace.path / "models" / "vision", tasks, LOOK, taken())
    overrides = [
        f"name={NAME}",
        "model.path=models/vision",
        f"env.docker_dir={CAMERA}",
        "dataset.train=data/pictures/train.parquet",
        "dataset.val=data/pictures/train.parquet",
        "dataset.val_limit=2",
        "dataset.max_prompt_tokens=160",
        "rollout.engine=vllm",
        "rollout.max_response_tokens=128",
        f"rollout.n={N}",
        "cluster.device=cpu",
        f"trainer.steps={STEPS}",
        f"trainer.batch_size={TASKS}",
        "trainer.microbatch_size=4",
        "trainer.lr=1e-3",
        f"trainer.save_every={STEPS}",
        f"trainer.val_every={STEPS}",
    ]
    command = ("train", "recipes/quickstart.yaml", *overrides, "--json")
    done = workspace.run(*command, seconds=1200, python=python, also=torchvision)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["status"], summary["steps_done"]) == ("completed", STEPS)
    return workspace.runs / NAME


def record(number: int, *uris: str) -> str:
    """A task as a line of JSON: its images and its question are parts of the user's message."""
    images = [{"type": "image_url", "image_url": {"url": uri}} for uri in uris]
    content = [*images, {"type": "text", "text": QUESTION}]
    answer = vision_model.digits_of(number % len(COLORS))[0]
    return json.dumps({"prompt": [{"role": "user", "content": content}], "answer": answer}) + "\n"


def picture(number: int) -> bytes:
    """The file of a picture with much of one colour and some noise, which the processor does not resize."""
    import numpy as np
    import PIL.Image

    noise = np.random.default_rng(number).integers(0, 256, (84, 140, 3))
    mixed = (0.75 * np.array(COLORS[number % len(COLORS)]) + 0.25 * noise).astype(np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(mixed).save(file, "PNG")
    return file.getvalue()


def taken() -> Message:
    """What the tool returns."""
    file = (CAMERA / "picture.png").read_bytes()
    return Message("tool", "taken", name="look", images=(Image.read(file, 0),))


def test_what_vllm_samples_after_images_is_what_is_trained_on(run: Path, workspace: Workspace) -> None:
    steps = workspace.metrics(NAME)
    assert [row["step"] for row in steps] == list(range(STEPS + 1))
    assert all(row["rollout_probs_diff_max"] < MAX_PROBABILITY_DIFFERENCE for row in steps[1:]), steps
    assert workspace.summary(NAME)["tool_calls"] > 0


def test_trained_rows_have_a_token_for_each_feature_of_their_images(run: Path, workspace: Workspace) -> None:
    shown: Counter[tuple[int, int]] = Counter()
    digests = set()
    with open_run_store(open_run(NAME, workspace.runs)) as store:
        for step in range(1, STEPS + 1):
            for content, number in trained_rows(store, step):
                of_task, of_tool = images_of(store, content, number)
                tokens = row_tokens(content, number)
                expected = TASK_TOKENS * len(of_task) + TOOL_TOKENS * len(of_tool)
                assert tokens.count(token_id(workspace, vision_model.IMAGE)) == expected
                digests |= {image.digest for image in of_task}
                shown[len(of_task), min(1, len(of_tool))] += 1
    assert digests == {Image.read(picture(number), 0).digest for number in range(PICTURES)}
    assert shown[1, 0] + shown[1, 1] == PICTURES * N and shown.total() == STEPS * TASKS * N
    assert shown[1, 1] > PICTURES * N // 2


def test_log_probabilities_are_those_of_the_model_with_these_images_and_no_others(
    run: Path, workspace: Workspace
) -> None:
    """By transformers' model alone, whose weights are those of the first step."""
    import torch
    from transformers import Qwen2_5_VLForConditionalGeneration

    folder = workspace.path / "models" / "vision"
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    same, other_task, other_tool = [], [], []
    blank, others = Image.read(png(84, 84, "black"), 0), [Image.read(picture(each), 0) for each in range(2)]
    with open_run_store(open_run(NAME, workspace.runs)) as store, torch.inference_mode():
        for content, number in trained_rows(store, 1):
            row = (model, content, number)
            of_task, of_tool = images_of(store, content, number)
            same.append(difference(*row, [*of_task, *of_tool]))
            if of_task:
                (other,) = [each for each in others if each != of_task[0]][:1]
                other_task.append(difference(*row, [other, *of_tool]))
            if of_tool:
                other_tool.append(difference(*row, [*of_task, *[blank] * len(of_tool)]))
    assert max(same) < MAX_PROBABILITY_DIFFERENCE, same
    assert min(other_task) > 10 * MAX_PROBABILITY_DIFFERENCE, other_task
    assert min(other_tool) > 10 * MAX_PROBABILITY_DIFFERENCE, other_tool


def test_the_weights_of_both_parts_have_changed(run: Path, workspace: Workspace) -> None:
    import torch
    from safetensors.torch import load_file

    (trained,) = (run / "checkpoints" / f"global_step_{STEPS}").glob("actor/huggingface/*.safetensors")
    after = load_file(trained)
    before = load_file(workspace.path / "models" / "vision" / "model.safetensors")
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {"visual" in name for name in changed} == {True, False}


def token_id(workspace: Workspace, text: str) -> int:
    tokenizer = json.loads((workspace.path / "models" / "vision" / "tokenizer.json").read_text())
    (number,) = [token["id"] for token in tokenizer["added_tokens"] if token["content"] == text]
    return int(number)


def trained_rows(store: Store, step: int) -> Iterator[tuple[EpisodeContent, int]]:
    """The episodes of the rows that a step was trained on, each with the row's number."""
    for place in range(TASKS * N):
        episode, number = store.trained_row(step, place)
        assert episode.content is not None
        yield episode.content, number


def images_of(store: Store, content: EpisodeContent, number: int) -> tuple[list[Image], list[Image]]:
    """The images in a row, of its task and of the tool, from the store."""
    agent = content.agents[content.rows[number].agent]
    found: dict[str, list[Image]] = {"user": [], "tool": []}
    for span in content.spans(number):
        for message in agent.nodes[span.node].messages:
            for image in message.images:
                file = store.blob(image.digest)
                assert file is not None
                found[message.role].append(Image.read(file, 0))
    return found["user"], found["tool"]


def difference(model: Any, content: EpisodeContent, number: int, images: Sequence[Image]) -> float:
    """By how much the probability of a sampled token of a row differs at most from the model's with these images."""
    import torch

    agent = content.agents[content.rows[number].agent]
    tokens = torch.tensor([row_tokens(content, number)])
    features = vision_model.pixels(images) if images else {}
    logprobs = vision_model.logprobs(model, {"input_ids": tokens, **features})[0]
    differences = []
    for span in content.spans(number):
        if span.own:
            sampled = tokens[0, span.begin : span.end]
            own = logprobs[span.begin - 1 : span.end - 1].gather(-1, sampled[:, None])[:, 0]
            engine = torch.tensor(agent.nodes[span.node].token_logprobs)
            differences.append(float((own.exp() - engine.exp()).abs().max()))
    return max(differences)
