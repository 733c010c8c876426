"""The model under training in an episode: VeRL's engine, VeRL's parser of tool calls, and the chat template."""

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from verl.experimental.agent_loop.tool_parser import ToolParser

from aworld_train.rollout.messages import ToolCall
from aworld_train.rollout.model import (
    THINKING_ENDS,
    ParsedTurn,
    SampledTokens,
    SamplingParams,
    cut_at_stop,
    split_thinking,
)
from aworld_train.rollout.outcome import EpisodeFailure
from aworld_train.rollout.template import ChatTemplate
from aworld_train.rollout.template_proof import prove


class VerlModel:
    """Implements ``LanguageModel`` for one episode.

    Args:
        server_manager: VeRL's server manager, which samples tokens after a prompt of tokens.
        tokenizer: The model's tokenizer.
        parser: Name of VeRL's parser for the model's format of tool calls.
        template_options: Further arguments of the chat template.
        end_tokens: Tokens that end a turn, in addition to those of tokenizer and parser.
    """

    def __init__(
        self,
        server_manager: Any,
        tokenizer: Any,
        parser: str,
        template_options: Mapping[str, Any],
        end_tokens: Sequence[int] = (),
    ):
        self._server_manager = server_manager
        self._tokenizer = tokenizer
        self._parser = _parser(parser, tokenizer)
        stops = list(self._parser.stop_token_ids)
        self._extra = {"stop_token_ids": stops} if stops else {}
        ends = {tokenizer.eos_token_id, *stops, *end_tokens} - {None}
        self.template = _template(tokenizer, tuple(sorted(ends)), json.dumps(dict(template_options)))
        self.first_steps: int | None = None
        self.last_steps: int | None = None

    async def generate(
        self, request_id: str, tokens: list[int], sampling: SamplingParams, max_tokens: int
    ) -> SampledTokens:
        """Sample tokens with their log-probabilities; raises EpisodeFailure if the engine fails or gives up."""
        params = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "repetition_penalty": 1.0,
            "logprobs": True,
            "max_tokens": max_tokens,
            **self._extra,
        }
        try:
            output = await self._server_manager.generate(
                request_id=request_id, prompt_ids=tokens, sampling_params=params
            )
        except Exception as error:
            raise EpisodeFailure(f"the engine failed: {type(error).__name__}: {error}") from error
        steps = output.extra_fields.get("global_steps")
        self.first_steps = steps if self.first_steps is None else self.first_steps
        self.last_steps = steps
        if output.stop_reason in ("aborted", "abort") or not output.token_ids:
            raise EpisodeFailure("the engine gave the request up")
        sampled = list(output.token_ids)
        if output.log_probs is None or len(output.log_probs) != len(sampled):
            raise EpisodeFailure("the engine did not return one log-probability per token")
        ended = sampled[-1] in self.template.ends or len(sampled) < max_tokens
        return SampledTokens(sampled, list(output.log_probs), ended)

    async def parse(self, tokens: Sequence[int], tools: Sequence[Any]) -> ParsedTurn:
        """Split a turn into reasoning, text and tool calls; it is malformed if a call that began cannot be read."""
        reasoning, before, turn = self._split(list(tokens))
        call_start = getattr(self._parser, "tool_call_start_token", None)
        text = self._tokenizer.decode(turn) if call_start is not None else ""
        if call_start is not None and call_start not in text:
            # VeRL's parsers with such a token return the same, after decoding the tokens again in a thread.
            content, parsed_calls = text, []
        else:
            content, parsed_calls = await self._parser.extract_tool_calls(turn)
        calls = [ToolCall(call.name, call.arguments) for call in parsed_calls]
        started_calls = text.count(call_start) if call_start is not None else len(calls)
        for special in _special_texts(self._tokenizer):
            content = content.replace(special, "")
        return ParsedTurn((before + content).strip(), reasoning, calls, malformed=started_calls != len(calls))

    def text(self, tokens: Sequence[int]) -> str:
        """The tokens as text, without special tokens."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def _split(self, tokens: list[int]) -> tuple[str, str, list[int]]:
        """The reasoning, the text after it in its last token, and the tokens after that.

        The parser receives only the tokens after the reasoning, because a call inside the reasoning is not a call.
        """
        ends = _thinking_token(self._tokenizer)
        if ends is not None and ends in tokens:
            at = tokens.index(ends)
            return split_thinking(self.text(tokens[:at]) + THINKING_ENDS)[0], "", tokens[at + 1 :]
        text = self.text(tokens)
        if THINKING_ENDS not in text:
            reasoning, rest = split_thinking(text)
            return reasoning, "", tokens if rest else []
        end = cut_at_stop(tokens, (THINKING_ENDS,), self.text)
        return *split_thinking(self.text(tokens[:end])), tokens[end:]


@lru_cache(maxsize=8)
def _parser(name: str, tokenizer: Any) -> Any:
    return ToolParser.get_tool_parser(name, tokenizer)


@lru_cache(maxsize=8)
def _template(tokenizer: Any, ends: tuple[int, ...], options: str) -> ChatTemplate:
    """The template that all episodes of a process share, because it caches facts about itself; it is proved."""
    template = ChatTemplate(tokenizer, ends, json.loads(options))
    prove(template)
    return template


@lru_cache(maxsize=8)
def _special_texts(tokenizer: Any) -> tuple[str, ...]:
    """All special tokens: those with a role (``all_special_tokens``), and those that were only added as special."""
    added = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
    return tuple(dict.fromkeys([*tokenizer.all_special_tokens, *added]))


@lru_cache(maxsize=8)
def _thinking_token(tokenizer: Any) -> int | None:
    """The token that ends thinking; None if the tokenizer has no such token."""
    token = tokenizer.get_vocab().get(THINKING_ENDS)
    return int(token) if token is not None else None
