"""The rollout and the agent of a request are those of its path, or else of its credentials."""

import pytest

from aworld_train.rollout.model_gateway.address import Target, api_key, path, read


@pytest.mark.parametrize(
    ("raw_path", "headers", "target"),
    [
        ("/rollouts/k/v1/models/a/b", {}, Target((("k", "agent"),), "models/a/b")),
        ("/rollouts/k//agents/x%2Fy/v1/messages", {}, Target((("k", "x/y"),), "messages")),
        ("/rollouts/k/agents/~../v1/messages", {"x-api-key": "j"}, Target((("k", ".."),), "messages")),
        ("/rollouts/k/agents/~~/v1", {}, Target((("k", "~"),), "")),
        ("/rollouts/k/agents", {}, Target((("k", "agent"),), "")),
        ("/rollouts/k/v2/messages", {}, Target((("k", "agent"),), "")),
        ("/rollouts", {"x-api-key": "j"}, Target((("j", "agent"),), "")),
        ("/v1/responses", {}, Target((), "responses")),
        ("/v1/responses", {"Authorization": "Basic k", "x-api-key": ""}, Target((), "responses")),
        ("/v1/responses", {"Authorization": "Bearer .x", "x-api-key": "."}, Target((), "responses")),
        (
            "/v1/responses",
            {"Authorization": "bearer  k.a.b ", "x-api-key": "j"},
            Target((("k", "a.b"), ("j", "agent")), "responses"),
        ),
        ("/v1/responses", {"x-api-key": "j."}, Target((("j", ""),), "responses")),
    ],
)
def test_a_request_is_for_whom_its_path_or_else_its_credentials_name(
    raw_path: str, headers: dict[str, str], target: Target
) -> None:
    assert read(raw_path, headers) == target


@pytest.mark.parametrize("agent", [None, "", ".", "..", "~", "~x", "a/b.c%", "é"])
def test_what_is_written_for_an_agent_is_read_as_it(agent: str | None) -> None:
    callers = (("k", "agent" if agent is None else agent),)
    assert read(f"{path('k', agent)}/v1/x", {}) == Target(callers, "x")
    assert read("/v1/x", {"x-api-key": api_key("k", agent)}) == Target(callers, "x")
