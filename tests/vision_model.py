"""A Qwen2.5-VL as small as it can be, which takes a picture with its tool and then answers with a digit.

Its weights begin at random and are taught that in seconds, because a model that calls no tool gets no picture from one.
It keeps to the tiny model's tokenizer and chat template, to which the tokens of images are added.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.model.tiny import SHIPPED
from tests.package_members import pypi_members

IMAGE, VIDEO, START, END = "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"
PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "min_pixels": 3136,
    "max_pixels": 12845056,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
"""preprocessor_config.json of Qwen/Qwen2.5-VL-3B-Instruct."""
_TORCHVISION = (
    "torchvision",
    "torchvision-0.28.0-cp311-cp311-manylinux_2_28_x86_64.whl",
    "7e80f543b22503d9415e126db5f0ff3917036925e38560ee6b9ae38c571a4002",
    r"torchvision/.*(?<!_registrations)\.py|torchvision-[\d.]+\.dist-info/METADATA",
)
_STEPS = 150
_LR = 3e-3
_NEVER = 25.0  # the least negative log-probability of a token that is never sampled


def digits_of(task: int) -> tuple[str, str]:
    """The answers that the model gives to a task."""
    return str(2 * task), str(2 * task + 1)


def make(folder: Path, tasks: Sequence[Message], tool: dict[str, Any], result: Message) -> None:
    """Write the model into a folder.

    Args:
        folder: The folder.
        tasks: The user's messages that it is taught with, each with images.
        tool: The schema of its tool, called without arguments.
        result: The tool's result.
    """
    model, tokenizer = untaught()
    _teach(model, tokenizer, tasks, tool, result)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))


def untaught() -> tuple[Any, Any]:
    """The model with its first weights, and its tokenizer."""
    tokenizer = _tokenizer()
    return _model(tokenizer), tokenizer


def torchvision() -> Path:
    """A folder from which torchvision can be imported: what of it is Python, which is all that pictures need.

    transformers loads no processor of this family without it, and PyPI's has operators for CUDA alone. Two modules
    describe these operators and fail where there are none, so they are empty here.
    """
    folder = pypi_members(*_TORCHVISION)
    for name in ("_autograd_registrations", "_meta_registrations"):
        (folder / "torchvision" / f"{name}.py").touch()
    return folder


def inputs(tokenizer: Any, text: str, images: Sequence[Image]) -> dict[str, Any]:
    """What transformers' model takes of a rendered conversation and its images."""
    import torch

    features = pixels(images)
    pieces = text.split(IMAGE)
    tokens = tokenizer.encode(pieces[0], add_special_tokens=False)
    for grid, piece in zip(features["image_grid_thw"], pieces[1:], strict=True):
        tokens += [tokenizer.convert_tokens_to_ids(IMAGE)] * (int(grid.prod()) // 4)
        tokens += tokenizer.encode(piece, add_special_tokens=False)
    return {"input_ids": torch.tensor([tokens]), **features}


def pixels(images: Sequence[Image]) -> dict[str, Any]:
    """The features of images, by the processor without torchvision: the same numbers where nothing is resized."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    features = Qwen2VLImageProcessorPil(**PROCESSOR)([image.picture for image in images], return_tensors="pt")
    return dict(features)


def logprobs(model: Any, rows: dict[str, Any]) -> Any:
    """The log-probabilities of all tokens at each place, ``[rows, tokens, vocabulary]``."""
    types = (rows["input_ids"] == model.config.image_token_id).int()
    return model(**rows, mm_token_type_ids=types, use_cache=False).logits.float().log_softmax(-1)


def _tokenizer() -> Any:
    from tokenizers import AddedToken
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    tokenizer.add_tokens(
        [AddedToken(text, special=True, normalized=False) for text in (IMAGE, VIDEO, START, END)]
    )
    plain = "{{- part if part is string else part.text -}}"
    image = f"{{{{- '{START}{IMAGE}{END}' if part.type == 'image' else part if part is string else part.text -}}}}"
    assert plain in tokenizer.chat_template
    tokenizer.chat_template = tokenizer.chat_template.replace(plain, image)
    return tokenizer


def _model(tokenizer: Any) -> Any:
    import torch
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    names = {"image": IMAGE, "video": VIDEO, "vision_start": START, "vision_end": END}
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 2048,
        "initializer_range": 0.06,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6]},
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "tie_word_embeddings": True,
    }
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_heads": 4,
        "out_hidden_size": 64,
        "fullatt_block_indexes": [1],
        "initializer_range": 0.06,
    }
    tokens = {f"{name}_token_id": tokenizer.convert_tokens_to_ids(token) for name, token in names.items()}
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, tie_word_embeddings=True, **tokens)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Qwen2_5_VLForConditionalGeneration(config)


def _teach(
    model: Any, tokenizer: Any, tasks: Sequence[Message], tool: dict[str, Any], result: Message
) -> None:
    """Teach the model to call the tool, and then to answer with one of two digits, which depend on the task's image.

    VeRL's engine never samples the tokens that stand for images, and its trainer counts them among the others, so
    both differ by what these get.
    """
    import torch

    never = [model.config.image_token_id, model.config.video_token_id]
    examples = [
        _example(tokenizer, task, tool, result, digit)
        for number, task in enumerate(tasks)
        for digit in digits_of(number)
    ]
    rows = {name: torch.cat([row[name] for row, _ in examples]) for name in examples[0][0]}
    labels = torch.stack([labels for _, labels in examples])[:, 1:]
    written = labels >= 0
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LR)
    for _ in range(_STEPS):
        found = logprobs(model, rows)[:, :-1][written]
        right = found.gather(-1, labels[written][:, None])
        loss = (found[:, never] + _NEVER).relu().mean() - right.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def _example(tokenizer: Any, task: Message, tool: dict[str, Any], result: Message, digit: str) -> Any:
    """The inputs of a conversation, and its tokens where the model writes, elsewhere -100."""
    import torch

    call = Message("assistant", "", (ToolCall(tool["function"]["name"], "{}"),))
    answer = Message("assistant", f"<answer>{digit}</answer>")
    messages = [message.for_template() for message in (task, call, result, answer)]
    text = tokenizer.apply_chat_template(messages, tools=[tool], tokenize=False)
    row = inputs(tokenizer, text, [*task.images, *result.images])
    tokens = row["input_ids"][0].tolist()
    start, (end,) = (tokenizer.encode(text) for text in ("<|im_start|>assistant\n", "<|im_end|>"))
    labels, writes = [-100] * len(tokens), False
    for index, token in enumerate(tokens):
        if writes:
            labels[index] = token
        if token == end:
            writes = False
        elif tokens[index + 1 - len(start) : index + 1] == start:
            writes = True
    return row, torch.tensor(labels)
