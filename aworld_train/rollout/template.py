"""From messages to token ids through a model's chat template, each message once.

The text that a template writes between the model's last token and its next turn is what follows a marker in place of
the last turn's text. Most templates write the same text after a short stand-in conversation, which costs less: once per
conversation and roles of the new messages, both are rendered and compared. If a template does not allow this,
``CannotContinue`` is raised and the caller renders the whole conversation as a new one.

A text that spells a special token is text: a mark is put into it before it is rendered, and it is cut there before it
becomes tokens, because tokenizers find a special token only in its whole text.
"""

import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from os.path import commonprefix
from typing import Any

from msgspec.structs import replace

from aworld_train.episode.images import Image
from aworld_train.episode.message import Message
from aworld_train.rollout import template_cache
from aworld_train.rollout.images import NO_IMAGES, ImageTokens, NoImages
from aworld_train.rollout.tokens import encoder, special_tokens

Tools = Sequence[Mapping[str, Any]]

_MARKER = "a1w2o3r4l5d6"
_OTHER_MARKER = "b6t5r4a3i2n1"
_CUT = "c7i6m5a4g3e2"  # after the first letter of a text in a message that spells a token of the template's
_STAND_IN = Message("user", "hello")
_STAND_IN_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {"name": "tool", "description": "", "parameters": {"type": "object", "properties": {}}},
}
_FEW_TOOLS: Sequence[Tools] = ((), (_STAND_IN_TOOL,))
_MAX_FRAMES = 256
_MAX_WAYS = 4096
_MAX_OVERLAP = 16  # tokens


class CannotContinue(Exception):
    """This template cannot put these messages after a finished turn."""


class TemplateFailure(Exception):
    """The chat template refuses these messages; the text has its error, alone in ``reason``."""

    def __init__(self, reason: str):
        super().__init__(f"the model's chat template refuses the messages: {reason}")
        self.reason = reason


@dataclass(frozen=True)
class Addition:
    """The text between an assistant's turn and its next one.

    ``closing`` is the end of the turn, which the model writes itself unless it is cut off; empty if there is none.
    """

    closing: str
    text: str


@dataclass(frozen=True)
class _Way:
    """The shortest conversation after which the template writes what it writes after the real one.

    ``tools`` are the stand-in's; None for the real ones after the real first messages, or after the ``whole``.
    """

    closing: str
    tools: Tools | None
    whole: bool = False


