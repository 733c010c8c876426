"""GET /v1/models: the model of a rollout, in a form that the clients of OpenAI and Anthropic both read."""

from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway.fields import Json

_EPOCH = "1970-01-01T00:00:00Z"


def listing(model: str) -> Json:
    return {"object": "list", "data": [_entry(model)], "has_more": False, "first_id": model, "last_id": model}


def entry(name: str, model: str) -> Json:
    if name != model:
        raise RequestRefused(f"unknown model {name!r}, only {model!r}", status=404, code="model_not_found")
    return _entry(model)


def _entry(model: str) -> Json:
    return {
        "id": model,
        "object": "model",
        "created": 0,
        "owned_by": "aworld-train",
        "type": "model",
        "display_name": model,
        "created_at": _EPOCH,
    }
