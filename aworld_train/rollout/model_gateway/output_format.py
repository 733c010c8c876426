"""The form that a request wants of the answer: ``response_format``, ``text.format`` or ``output_format``."""

import json
from typing import Any

from aworld_train.rollout.model_gateway import fields
from aworld_train.rollout.response_constraints import OutputFormat, RequestRules, schema_fault

_NOT_ENFORCED = (
    "a grammar would change how tokens are sampled, which the trainer learns from; with `agent.requests: relaxed` the "
    "form is written into the prompt instead"
)


def wanted(form: Any, where: str, rules: RequestRules) -> OutputFormat | None:
    """The form of an answer that the parameter ``where`` asks for, in the format of any dialect; None for any text."""
    if form is None or fields.as_object(form, where).get("type") == "text":
        return None
    kind = fields.as_text(form.get("type"), f"{where}.type")
    if kind not in ("json_object", "json_schema"):
        raise fields.unsupported(f"{where}.type", "only text, json_object and json_schema are possible")
    if rules.strict:
        raise fields.unsupported(where, _NOT_ENFORCED)
    if kind == "json_object":
        return OutputFormat()
    if "json_schema" in form:  # OpenAI's chat completions have it one level deeper
        where = f"{where}.json_schema"
        form = fields.as_object(form["json_schema"], where)
    schema = json.dumps(fields.as_object(form.get("schema"), f"{where}.schema"), ensure_ascii=False)
    if fault := schema_fault(schema):
        raise fields.invalid(f"{where}.schema", f"is not a JSON schema: {fault}")
    return OutputFormat(schema)
