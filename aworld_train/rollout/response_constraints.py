"""What a client wants of an answer beyond sampling: its form, and which tools are called.

An inference server enforces this with a grammar, which changes the distribution that tokens are drawn from. The trainer
learns from that distribution, so the model stays free: a form is written into the prompt, and what the model does
against a wish is counted as a format miss.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from aworld_train.rollout.images import TEXT_ONLY

Miss = Literal["no_call", "other_tool", "several_calls", "schema"]
"""What the model did against a wish: it called no tool, one that was not to be called, or several; its answer does not
have the form that was wanted."""

_MAX_CHECKED_CHARS = 200_000
_AS_SCHEMA = (
    "Write your answer, unless you call a tool, as one JSON value of this JSON schema, and nothing else:"
)
_AS_OBJECT = "Write your answer, unless you call a tool, as one JSON object, and nothing else."


@dataclass(frozen=True)
class OutputFormat:
    """The form of an answer: a JSON object, or what a schema describes, as JSON text in the client's order."""

    schema: str = ""

    @property
    def prompt(self) -> str:
        return f"{_AS_SCHEMA}\n{self.schema}" if self.schema else _AS_OBJECT

    def fits(self, text: str) -> bool:
        """Whether an answer has this form; of the schema's keywords, those with patterns are not checked."""
        try:
            value = json.loads(text) if len(text) <= _MAX_CHECKED_CHARS else None
            if not self.schema:
                return isinstance(value, dict)
            return bool(_validator(self.schema).is_valid(value))
        except Exception:  # no JSON, thousands of brackets, or a reference in the schema that leads nowhere
            return False


@dataclass(frozen=True)
class ResponseConstraints:
    """What a client wants of one answer; no ``tools`` are all that are offered."""

    must_call: bool = False
    tools: tuple[str, ...] = ()
    one_call: bool = False
    output: OutputFormat | None = None

    @property
    def prompt(self) -> str:
        return self.output.prompt if self.output is not None else ""

    def misses(self, content: str, called: Sequence[str]) -> tuple[Miss, ...]:
        """What an answer does against these wishes; ``called`` are the names of the tools that it calls."""
        misses: list[Miss] = []
        if self.must_call and not called:
            misses.append("no_call")
        if self.tools and not set(called) <= set(self.tools):
            misses.append("other_tool")
        if self.one_call and len(called) > 1:
            misses.append("several_calls")
        if self.output is not None and not called and not self.output.fits(content):
            misses.append("schema")
        return tuple(misses)


NO_CONSTRAINTS = ResponseConstraints()


@dataclass(frozen=True)
class RequestRules:
    """How requests are taken that want what the trainer does not enforce: refused, or as wishes.

    A request may repeat the recipe's ``template_options``. ``no_images`` is why the model takes none; empty if it does.
    """

    strict: bool = False
    template_options: Mapping[str, Any] = field(default_factory=dict)
    max_top_logprobs: int = 0
    no_images: str = TEXT_ONLY
    max_text_bytes: int = 64 << 20


@lru_cache(maxsize=256)
def schema_fault(schema: str) -> str:
    """Why a text is not a JSON schema; empty if it is one."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(json.loads(schema))
    except SchemaError as error:
        return f"{error.json_path}: {error.message}"[:300]
    except RecursionError:
        return "it is nested too deeply"
    return ""


@lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    """A validator that fetches nothing and runs no regular expression, which could take for ever."""
    from jsonschema import Draft202012Validator, validators
    from referencing import Registry

    keywords = Draft202012Validator.VALIDATORS
    unchecked = dict.fromkeys(("pattern", "patternProperties"), lambda *_: None)
    others = {
        name: _unless_patterns(keywords[name]) for name in ("additionalProperties", "unevaluatedProperties")
    }
    kind = validators.extend(Draft202012Validator, {**unchecked, **others})
    return kind(json.loads(schema), registry=Registry())


def _unless_patterns(check: Callable[..., Any]) -> Callable[..., Any]:
    """A keyword's check that is left out where it would depend on patterns."""

    def checked(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        return None if "patternProperties" in schema else check(validator, value, instance, schema)

    return checked