class ChatTemplate:
    """A tokenizer's chat template; ``ends`` are the tokens that end a turn, ``eos_token_id`` among them."""

    def __init__(
        self,
        tokenizer: Any,
        ends: Sequence[int],
        options: Mapping[str, Any] | None = None,
        images: ImageTokens | NoImages = NO_IMAGES,
    ):
        self._tokenizer = tokenizer
        self._tokens_of = encoder(tokenizer)
        self.options = dict(options or {})
        self.no_images = images.reason if isinstance(images, NoImages) else ""
        self._images = None if isinstance(images, NoImages) else images
        end_texts = [tokenizer.decode([token]) for token in ends]
        self._image_tokens = _pattern(images.reserved)
        self._control_tokens = self._image_tokens
        self._any_end = re.compile("|".join(re.escape(text) for text in end_texts if text) or "(?!)")
        self.ends = frozenset(ends)
        self.rendered_tokens = 0  # the tokens of all calls together
        self._after_finished = lru_cache(maxsize=256)(self._find_after_finished)
        self._frames: dict[Hashable, template_cache.Frame | None] = {}
        self._ways: dict[Hashable, _Way] = {}
        self._usual_ways: dict[Hashable, _Way] = {}  # of the conversations before
        self.anew: dict[str, str] = {}  # why nothing is continued with messages of a role
        self._control_tokens = _pattern([*images.reserved, *end_texts, *self._control_token_texts()])

    def initial(self, messages: Sequence[Message], tools: Tools) -> list[int]:
        """Token ids of a conversation, up to the beginning of the assistant's turn; raises ``TemplateFailure``."""
        images = _images_in(messages)
        if images and self._images is None:
            raise TemplateFailure(f"there is an image in them, and {self.no_images}")
        return self._encode(self._render(messages, tools, begin_turn=True), images)

    def turn(self, history: Sequence[Message], message: Message, tools: Tools) -> list[int]:
        """Token ids of an assistant's turn as a model writes it after ``history``, with the token that ends it.

        Raises ``CannotContinue`` where the template writes the conversation before the turn differently with it.
        """
        prompt = self._render(history, tools, begin_turn=True)
        whole = self._render([*history, message], tools, begin_turn=False)
        end = self._any_end.search(whole, len(prompt))
        if not whole.startswith(prompt) or end is None:
            raise CannotContinue("the template does not write a turn after its prompt, with an end")
        return self._encode_new(whole[len(prompt) : end.end()], ())

    def plain(self, text: str) -> list[int]:
        """Token ids of a text that a program has put together itself, in which special tokens are tokens."""
        if self._image_tokens.search(text):
            return [*self._tokenizer.encode(""), *self._text_tokens(_marked_text(text, self._image_tokens))]
        return list(self._tokenizer.encode(text))

    def continuation(
        self,
        history: Sequence[Message],
        new: Sequence[Message],
        tools: Tools,
        sampled: Sequence[int],
        ended: bool,
        tools_key: Hashable,
    ) -> list[int]:
        """Token ids that put ``new`` after a sampled turn, the last of ``history``, and let the assistant begin again.

        Raises ``CannotContinue`` where the whole conversation has to be rendered instead.
        """
        if not new:
            raise CannotContinue("no message follows the turn")
        if new[0].role in self.anew:
            raise CannotContinue(self.anew[new[0].role])
        addition = self._addition(history, new, tools, tools_key)
        images = _images_in(new)
        if addition.closing and not ended:
            tokens = self._encode_new(addition.closing + addition.text, images)
            return tokens[_overlap(sampled, tokens) :]
        text = addition.text
        if not addition.closing:
            # In some families a turn ends with the token that begins the next one.
            last = self.text(sampled[-1:])
            begun = last and sampled[-1] in self.ends and text.lstrip().startswith(last)
            text = text.lstrip()[len(last) :] if begun else text
        if not text and not addition.closing:
            raise CannotContinue("the template adds nothing")
        return self._encode_new(text, images)

    def text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(tokens)))

    def _addition(
        self, history: Sequence[Message], new: Sequence[Message], tools: Tools, tools_key: Hashable
    ) -> Addition:
        """The text of ``new`` after ``history``, from the shortest conversation that gives it."""
        turn = history[-1]
        roles = tuple([message.role for message in new])
        # A generation prompt may depend on what the system or a user wrote, such as "/no_think".
        texts = tuple([message.content for message in history if message.role in ("system", "user")])
        kind = (roles, bool(turn.tool_calls), tools_key)
        key = hash((kind, texts))
        way = self._ways.get(key)
        if way is None:
            way, addition = self._find_way(history, new, tools, self._usual_ways.get(kind))
            if len(self._ways) >= _MAX_WAYS:
                self._ways.clear()
                self._usual_ways.clear()
            self._ways[key] = self._usual_ways[kind] = way
            return addition
        if way.whole:
            return self._after(history[:-1], turn, new, tools)
        if way.tools is None:
            return self._after(_beginning(history), turn, new, tools)
        return Addition(way.closing, self._framed(turn, new, way.tools))

    def _find_way(
        self, history: Sequence[Message], new: Sequence[Message], tools: Tools, usual: _Way | None
    ) -> tuple[_Way, Addition]:
        """The shortest conversation that gives the same text as the whole, and the text."""
        turn = history[-1]
        if usual is not None and usual.tools is not None:
            text = self._framed(turn, new, usual.tools)
            if self._or_none(history[:-1], turn, new, tools) == Addition(usual.closing, text):
                return usual, Addition(usual.closing, text)
        try:
            whole = self._after(history[:-1], turn, new, tools, check=True)
        except CannotContinue:
            # Some templates refuse a history that the model and its agent nevertheless have.
            return _Way("", None), self._after(_beginning(history), turn, new, tools, check=True)
        longer = [*history[:-1], *_with_other_ids(turn, new)]
        if self._or_none(longer, turn, new, tools) == whole:  # else the text depends on the place
            for some_tools in _FEW_TOOLS:
                if self._or_none([_STAND_IN], turn, new, some_tools) == whole:
                    return _Way(whole.closing, some_tools), whole
            if self._or_none(_beginning(history), turn, new, tools) == whole:
                return _Way(whole.closing, None), whole
        return _Way(whole.closing, None, whole=True), whole

    def _or_none(
        self, before: Sequence[Message], turn: Message, new: Sequence[Message], tools: Tools
    ) -> Addition | None:
        try:
            return self._after(before, turn, new, tools)
        except CannotContinue:
            return None

    def _framed(self, turn: Message, new: Sequence[Message], tools: Tools) -> str:
        """The text of ``new`` after a stand-in conversation, with a frame where there is one."""
        spells_token = any(self._control_tokens.search(message.content) for message in new)
        shape = None if spells_token else template_cache.shape(new)
        source = getattr(self._tokenizer, "chat_template", None)
        if shape is None or not source:
            return self._after([_STAND_IN], turn, new, tools).text
        key = (shape, tuple([call.name for call in turn.tool_calls]), bool(tools))
        if key not in self._frames and len(self._frames) < _MAX_FRAMES:
            self._frames[key] = template_cache.find(self._probe(turn, new, tools), new, source)
        frame = self._frames.get(key)
        return frame.render(new) if frame is not None else self._after([_STAND_IN], turn, new, tools).text

    def _probe(self, turn: Message, new: Sequence[Message], tools: Tools) -> template_cache.Render:
        places = {message.call_id: i for i, message in enumerate(new) if message.call_id}

        def render(other: Sequence[Message]) -> str | None:
            calls = [
                replace(call, call_id=other[places[call.call_id]].call_id) if call.call_id in places else call
                for call in turn.tool_calls
            ]
            addition = self._or_none([_STAND_IN], replace(turn, tool_calls=tuple(calls)), other, tools)
            return addition.text.replace(_CUT, "") if addition is not None else None

        return render

    def _after(
        self,
        before: Sequence[Message],
        turn: Message,
        new: Sequence[Message],
        tools: Tools,
        check: bool = False,
    ) -> Addition:
        """The text between ``turn`` and the assistant's next turn, with ``new`` in between.

        Raises ``CannotContinue``, with ``check`` also if the template writes new messages before the turn.
        """
        reason = ""
        for marked in _with_marker(turn):
            try:
                if check:
                    fewer_calls = len(marked.tool_calls) < len(turn.tool_calls)
                    self._check_places(before, marked, new, tools, all_shown=fewer_calls)
                return self._after_marked(before, marked, new, tools)
            except (CannotContinue, TemplateFailure) as error:
                reason = reason or str(error)
        raise CannotContinue(reason)

    def _after_marked(
        self, before: Sequence[Message], marked: Message, new: Sequence[Message], tools: Tools
    ) -> Addition:
        after = _parts(self._render([*before, marked, *new], tools, begin_turn=True))[1]
        finished = self._after_finished(_numbered(marked))
        both = commonprefix([finished, after])  # noqa: RUF071  of characters
        ends = [match.end() for match in self._any_end.finditer(both)]
        if ends and marked.tool_calls:
            return Addition(self._any_end.findall(both)[-1], after[ends[-1] :])
        if ends:
            return Addition(after[: ends[0]], after[ends[0] :])
        if last_end := self._any_end.search(finished):
            rest = after[min(len(both), last_end.start()) :]  # the two ends may begin with the same letters
            if end := self._other_end(rest, [*before, marked, *new], tools):
                return Addition(end, rest.removeprefix(end))
        if not marked.tool_calls:
            return Addition("", after)
        if both != finished:
            raise CannotContinue("the template writes a tool call differently once its result is there")
        return Addition("", after[len(finished) :])

    def _other_end(self, after: str, messages: Sequence[Message], tools: Tools) -> str:
        """The token at the beginning of ``after`` if it ends other messages too, and so the turn; else nothing.

        Some templates end their last turn with one token and earlier ones with another.
        """
        token = self.text(self._tokens_of(after)[:1])
        finished = self._render(messages, tools, begin_turn=False)
        return token if token and finished.rstrip().endswith(token) else ""

    def _check_places(
        self,
        before: Sequence[Message],
        marked: Message,
        new: Sequence[Message],
        tools: Tools,
        all_shown: bool,
    ) -> None:
        """Refuse a template that writes new messages before the turn, such as every system message at the front.

        With ``all_shown`` it also has to write all of them, because it might leave out results of unknown calls.
        """
        other = [replace(message, content=_OTHER_MARKER) for message in new]
        earlier, later = _parts(self._render([*before, marked, *other], tools, begin_turn=True))
        if _OTHER_MARKER in earlier:
            raise CannotContinue("the template writes new messages before the last turn")
        if all_shown and later.count(_OTHER_MARKER) < len(new):
            raise CannotContinue("the template does not write a result without its call")

    def _find_after_finished(self, marked: Message) -> str:
        messages = [_STAND_IN, marked]
        try:
            return _parts(self._render(messages, [_STAND_IN_TOOL], begin_turn=False))[1]
        except TemplateFailure:  # some templates refuse tools
            return _parts(self._render(messages, (), begin_turn=False))[1]

    def _render(self, messages: Sequence[Message], tools: Tools, begin_turn: bool) -> str:
        # Most templates read the arguments of calls as an object, some only as text.
        has_calls = any(message.tool_calls for message in messages)
        failure: Exception | None = None
        for text_arguments in (False, True) if has_calls else (False,):
            try:
                return str(
                    self._tokenizer.apply_chat_template(
                        self._marked([message.for_template(text_arguments) for message in messages]),
                        tools=self._marked(list(tools)) or None,
                        add_generation_prompt=begin_turn,
                        tokenize=False,
                        **self.options,
                    )
                )
            except Exception as error:
                # Templates are programs that come with models, and may raise anything.
                failure = failure or error
        raise TemplateFailure(f"{type(failure).__name__}: {failure}") from failure

    def _encode(self, text: str, images: Sequence[Image]) -> list[int]:
        """The tokens of a rendered text, those of images in place of their placeholders."""
        if self._images is None:
            tokens = self._text_tokens(text)
        else:
            first, *others = text.split(self._images.placeholder)
            if len(others) != len(images):
                raise TemplateFailure(f"it writes {len(others)} places for {len(images)} images")
            tokens = self._text_tokens(first)
            for image, following in zip(images, others, strict=True):
                try:
                    tokens += self._images.tokens(image)
                except ValueError as error:
                    raise TemplateFailure(f"the model's processor refuses an image: {error}") from error
                tokens += self._text_tokens(following)
        self.rendered_tokens += len(tokens)
        return tokens

    def _encode_new(self, text: str, images: Sequence[Image]) -> list[int]:
        try:
            return self._encode(text, images)
        except TemplateFailure as error:
            raise CannotContinue(error.reason) from error

    def _text_tokens(self, text: str) -> list[int]:
        return [token for piece in text.split(_CUT) for token in self._tokens_of(piece)]

    def _control_token_texts(self) -> Iterator[str]:
        """The special tokens, and those between messages: some models have these without the mark."""
        yield from special_tokens(self._tokenizer).values()
        try:
            frame = self._render([_STAND_IN, Message("assistant", _MARKER), _STAND_IN], (), begin_turn=False)
        except TemplateFailure:
            return
        for added_token in self._tokenizer.added_tokens_decoder.values():
            if str(added_token) in frame:
                yield str(added_token)

    def _marked(self, value: Any) -> Any:
        match value:
            case str():
                return _marked_text(value, self._control_tokens)
            case list():
                return [self._marked(item) for item in value]
            case dict():
                return {self._marked(key): self._marked(item) for key, item in value.items()}
        return value


