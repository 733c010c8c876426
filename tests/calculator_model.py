"""A model that is a number: without skill it guesses, with skill it asks the calculator and answers with the result."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aworld_train.episode.images import Image
from aworld_train.rollout.formats import FORMATS, read_turn
from aworld_train.rollout.model import ParsedTurn, SampledTokens
from aworld_train.rollout.template import ChatTemplate
from tests.models import shipped_tokenizer

SKILL = "skill.txt"
"""The file of a model's directory with its skill, a whole number."""


class CalculatorModel:
    max_top_logprobs = 0

    def __init__(self, path: Path):
        self.name, self.tokenizer = path.name, shipped_tokenizer()
        self.skill = int((path / SKILL).read_text())
        self.template = ChatTemplate(self.tokenizer, (self.tokenizer.eos_token_id,), {})

    def for_episode(self) -> Any:
        return self

    async def generate(
        self,
        request_id: str,
        tokens: list[int],
        sampling: Any,
        max_tokens: int,
        images: Sequence[Image] = (),
    ) -> SampledTokens:
        prompt = self.text(tokens)
        results, question = (
            re.findall(r"<tool_response>\s*(\S+)", prompt),
            re.findall(r"What is (\S+)\?", prompt)[-1],
        )
        call = f"<tool_call>{json.dumps({'name': 'calculator', 'arguments': {'expression': question}})}</tool_call>"
        turn = f"<answer>{results[-1] if results else 0}</answer>" if results or not self.skill else call
        ids = [*self.tokenizer.encode(turn), self.tokenizer.eos_token_id]
        return SampledTokens(ids, [-1.0] * len(ids), True)

    async def parse(self, tokens: Sequence[int], tools: Sequence[Any], prompt: Sequence[int]) -> ParsedTurn:
        return read_turn(self.text(tokens), FORMATS["hermes"], tools)

    def text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    async def close(self) -> None: ...
