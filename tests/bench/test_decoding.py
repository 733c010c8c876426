"""How fast the CPU rollout engine decodes, as ratios to ``model.generate`` of the same model in the same process.

One seeded random Qwen3 of 26 million parameters in float32, 64 requests with prompts of 16 to 128 tokens that want 16
to 160 new ones, greedy, without an end-of-sequence token, so that every length is exact. Four schedulers serve them:

- *continuous*: the engine;
- *sequential*: ``generate`` for one request after the other. It is the same work per request whatever comes beside it,
  so each round runs a different sixth of the requests;
- *static*: ``generate`` on batches of 16 in order of arrival, padded on the left. A batch runs to its longest request;
  tokens beyond what a request wanted are thrown away and do not count;
- *paged*: transformers' own continuous batching (``ContinuousBatchingManager``), with the block and batch sizes that
  are its quickest for these requests. On a CPU it builds a mask of all queries by all keys in each step; measured with
  transformers 5.10.4, the engine is 2.2 times as fast.

Rates are tokens that somebody wanted per second. All run with one thread each and are timed by the processor time of
this process, so that other programs on the machine do not count; they alternate, and the median of the rounds decides.

Requests that *arrive over time* do so on a simulated clock that advances by the measured duration of each step, and
jumps to the next arrival when there is nothing to do. Arrivals are a seeded Poisson process that lasts as long as the
engine needs for all requests at once: the load it can just sustain. Both schedulers get the same arrivals: the engine
admits a request at the next step, static batching starts a batch when its sixteenth request is there and the batch
before it is done (a batch takes the same time whenever it starts, so the durations measured are used). Their rate is
all wanted tokens by the end of the last request; mean latency, from arrival to last token, is printed beside it.
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from aworld_train.adapter.verl.cpu.batching import ContinuousBatcher, GenerationRequest
from aworld_train.adapter.verl.cpu.sampling import GenerationParams

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3000)]

VOCABULARY = 8192
REQUESTS = 64
BATCH = 16
ROUNDS = 3
SEQUENTIAL_SHARE = 6
PAGED_SECONDS = 300.0


@dataclass(frozen=True)
class Task:
    """A prompt and how many tokens are wanted after it."""

    prompt: list[int]
    wanted: int


@dataclass(frozen=True)
class Served:
    """When each request was done, in seconds, and what it got."""

    tokens: list[list[int]]
    ended: list[float]


def a_model(layers: int = 8, width: int = 512) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=width * 5 // 2,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 128,
        head_dim=64,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return Qwen3ForCausalLM(config).eval()


def some_tasks() -> list[Task]:
    rng = random.Random(0)
    return [
        Task([rng.randrange(VOCABULARY) for _ in range(rng.randint(16, 128))], rng.randint(16, 160))
        for _ in range(REQUESTS)
    ]


def seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def continuous(batcher: ContinuousBatcher, tasks: list[Task], arrivals: list[float]) -> Served:
    """Serve ``tasks``, of which each comes at its time of ``arrivals``."""
    batcher.prefixes.clear()  # nothing is known from an earlier run
    coming = sorted(range(len(tasks)), key=lambda i: arrivals[i], reverse=True)
    clock = 0.0
    tokens: list[list[int]] = [[]] * len(tasks)
    ended = [0.0] * len(tasks)
    while coming or not batcher.idle:
        if batcher.idle:
            clock = max(clock, arrivals[coming[-1]])
        while coming and arrivals[coming[-1]] <= clock:
            index = coming.pop()
            params = GenerationParams(max_tokens=tasks[index].wanted, temperature=0)
            batcher.submit(GenerationRequest(str(index), tasks[index].prompt, params))
        done: list[GenerationRequest] = []
        clock += seconds(lambda done=done: done.extend(batcher.step()))
        for request in done:
            tokens[int(request.request_id)] = request.tokens
            ended[int(request.request_id)] = clock
    return Served(tokens, ended)


def generated(model: Qwen3ForCausalLM, tasks: list[Task]) -> list[list[int]]:
    """One call of ``generate``, padded on the left and run to the longest request."""
    width = max(len(task.prompt) for task in tasks)
    ids = torch.zeros(len(tasks), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, task in enumerate(tasks):
        ids[row, width - len(task.prompt) :] = torch.tensor(task.prompt)
        mask[row, width - len(task.prompt) :] = 1
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=max(task.wanted for task in tasks),
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    return [row[width : width + task.wanted].tolist() for row, task in zip(out, tasks, strict=True)]


def paged(model: Qwen3ForCausalLM, tasks: list[Task]) -> list[list[int]]:
    """All requests at once through transformers' own continuous batching, whose thread ends with the call."""
    cache = ContinuousBatchingConfig(
        block_size=32, num_blocks=600, max_batch_tokens=256, use_async_batching=False
    )
    greedy = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
    tokens: dict[str, list[int]] = {}
    deadline = time.monotonic() + PAGED_SECONDS
    with model.continuous_batching_context_manager(
        generation_config=greedy, continuous_batching_config=cache, warmup=False
    ) as manager:
        ids = [manager.add_request(task.prompt, max_new_tokens=task.wanted) for task in tasks]
        while len(tokens) < len(ids):
            assert manager.is_running()
            assert time.monotonic() < deadline
            output = manager.get_result(timeout=1)
            if output is not None and output.is_finished():
                tokens[output.request_id] = output.generated_tokens
    return [tokens[request_id] for request_id in ids]


