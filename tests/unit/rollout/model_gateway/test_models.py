"""The list of models is what OpenAI's and Anthropic's clients both read."""

import pytest

from aworld_train.rollout.messages import RequestRefused
from aworld_train.rollout.model_gateway.app import models

ENTRY = {
    **{"id": "m", "object": "model", "created": 0, "owned_by": "aworld-train"},
    **{"type": "model", "display_name": "m", "created_at": "1970-01-01T00:00:00Z"},
}


def test_the_one_model_is_listed_and_no_other_is_found() -> None:
    assert models("", "m") == {
        **{"object": "list", "data": [ENTRY], "has_more": False},
        **{"first_id": "m", "last_id": "m"},
    }
    assert models("m", "m") == ENTRY
    with pytest.raises(RequestRefused, match=r"^unknown model 'x', only 'm'$") as caught:
        models("x", "m")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")
