"""What servers of all kinds send to a chat completion's request, and what is made of it, over a real socket.

Bodies are written after documentation and public reports of errors, none is a recording:
openai: platform.openai.com/docs/guides/error-codes, .../api-reference/chat; azure: learn.microsoft.com, Azure OpenAI
content filtering and quotas; anthropic: platform.claude.com/docs, OpenAI SDK compatibility and errors; gemini:
ai.google.dev/gemini-api/docs/openai and .../thought-signatures; mistral: docs.mistral.ai/api; deepseek:
api-docs.deepseek.com, error codes and thinking mode; openrouter: openrouter.ai/docs, errors; groq:
console.groq.com/docs/errors and tool use; zhipu: docs.bigmodel.cn; qwen: Model Studio's error codes; xai: docs.x.ai;
vllm, sglang, llama.cpp, ollama, tgi: excerpts of their servers' code and reports.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from aworld_train.episode.message import Message
from aworld_train.episode.tool_calls import ToolCall
from aworld_train.reward.judge.panel import Backoff, JudgePanel
from aworld_train.reward.judge.question import Question
from aworld_train.reward.settings import JudgeModel, JudgeSettings
from aworld_train.rollout.chat_client import EndpointAddress
from aworld_train.rollout.chat_completion import ChatAnswer
from aworld_train.rollout.chat_endpoint import ChatEndpoint, EpisodeEndpoint
from aworld_train.rollout.chat_model import ContextExceeded, FilterRefused
from aworld_train.rollout.endpoint import Endpoint, EndpointFailed
from aworld_train.rollout.model import SamplingParams
from aworld_train.rollout.outcome import EpisodeFailure
from tests.server_thread import ServerThread

SAMPLING = SamplingParams(0.0, 0.9, 20, ("END",), seed=3)
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
ASKED = [Message("user", "How many?")]
LATER = [*ASKED, Message("assistant", "a"), Message("user", "And now?")]
Json = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What a server sends once."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


def says(content: Any, finish: Any = "stop", /, **message: Any) -> Reply:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content, **message},
        "finish_reason": finish,
    }
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return Reply({"object": "chat.completion", "choices": [choice], "usage": usage})


def calls(arguments: Any, finish: str = "tool_calls", /, **call: Any) -> Reply:
    function = {"name": "add"} if arguments is ... else {"name": "add", "arguments": arguments}
    return says(None, finish, tool_calls=[{"id": "c1", "type": "function", "function": function, **call}])


def error(status: int, message: str, /, headers: dict[str, str] | None = None, **more: Any) -> Reply:
    return Reply({"error": {"message": message, **more}}, status, headers or {})


def answer(
    content: str = "42", finish: Any = "stop", reasoning: str = "", arguments: str | None = None
) -> ChatAnswer:
    found = () if arguments is None else (ToolCall("add", arguments, "c1"),)
    return ChatAnswer(content, reasoning, found, finish, 10, 5)


@dataclass(frozen=True)
class Ends:
    """The attempt ends with this exception, and the run too if ``run``."""

    how: type[Exception]
    match: str
    run: bool = False


@dataclass(frozen=True)
class Case:
    """A behaviour: the replies in order, and what comes of the request.

    Attributes:
        pauses: Shortest pauses between its requests.
        left_out: Parameters that are not in the last request.
        later: Whether it continues a conversation.
    """

    server: str
    what: str
    replies: tuple[Reply, ...]
    expected: ChatAnswer | Ends
    pauses: tuple[float, ...] = ()
    left_out: frozenset[str] = frozenset()
    later: bool = False

    @property
    def name(self) -> str:
        return f"{self.server}: {self.what}"


GOOD = says("42")


def whole(server: str, what: str, reply: Reply, expected: ChatAnswer) -> Case:
    return Case(server, what, (reply,), expected)


def learned(server: str, names: str, *refusals: Reply) -> Case:
    return Case(server, f"takes no {names}", (*refusals, GOOD), answer(), left_out=frozenset(names.split()))


def again(server: str, what: str, reply: Reply, pause: float = 0.25) -> Case:
    return Case(server, what, (reply, GOOD), answer(), (pause,))


def ends_run(server: str, what: str, reply: Reply, match: str) -> Case:
    return Case(server, what, (reply,), Ends(EpisodeFailure, match, run=True))


def filtered(server: str, what: str, reply: Reply) -> Case:
    return Case(server, what, (reply,), Ends(FilterRefused, "content filter"))


def too_long(server: str, reply: Reply) -> Case:
    return Case(server, "context exceeded", (reply,), Ends(ContextExceeded, "too long"), later=True)


def no_parameter(name: str, code: str = "unsupported_parameter") -> Reply:
    return error(
        400, f"Unsupported parameter: '{name}' is not supported with this model.", param=name, code=code
    )


CASES = [
    # OpenAI
    whole("openai", "tool call", calls('{"a": 1}'), answer("", "tool_calls", arguments='{"a": 1}')),
    whole("openai", "cut off", says("4", "length"), answer("4", "length")),
    whole("openai", "refusal", says(None, refusal="I can't help."), answer("I can't help.", "refusal")),
    whole(
        "openai",
        "legacy function call",
        says(None, "function_call", function_call={"name": "add", "arguments": "{}"}),
        ChatAnswer("", "", (ToolCall("add", "{}", "call_0"),), "tool_calls", 10, 5),
    ),
    learned("openai", "temperature top_p", no_parameter("temperature"), no_parameter("top_p")),
    learned(
        "openai",
        "temperature",
        error(
            400,
            "Unsupported value: 'temperature' does not support 0 with this model. Only the "
            "default (1) value is supported.",
            param="temperature",
            code="unsupported_value",
        ),
    ),
    Case(
        "openai",
        "max_completion_tokens",
        (
            error(
                400,
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                param="max_tokens",
                code="unsupported_parameter",
            ),
            GOOD,
        ),
        answer(),
        left_out=frozenset({"max_tokens"}),
    ),
    Case(
        "openai",
        "too many tokens wanted",
        (
            error(
                400,
                "max_tokens is too large: 200000. This model supports at most 16384 completion tokens.",
                param="max_tokens",
                code="invalid_value",
            ),
        ),
        Ends(EpisodeFailure, "max_tokens is too large"),
    ),
    again(
        "openai",
        "rate limit",
        error(429, "Rate limit reached for m", {"Retry-After": "20"}, code="rate_limit_exceeded"),
        20,
    ),
    again(
        "openai",
        "rate limit in milliseconds",
        error(429, "Rate limit", {"retry-after-ms": "1500", "Retry-After": "9"}),
        1.5,
    ),
    ends_run(
        "openai",
        "quota",
        error(
            429,
            "You exceeded your current quota, please check your plan and billing details.",
            type="insufficient_quota",
            code="insufficient_quota",
        ),
        "exceeded your current quota",
    ),
    ends_run(
        "openai",
        "key",
        error(401, "Incorrect API key provided: ***.", code="invalid_api_key"),
        "Put its key into",
    ),
    ends_run(
        "openai",
        "model",
        error(404, "The model `m` does not exist", code="model_not_found"),
        "Is there a model 'm'",
    ),
    filtered("openai", "flagged prompt", error(400, "Your prompt was flagged.", code="invalid_prompt")),
    too_long(
        "openai",
        error(400, "Your input exceeds the context window of this model.", code="context_length_exceeded"),
    ),
    # Azure
    whole("azure", "filtered answer", says("Let me", "content_filter"), answer("Let me", "content_filter")),
    filtered(
        "azure",
        "filtered prompt",
        error(
            400,
            "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
            param="prompt",
            code="content_filter",
            innererror={"code": "ResponsibleAIPolicyViolation"},
        ),
    ),
    ends_run(
        "azure",
        "deployment",
        error(404, "The API deployment for this resource does not exist.", code="DeploymentNotFound"),
        "deployment for this resource",
    ),
    again(
        "azure",
        "rate limit",
        error(429, "Requests have exceeded call rate limit.", {"Retry-After": "7"}, code="429"),
        7,
    ),
    # Anthropic, natively and through proxies
    whole("anthropic", "end_turn", says("42", "end_turn"), answer()),
    whole("anthropic", "tool_use", calls("{}", "tool_use"), answer("", "tool_calls", arguments="{}")),
    whole("anthropic", "stop_sequence", says("42", "stop_sequence"), answer()),
    whole("anthropic", "max_tokens", says("4", "max_tokens"), answer("4", "length")),
    whole("anthropic", "refusal", says("I would rather", "refusal"), answer("I would rather", "refusal")),
    whole(
        "anthropic",
        "thinking blocks",
        says([{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "42"}]),
        answer(reasoning="hm"),
    ),
    learned(
        "anthropic",
        "top_p",
        error(
            400,
            "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
            type="invalid_request_error",
        ),
    ),
    again(
        "anthropic",
        "overloaded",
        Reply({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, 529),
    ),
    ends_run(
        "anthropic",
        "credit",
        Reply(
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "Your credit balance is too low to access the Anthropic API.",
                },
            },
            400,
        ),
        "credit balance is too low",
    ),
    too_long(
        "anthropic",
        Reply(
            {
                "type": "error",
                "error": {
                    "type": "invalid_request_error",
                    "message": "prompt is too long: 210000 tokens > 200000 maximum",
                },
            },
            400,
        ),
    ),
    # Gemini
    whole("gemini", "STOP", says("42", "STOP"), answer()),
    whole(
        "gemini",
        "thought parts",
        says([{"type": "text", "text": "hm 41", "thought": True}, {"type": "text", "text": "42"}]),
        answer(reasoning="hm 41"),
    ),
    whole("gemini", "safety", says(None, "content_filter: PROHIBITED_CONTENT"), answer("", "content_filter")),
    whole(
        "gemini",
        "unreadable call",
        says(None, "function_call_filter: MALFORMED_FUNCTION_CALL"),
        ChatAnswer("", "", (), "stop", 10, 5, malformed=True),
    ),
    again(
        "gemini",
        "rate limit",
        Reply(
            [
                {
                    "error": {
                        "code": 429,
                        "message": "You exceeded your current quota, please check your plan and billing details.",
                        "status": "RESOURCE_EXHAUSTED",
                        "details": [{"retryDelay": "34.5s"}],
                    }
                }
            ],
            429,
        ),
        34.5,
    ),
    ends_run(
        "gemini",
        "quota of the day",
        Reply(
            [
                {
                    "error": {
                        "code": 429,
                        "message": "You exceeded your current quota.",
                        "status": "RESOURCE_EXHAUSTED",
                        "details": [
                            {"violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}
                        ],
                    }
                }
            ],
            429,
        ),
        "exceeded your current quota",
    ),
    ends_run(
        "gemini",
        "key",
        Reply(
            [
                {
                    "error": {
                        "code": 400,
                        "message": "API key not valid. Please pass a valid API key.",
                        "status": "INVALID_ARGUMENT",
                    }
                }
            ],
            400,
        ),
        "API key not valid",
    ),
    # Mistral
    whole(
        "mistral",
        "thinking chunks",
        says(
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": "hm 41"}]},
                {"type": "text", "text": "42"},
            ]
        ),
        answer(reasoning="hm 41"),
    ),
    whole("mistral", "model_length", says("4", "model_length"), answer("4", "length")),
    learned(
        "mistral",
        "seed top_k",
        Reply(
            {
                "object": "error",
                "message": {"detail": []},
                "detail": [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", "seed"],
                        "msg": "Extra inputs are not permitted",
                        "input": 1,
                    },
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", "top_k"],
                        "msg": "Extra inputs are not permitted",
                        "input": 1,
                    },
                ],
            },
            422,
        ),
    ),
    ends_run(
        "mistral",
        "model",
        Reply(
            {
                "object": "error",
                "message": "Invalid model: m",
                "type": "invalid_model",
                "param": None,
                "code": "1500",
            },
            400,
        ),
        "Invalid model: m",
    ),
    ends_run("mistral", "key", Reply({"detail": "Unauthorized"}, 401), "Unauthorized"),
    # DeepSeek
    whole("deepseek", "reasoning_content", says("42", reasoning_content="hm"), answer(reasoning="hm")),
    again("deepseek", "no resources", says("4", "insufficient_system_resource")),
    ends_run(
        "deepseek",
        "balance",
        error(402, "Insufficient Balance", code="invalid_request_error"),
        "Insufficient Balance",
    ),
    ends_run(
        "deepseek", "model", error(400, "Model Not Exist", code="invalid_request_error"), "Model Not Exist"
    ),
    filtered("deepseek", "filtered prompt", error(400, "Content Exists Risk", code="invalid_request_error")),
    # OpenRouter
    whole(
        "openrouter",
        "reasoning",
        says("42", reasoning="hm", reasoning_details=[{"type": "reasoning.text", "text": "hm"}]),
        answer(reasoning="hm"),
    ),
    again(
        "openrouter",
        "error in a choice",
        Reply(
            {
                "choices": [
                    {
                        "error": {"code": 502, "message": "Provider returned error"},
                        "finish_reason": "error",
                        "message": {"content": "4"},
                    }
                ]
            }
        ),
    ),
    again(
        "openrouter",
        "error with status 200",
        Reply({"error": {"code": 429, "message": "Rate limited upstream"}}),
    ),
    ends_run("openrouter", "credits", error(402, "Insufficient credits", code=402), "Insufficient credits"),
    again(
        "openrouter",
        "402 that passes",
        error(402, "Budget in flight is used up", {"Retry-After": "3"}, code=402),
        3,
    ),
    filtered(
        "openrouter",
        "moderation",
        error(
            403,
            "Your input was flagged",
            code=403,
            metadata={"reasons": ["violence"], "flagged_input": "..."},
        ),
    ),
    ends_run(
        "openrouter", "model", error(400, "x/m is not a valid model ID", code=400), "not a valid model ID"
    ),
    # Groq
    Case(
        "groq",
        "unreadable call",
        (
            error(
                400, "Failed to call a function.", code="tool_use_failed", failed_generation="<function=add{"
            ),
        ),
        ChatAnswer("<function=add{", "", (), "stop", 0, 0, malformed=True),
    ),
    too_long(
        "groq",
        error(
            413,
            "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000",
            type="tokens",
            code="rate_limit_exceeded",
        ),
    ),
    # vLLM
    whole("vllm", "arguments of an empty call", calls(""), answer("", "tool_calls", arguments="{}")),
    again("vllm", "abort", says("4", "abort")),
    again(
        "vllm",
        "dead engine",
        error(500, "EngineCore encountered an issue.", type="InternalServerError", code=500),
    ),
    ends_run(
        "vllm",
        "no tool parser",
        error(
            400,
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            code=400,
        ),
        "--enable-auto-tool-choice",
    ),
    ends_run(
        "vllm",
        "model",
        error(404, "The model `m` does not exist.", type="NotFoundError", code=404),
        "does not exist",
    ),
    too_long(
        "vllm",
        error(
            400,
            "'max_tokens' is too large: 5000. This model's maximum context length is 4096 tokens.",
            param="max_tokens",
            code=400,
        ),
    ),
    # SGLang
    again("sglang", "abort", says("", "abort")),
    too_long(
        "sglang",
        Reply(
            {
                "object": "error",
                "message": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
                "type": "BadRequestError",
                "param": None,
                "code": 400,
            },
            400,
        ),
    ),
    # llama.cpp
    again("llama.cpp", "loading", error(503, "Loading model", type="unavailable_error", code=503)),
    too_long(
        "llama.cpp",
        error(
            400,
            "the request exceeds the available context size",
            type="exceed_context_size_error",
            n_prompt_tokens=9000,
            n_ctx=8192,
            code=400,
        ),
    ),
    whole(
        "llama.cpp",
        "no finish reason and no usage",
        Reply({"choices": [{"message": {"content": "42"}}]}),
        ChatAnswer("42", "", (), "stop", 0, 0),
    ),
    # Ollama
    again("ollama", "load", says("", "load")),
    ends_run(
        "ollama",
        "model",
        error(404, 'model "m" not found, try pulling it first', type="api_error"),
        "try pulling it",
    ),
    ends_run(
        "ollama",
        "no tools",
        error(400, "registry.ollama.ai/library/m does not support tools"),
        "does not support tools",
    ),
    # TGI
    whole("tgi", "eos_token", says("42", "eos_token"), answer()),
    whole("tgi", "arguments as an object", calls({"a": 1}), answer("", "tool_calls", arguments='{"a": 1}')),
    whole("tgi", "arguments missing", calls(...), answer("", "tool_calls", arguments="{}")),
    whole("tgi", "arguments null", calls(None), answer("", "tool_calls", arguments="{}")),
    learned(
        "tgi",
        "temperature",
        Reply(
            {
                "error": "Input validation error: `temperature` must be strictly positive",
                "error_type": "validation",
            },
            422,
        ),
    ),
    again("tgi", "overloaded", Reply({"error": "Model is overloaded", "error_type": "overloaded"}, 429)),
    too_long(
        "tgi",
        Reply(
            {
                "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096.",
                "error_type": "validation",
            },
            422,
        ),
    ),
    # Others
    whole("zhipu", "sensitive", says("4", "sensitive"), answer("4", "content_filter")),
    again("zhipu", "network_error", says("4", "network_error")),
    filtered(
        "qwen",
        "inspection",
        error(400, "Input data may contain inappropriate content.", code="data_inspection_failed"),
    ),
    ends_run(
        "xai",
        "key",
        Reply(
            {"code": "Client specified an invalid argument", "error": "Incorrect API key provided: ***"}, 400
        ),
        "Incorrect API key",
    ),
    whole("any", "unknown finish reason with an answer", says("42", "went_well"), answer()),
    whole("any", "empty finish reason", says("42", ""), answer()),
    again("any", "unknown finish reason without an answer", says(None, "went_badly")),
    again("any", "half an answer", Reply('{"choices": [{"mess')),
    Case("any", "half of a surrogate pair", (says("\ud83d 42"),), answer("\ufffd 42")),
]


class Servers(ServerThread):
    """One server for all cases: ``/NAME/v1/chat/completions`` gives the replies of that case in order."""

    def __init__(self) -> None:
        super().__init__()
        self.replies: dict[str, Iterator[Reply | Callable[[Json], Reply]]] = {}
        self.requests: list[web.Request] = []
        self.bodies: list[Json] = []

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_post("/{name}/v1/chat/completions", self._complete)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def _complete(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        self.bodies.append(await request.json())
        reply = next(self.replies[request.match_info["name"]])
        if callable(reply):
            reply = reply(self.bodies[-1])
        text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
        return web.Response(text=text, status=reply.status, headers=reply.headers)

    def serve(self, *replies: Reply | Callable[[Json], Reply]) -> str:
        """The base address of a server that gives these replies."""
        name = f"case{len(self.replies)}"
        self.replies[name] = iter(replies)
        self.requests.clear()
        self.bodies.clear()
        return f"{self.url}/{name}/v1"


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with Servers() as running:
        yield running


class Pauses(list[float]):
    """Time that passes only where it is waited for."""

    def now(self) -> float:
        return sum(self)

    async def sleep(self, seconds: float) -> None:
        self.append(seconds)


def model_at(url: str, pauses: Pauses | None = None) -> tuple[ChatEndpoint, EpisodeEndpoint]:
    pauses = pauses if pauses is not None else Pauses()
    address = EndpointAddress(url, "m")
    endpoint = ChatEndpoint(address, concurrency=4, request_timeout=30, now=pauses.now, sleep=pauses.sleep)
    return endpoint, endpoint.for_episode()


def test_the_matrix_has_many_behaviours_of_many_servers() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 40
    assert len({case.server for case in CASES}) >= 8


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_an_episode_gets_an_answer_or_the_right_end(case: Case, servers: Servers) -> None:
    pauses = Pauses()
    endpoint, model = model_at(servers.serve(*case.replies), pauses)
    asking = model.answer(LATER if case.later else ASKED, TOOLS, SAMPLING, 20)
    if isinstance(case.expected, Ends):
        with pytest.raises(case.expected.how, match=case.expected.match):
            await asking
        assert (endpoint.refusal is not None) == case.expected.run
    else:
        assert await asking == case.expected
    assert len(servers.bodies) == len(case.replies)
    assert len(pauses) == len(case.pauses)
    assert all(pause >= least for pause, least in zip(pauses, case.pauses, strict=True))
    sent = {"temperature", "top_p", "top_k", "stop", "seed", "max_tokens"}
    assert sent - servers.bodies[-1].keys() == case.left_out


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_a_helper_gets_the_text_or_a_reason(case: Case, servers: Servers) -> None:
    endpoint = Endpoint("helper", servers.serve(*case.replies[-1:]), "m")
    text = case.expected.content if isinstance(case.expected, ChatAnswer) else ""
    is_answer = isinstance(case.expected, ChatAnswer) and case.expected.finish_reason not in (
        "content_filter",
        "refusal",
    )
    if text and is_answer:
        assert await endpoint.ask(ASKED) == text
    else:
        with pytest.raises(EndpointFailed, match=r"^the endpoint helper \w+"):
            await endpoint.ask(ASKED)


@pytest.mark.parametrize(
    ("refusals", "expected"),
    [
        ((), "correct"),
        ((no_parameter("temperature"),), "correct"),
        ((error(400, "This model does not support the json_schema type"),), "correct"),
        ((error(500, "Internal: json_schema grammar compile failed"),), "correct"),
        ((error(429, "Quota", code="insufficient_quota"),), "HTTP 429 'Quota'"),
        ((says(None, refusal="I can't help."),), 'it refused: "I can\'t help."'),
        ((says("It is", "content_filter"),), "a content filter stopped it: 'It is'"),
    ],
    ids=str,
)
async def test_a_judge_gives_its_verdict_or_a_reason(
    refusals: tuple[Reply, ...], expected: str, servers: Servers
) -> None:
    verdict = json.dumps({"reason": "the same", "verdict": "correct"})
    parts = [{"type": "thinking", "thinking": "incorrect"}, {"type": "text", "text": verdict}]
    url = servers.serve(*refusals, says(parts, "end_turn"))
    panel = JudgePanel(JudgeSettings((JudgeModel("j", url, "m"),), attempts=1), Backoff(0.0, 0.0))
    judgement = await panel.judge(Question("How many?", "42", "42", "Be fair."), 30)
    assert (judgement.judged is not None) == (expected == "correct")
    assert judgement.judged is not None or expected in judgement.steps[-1]
    assert judgement.refusals == ("Quota" in expected)


async def test_what_an_endpoint_does_not_take_is_learned_once_and_said_once(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    endpoint, _ = model_at(servers.serve(no_parameter("temperature"), GOOD, GOOD))
    models = [endpoint.for_episode() for _ in range(2)]
    for model in models:
        await model.answer(ASKED, [], SAMPLING, 20)
    assert [dict(model.faults) for model in models] == [{"no temperature": 1}, {}]
    assert [body.get("temperature") for body in servers.bodies] == [0.0, None, None]
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "temperature is left out"
    ]


GIVEN = [
    {"content": "", "reasoning_content": "hm", "tool_calls": [{"index": 0}]},
    {"content": None, "tool_calls": [{"extra_content": {"google": {"thought_signature": "c2ln"}}}]},
    {
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True}],
        "tool_calls": [{}],
    },
    {
        "content": "",
        "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}],
        "annotations": [],
        "tool_calls": [{}],
    },
    {"content": None, "tool_calls": [{"function": {"name": "add", "arguments": {"a": 1}}}]},
]


@pytest.mark.parametrize("given", GIVEN, ids=["reasoning", "signature", "parts", "unknown keys", "object"])
async def test_what_an_endpoint_gave_comes_back_to_it_verbatim(given: Json, servers: Servers) -> None:
    function = {"name": "add", "arguments": '{"a":  1}'}
    message = {
        "role": "assistant",
        **given,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": function, **call} for call in given["tool_calls"]
        ],
    }

    def strict(body: Json) -> Reply:
        returned = body["messages"][1] == message
        return GOOD if returned else error(400, "Function call is missing a thought_signature")

    _, model = model_at(servers.serve(Reply({"choices": [{"message": message}]}), strict))
    first = await model.answer(ASKED, TOOLS, SAMPLING, 20)
    history = [
        *ASKED,
        Message("assistant", first.content, first.tool_calls),
        Message("tool", "2", call_id="c1"),
    ]
    assert (await model.answer(history, TOOLS, SAMPLING, 20)).content == "42"


async def test_equal_turns_come_back_each_with_its_own_signature(servers: Servers) -> None:
    turns = [says("so", signature=f"s{number}") for number in range(2)]
    _, model = model_at(servers.serve(*turns, GOOD))
    history = list(ASKED)
    for _ in turns:
        answered = await model.answer(history, [], SAMPLING, 20)
        history += [Message("assistant", answered.content), Message("user", "And?")]
    await model.answer(history, [], SAMPLING, 20)
    assert [message.get("signature") for message in servers.bodies[-1]["messages"][1::2]] == ["s0", "s1"]


async def test_what_an_endpoint_gave_and_does_not_take_back_is_left_out(servers: Servers) -> None:
    refusal = error(400, "Please remove the reasoning_content from your message.")

    def strict(body: Json) -> Reply:
        return refusal if any("reasoning_content" in message for message in body["messages"]) else GOOD

    _, model = model_at(servers.serve(says("so", reasoning_content="hm"), strict, strict))
    first = await model.answer(ASKED, [], SAMPLING, 20)
    history = [*ASKED, Message("assistant", first.content), Message("user", "And?")]
    assert (await model.answer(history, [], SAMPLING, 20)).content == "42"


async def test_a_query_of_the_address_stays_behind_the_path_and_azure_gets_its_key(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sesame")
    _, model = model_at(servers.serve(GOOD) + "/?api-version=2024-10-21")
    assert (await model.answer(ASKED, [], SAMPLING, 20)).content == "42"
    [request] = servers.requests
    assert request.path_qs.endswith("/v1/chat/completions?api-version=2024-10-21")
    assert request.headers["api-key"] == "sesame"


async def test_a_helper_waits_as_long_as_the_last_endpoint_asks_for(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses()
    monkeypatch.setattr(asyncio, "sleep", pauses.sleep)
    endpoint = Endpoint("helper", servers.serve(error(429, "slow", {"Retry-After": "60"}), GOOD), "m")
    assert await endpoint.ask(ASKED) == "42"
    assert 60.0 in pauses
