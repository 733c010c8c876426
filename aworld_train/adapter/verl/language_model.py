"""The model under training in an episode: VeRL's engine, the chat template, and the format of the model's turns."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from aworld_train.adapter.verl.log import error_line
from aworld_train.episode.images import Image
from aworld_train.rollout.formats import CallFormat, read_turn
from aworld_train.rollout.formats.choose import choose_for
from aworld_train.rollout.images import NO_IMAGES, ImageTokens, NoImages
from aworld_train.rollout.model import ParsedTurn, SampledTokens, SamplingParams, WeightVersions
from aworld_train.rollout.outcome import EpisodeFailure
from aworld_train.rollout.template import ChatTemplate
from aworld_train.rollout.template_proof import prove
from aworld_train.rollout.tokens import special_tokens
from aworld_train.thinking import opened_by

log = logging.getLogger(__name__)

_PROMPT_END_TOKENS = 32  # the end of a prompt in which a template opens a thought
UNCHANGED: Mapping[str, float] = {
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
"""With these the engine's distribution is the trainer's. They are named in each request, because a server takes what is
left out from its own settings or the model's ``generation_config.json``."""
_MAX_INLINE_TOKENS = 20_000  # longer turns are parsed outside the event loop


class VerlModel:
    """Implements ``LanguageModel`` for one episode with VeRL's server manager.

    ``end_tokens`` are added to those of tokenizer and parser. ``engine_stops`` says whether the engine ends generation
    at a text, with vLLM's parameters; ``seed_parameter`` is what it calls a request's seed. Raises ModelError if the
    parser does not fit the chat template.
    """

    def __init__(
        self,
        server_manager: Any,
        tokenizer: Any,
        parser: str,
        template_options: Mapping[str, Any],
        end_tokens: Sequence[int] = (),
        engine_stops: bool = False,
        seed_parameter: str = "seed",
        max_top_logprobs: int = 0,
        images: ImageTokens | NoImages = NO_IMAGES,
    ):
        self._server_manager = server_manager
        self._tokenizer = tokenizer
        written_options = json.dumps(dict(template_options))
        self._format = _call_format(parser, tokenizer, written_options)
        self._engine_stops = engine_stops
        self._seed_parameter = seed_parameter
        self.max_top_logprobs = max_top_logprobs
        self._images = images
        stops = _ids_of(tokenizer, self._format.stops)
        self._extra = {"stop_token_ids": stops} if stops else {}
        ends = {tokenizer.eos_token_id, *stops, *end_tokens} - {None}
        self.template = _template(tokenizer, tuple(sorted(ends)), written_options, images)

    async def generate(
        self,
        request_id: str,
        tokens: list[int],
        sampling: SamplingParams,
        max_tokens: int,
        images: Sequence[Image] = (),
    ) -> SampledTokens:
        """Sample tokens with their log-probabilities; raises EpisodeFailure if the engine fails or gives up."""
        params = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            **UNCHANGED,
            "logprobs": True,
            "max_tokens": max_tokens,
            **self._extra,
        }
        if sampling.stop and self._engine_stops:
            # The stop text's tokens are recorded like all others; where to cut is decided by the episode.
            params |= {"stop": list(sampling.stop), "include_stop_str_in_output": True}
        if sampling.seed is not None:
            params[self._seed_parameter] = sampling.seed
        if sampling.top_logprobs:
            params["top_logprobs"] = sampling.top_logprobs
        try:
            output = await self._server_manager.generate(
                request_id=request_id, prompt_ids=tokens, sampling_params=params, **self._pictures(images)
            )
        except EpisodeFailure:
            raise
        except Exception as error:
            raise EpisodeFailure(f"the engine failed: {error_line(error)}") from error
        if output.stop_reason in ("aborted", "abort") or not output.token_ids:
            raise EpisodeFailure("the engine gave the request up")
        sampled = list(output.token_ids)
        if output.log_probs is None or len(output.log_probs) != len(sampled):
            raise EpisodeFailure("the engine did not return one log-probability per token")
        ended = sampled[-1] in self.template.ends or len(sampled) < max_tokens
        likely = output.extra_fields.get("top_logprobs", ())
        parts = tuple((begin, version) for begin, version in output.extra_fields.get("parts", ()))
        versions = WeightVersions(parts[0][1], parts[-1][1]) if parts else _versions(output.extra_fields)
        return SampledTokens(
            sampled, list(output.log_probs), ended, versions, likely, parts if len(parts) > 1 else ()
        )

    def _pictures(self, images: Sequence[Image]) -> dict[str, Any]:
        if not images or isinstance(self._images, NoImages):
            return {}
        options = {"mm_processor_kwargs": dict(self._images.options)} if self._images.options else {}
        return {"image_data": [image.picture for image in images], **options}

    async def parse(
        self, tokens: Sequence[int], tools: Sequence[Mapping[str, Any]], prompt: Sequence[int]
    ) -> ParsedTurn:
        if len(tokens) > _MAX_INLINE_TOKENS:
            return await asyncio.to_thread(self._parse, tokens, tools, prompt)
        return self._parse(tokens, tools, prompt)

    def _parse(
        self, tokens: Sequence[int], tools: Sequence[Mapping[str, Any]], prompt: Sequence[int]
    ) -> ParsedTurn:
        opened = opened_by(self._decode(prompt[-_PROMPT_END_TOKENS:]))
        turn = read_turn(self._decode(tokens), self._format, tools, opened)
        specials = special_tokens(self._tokenizer)
        texts = [specials[token] for token in dict.fromkeys(tokens) if token in specials]
        content, reasoning = turn.content, turn.reasoning
        for text in texts:
            content, reasoning = content.replace(text, ""), reasoning.replace(text, "")
        return replace(turn, content=content.strip(), reasoning=reasoning.strip())

    def text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False))


def _versions(fields: Mapping[str, Any]) -> WeightVersions | None:
    first, last = fields.get("min_global_steps"), fields.get("max_global_steps")
    return None if first is None or last is None else WeightVersions(first, last)


@lru_cache(maxsize=8)
def _call_format(name: str, tokenizer: Any, options: str) -> CallFormat:
    choice = choose_for(name, tokenizer, json.loads(options))
    log.info("tool calls are read as %s: %s", choice.call_format.name, choice.reason)
    return choice.call_format


@lru_cache(maxsize=8)
def _template(
    tokenizer: Any, ends: tuple[int, ...], options: str, images: ImageTokens | NoImages
) -> ChatTemplate:
    """The template that all episodes of a process share, because it caches facts about itself; it is proved."""
    template = ChatTemplate(tokenizer, ends, json.loads(options), images)
    prove(template)
    return template


@lru_cache(maxsize=8)
def _ids_of(tokenizer: Any, texts: tuple[str, ...]) -> list[int]:
    vocabulary = tokenizer.get_vocab()
    return [vocabulary[text] for text in texts if text in vocabulary]