def batches(tasks: list[Task]) -> list[list[Task]]:
    return [tasks[start : start + BATCH] for start in range(0, len(tasks), BATCH)]


def static_ends(durations: list[float], arrivals: list[float]) -> list[float]:
    """When each request ends, if every batch waits for its last request and for the batch before it."""
    free = 0.0
    ended: list[float] = []
    for index, duration in enumerate(durations):
        free = max(free, *arrivals[index * BATCH : (index + 1) * BATCH]) + duration
        ended += [free] * BATCH
    return ended


def poisson(count: int, last: float) -> list[float]:
    """``count`` arrivals of a Poisson process, in order, the last at ``last`` seconds."""
    rng = random.Random(1)
    at = 0.0
    arrivals = [at := at + rng.expovariate(1.0) for _ in range(count)]
    return [arrival * last / at for arrival in arrivals]


@dataclass(frozen=True)
class Round:
    """Rates in wanted tokens a second; latencies in seconds."""

    sequential: float
    static: float
    paged: float
    continuous: float
    static_over_time: float
    continuous_over_time: float
    static_latency: float
    continuous_latency: float


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def rounds(one_thread: None, pytestconfig: pytest.Config) -> list[Round]:
    peer, tasks = a_model(), some_tasks()
    batcher = ContinuousBatcher(a_model(), eos_ids=())
    at_once = [0.0] * len(tasks)
    useful = sum(task.wanted for task in tasks)
    warm_up = [Task(task.prompt, min(task.wanted, 4)) for task in tasks]
    continuous(batcher, warm_up, at_once)
    generated(peer, warm_up[:BATCH])
    generated(peer, warm_up[:1])
    paged_peer = a_model()
    paged(paged_peer, warm_up)

    def measure(number: int) -> Round:
        ours = continuous(batcher, tasks, at_once)
        arrivals = poisson(len(tasks), max(ours.ended))
        durations = [seconds(lambda part=part: generated(peer, part)) for part in batches(tasks)]
        some = tasks[number::SEQUENTIAL_SHARE]
        alone = seconds(lambda: [generated(peer, [task]) for task in some])
        ours_over_time = continuous(batcher, tasks, arrivals)
        static_over_time = static_ends(durations, arrivals)

        def latency(ended: list[float]) -> float:
            return statistics.mean(end - arrival for end, arrival in zip(ended, arrivals, strict=True))

        return Round(
            sequential=sum(task.wanted for task in some) / alone,
            static=useful / sum(durations),
            paged=useful / seconds(lambda: paged(paged_peer, tasks)),
            continuous=useful / max(ours.ended),
            static_over_time=useful / max(static_over_time),
            continuous_over_time=useful / max(ours_over_time.ended),
            static_latency=latency(static_over_time),
            continuous_latency=latency(ours_over_time.ended),
        )

    measured = [measure(number) for number in range(ROUNDS)]
    writer = pytestconfig.get_terminal_writer()
    for name in Round.__dataclass_fields__:
        writer.line(f"\n{name}: {statistics.median(getattr(r, name) for r in measured):.1f}")
    return measured


def ratio(rounds: list[Round], ours: str, peer: str, config: pytest.Config) -> float:
    value = statistics.median(getattr(r, ours) / getattr(r, peer) for r in rounds)
    config.get_terminal_writer().line(f"\n{ours} / {peer}: {value:.2f}")
    return value


def test_the_peers_decode_the_same_tokens(one_thread: None) -> None:
    peer, tasks = a_model(), some_tasks()[:BATCH]
    ours = continuous(ContinuousBatcher(a_model(), eos_ids=()), tasks, [0.0] * len(tasks)).tokens
    batch = generated(peer, tasks)
    assert paged(a_model(), tasks) == ours
    for index in (0, 5, 10, 15):
        assert len(ours[index]) == tasks[index].wanted
        assert ours[index] == batch[index] == generated(peer, [tasks[index]])[0]


def test_three_times_as_fast_as_one_request_after_the_other(
    rounds: list[Round], pytestconfig: pytest.Config
) -> None:
    assert ratio(rounds, "continuous", "sequential", pytestconfig) >= 3.0


def test_not_slower_than_static_batches_when_all_requests_are_there(
    rounds: list[Round], pytestconfig: pytest.Config
) -> None:
    assert ratio(rounds, "continuous", "static", pytestconfig) >= 1.0


def test_faster_than_the_continuous_batching_of_transformers(
    rounds: list[Round], pytestconfig: pytest.Config
) -> None:
    assert ratio(rounds, "continuous", "paged", pytestconfig) >= 1.5


def test_faster_than_static_batches_when_requests_arrive_over_time(
    rounds: list[Round], pytestconfig: pytest.Config
) -> None:
    assert ratio(rounds, "continuous_over_time", "static_over_time", pytestconfig) >= 1.3
    assert ratio(rounds, "static_latency", "continuous_latency", pytestconfig) >= 1.3