def _pattern(token_texts: Iterable[str]) -> re.Pattern[str]:
    """What matches the first letter of each token's text, and of the mark itself.

    Tokens that differ in their digits alone are one alternative, because some models have thousands of those.
    """
    texts = {re.sub(r"\d+", r"\\d+", re.escape(text)) for text in token_texts if len(text) > 1}
    return re.compile(f"(?=(?:{'|'.join(sorted({*texts, _CUT}))})).", re.DOTALL)


def _marked_text(text: str, pattern: re.Pattern[str]) -> str:
    # A text that has no such token stays the same object, since it may record access (see ``template_cache``).
    return pattern.sub(rf"\g<0>{_CUT}", text) if pattern.search(text) else text


def _images_in(messages: Sequence[Message]) -> list[Image]:
    return [image for message in messages for image in message.images]


def with_recorded_ids(new: Sequence[Message], sent: Message, recorded: Message) -> Sequence[Message]:
    """Results with the identifiers of calls that the model was shown, where the program sent others back."""
    pairs = zip(sent.tool_calls, recorded.tool_calls, strict=True)
    ids = {call.call_id: own.call_id for call, own in pairs if call.call_id != own.call_id}
    return _with_ids(new, ids) if ids else new


def _with_ids(messages: Sequence[Message], ids: Mapping[str, str]) -> list[Message]:
    return [
        replace(message, call_id=ids[message.call_id]) if message.call_id in ids else message
        for message in messages
    ]


def _with_marker(turn: Message) -> Iterator[Message]:
    """The turn with the marker as its text or in its last call: a template shows at least one of them as it is."""
    if not turn.tool_calls:
        yield Message("assistant", _MARKER)
        return
    text = _STAND_IN.content if turn.content else ""
    *calls, last = [replace(call, arguments="{}") for call in turn.tool_calls]
    marked_call = replace(last, arguments=json.dumps({"value": _MARKER}))
    yield Message("assistant", text, (*calls, marked_call))
    yield Message("assistant", _MARKER, (*calls, last))
    if calls:  # some templates refuse parallel calls
        yield Message("assistant", text, (marked_call,))
    yield Message("assistant", _MARKER)


def _with_other_ids(turn: Message, new: Sequence[Message]) -> list[Message]:
    calls = _numbered(turn).tool_calls
    ids = {old.call_id: call.call_id for old, call in zip(turn.tool_calls, calls, strict=True)}
    return [replace(turn, tool_calls=calls), *_with_ids(new, ids)]


def _numbered(turn: Message) -> Message:
    """The turn with numbers for its calls: nine letters and digits, because some templates accept no others."""
    calls = [
        replace(call, call_id=f"b{i:08}") if call.call_id else call for i, call in enumerate(turn.tool_calls)
    ]
    return replace(turn, tool_calls=tuple(calls))


def _beginning(history: Sequence[Message]) -> Sequence[Message]:
    first = next(i for i, message in enumerate(history) if message.role == "assistant")
    return history[:first]


def _parts(text: str) -> tuple[str, str]:
    before, marker, after = text.partition(_MARKER)
    if not marker or _MARKER in after:
        raise CannotContinue("the template does not show an assistant's turn once, as it is")
    return before, after


def _overlap(sampled: Sequence[int], tokens: Sequence[int]) -> int:
    """How many of ``tokens`` the sampled turn already ends with."""
    longest = min(len(sampled), len(tokens), _MAX_OVERLAP)
    return next((n for n in range(longest, 0, -1) if list(sampled[-n:]) == list(tokens[:n])), 0)
