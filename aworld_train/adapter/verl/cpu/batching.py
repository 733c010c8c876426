"""Continuous batching on CPU: requests join and leave the running batch between decode steps.

Running sequences are computed in one pass of a single column; new ones in passes of similar length, right-aligned, so
that the last column always holds the needed logits. A sequence that outgrows the memory, or began under other weights,
goes back to the queue with its tokens and is computed again.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from aworld_train.adapter.verl.cpu.kv_cache import CacheShape, PrefixStore, RowCache
from aworld_train.adapter.verl.cpu.sampling import GenerationParams, most_likely, sample

ATTENTION = "aworld_grouped_sdpa"
_ADMITTED_TOKENS = 8192  # most tokens of new sequences in one step, because running sequences wait for them
# Most padded tokens in one pass over several new sequences: more are not faster and pad more.
_PASS_TOKENS = 512

_TOKENS_BEFORE_STOP = 8


@dataclass
class GenerationRequest:
    request_id: str
    prompt: list[int]
    params: GenerationParams
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    top_logprobs: list[list[tuple[int, float]]] = field(default_factory=list)
    finish_reason: str | None = None
    reused_tokens: int = 0
    versions: tuple[int | None, int | None] = (None, None)
    generator: torch.Generator | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.params.seed is not None:
            self.generator = torch.Generator().manual_seed(self.params.seed)

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.tokens)

    @property
    def context(self) -> list[int]:
        return self.prompt + self.tokens


class ContinuousBatcher:
    """Decodes many requests at once with a float32 model on the CPU.

    Keys and values of running sequences take ``kv_budget_bytes``, those of finished ones half as much more. ``text_of``
    decodes tokens without special ones; requests with stop texts need it.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        eos_ids: Iterable[int],
        max_running: int = 256,
        max_length: int = 32768,
        kv_budget_bytes: int = 2 << 30,
        seed: int = 0,
        text_of: Callable[[list[int]], str] | None = None,
    ):
        check_supported(model)
        use_grouped_attention(model)
        config = model.config
        heads = config.num_key_value_heads or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.model = model
        self.eos_ids = frozenset(eos_ids)
        self.max_running = max_running
        self.max_length = max_length
        self.kv_budget_bytes = kv_budget_bytes
        self.waiting: deque[GenerationRequest] = deque()
        self.running: list[GenerationRequest] = []
        self.cache = RowCache(CacheShape(config.num_hidden_layers, heads, width), kv_budget_bytes)
        self.prefixes = PrefixStore(kv_budget_bytes // 2)
        self._generator = torch.Generator().manual_seed(seed)
        self._text_of = text_of

    @property
    def idle(self) -> bool:
        return not self.waiting and not self.running

    def check(self, request: GenerationRequest) -> None:
        """Raise ValueError if the prompt is empty, or leaves no room for a token."""
        if not request.prompt:
            raise ValueError("a prompt needs at least one token")
        if len(request.prompt) >= self.max_length:
            raise ValueError(
                f"the prompt has {len(request.prompt)} tokens; the longest sequence is {self.max_length}"
            )

    def submit(self, request: GenerationRequest) -> None:
        """Queue a request that ``check`` accepts; it joins the batch in the next ``step``."""
        self.check(request)
        self.waiting.append(request)

    def abort(self, request_id: str | None = None) -> list[GenerationRequest]:
        """End a request, or all of them, at once; they keep the tokens that they have."""
        aborted = [r for r in (*self.waiting, *self.running) if request_id in (None, r.request_id)]
        for request in aborted:
            request.finish_reason = "aborted"
        self.waiting = deque(r for r in self.waiting if r.finish_reason is None)
        with torch.inference_mode():
            self._retire()
        return aborted

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Replace parameters by name and forget all keys and values computed with the old ones."""
        tensors = dict(self.model.named_parameters(remove_duplicate=False)) | dict(self.model.named_buffers())
        with torch.no_grad():
            for name, tensor in weights:
                if name not in tensors:
                    raise KeyError(f"the trainer sent {name!r}, which the rollout model does not have")
                tensors[name].copy_(tensor)
        self.prefixes.clear()
        self.waiting.extendleft(reversed(self.running))
        self.running.clear()
        self.cache.rows = 0

    def score_prompt(self, request: GenerationRequest) -> tuple[list[list[int]], list[list[float]]]:
        """Sample one token, and return ids and log-probabilities for each position of the prompt, at temperature 1.

        A position has those of the token after it: its own, or the likeliest. The last one's are 0, as VeRL has it.
        """
        self.check(request)
        tokens, likeliest = torch.tensor([request.prompt]), request.params.prompt_logprobs
        with torch.inference_mode():
            logits = self.model(input_ids=tokens, use_cache=False).logits[0].float()
            chosen, logprobs = sample(logits[-1:], [request.params], self._generator, [request.generator])
            logits = logits[:-1]
            ids = logits.topk(likeliest).indices if likeliest else tokens[0, 1:, None]
            values = logits.gather(1, ids) - logits.logsumexp(dim=-1, keepdim=True)
        request.tokens, request.logprobs = chosen.tolist(), logprobs.tolist()
        request.finish_reason = self._ending(request, request.tokens[0])
        width = likeliest or 1
        return [*ids.tolist(), [0] * width], [*values.tolist(), [0.0] * width]

    def drop(self) -> None:
        self.waiting.clear()
        self.running.clear()
        self.prefixes.clear()
        self.cache.rows = 0

    def step(self) -> list[GenerationRequest]:
        """Admit waiting requests and advance every running one by one token; returns those that ended."""
        with torch.inference_mode():
            while len(self.running) > 1 and self._too_many(len(self.running), self._longest):
                self._suspend()
            decoding = len(self.running)
            self._admit()
            if decoding:
                self._decode(decoding)
            if decoding < len(self.running):
                self._prefill(decoding)
            return self._retire()

    @property
    def _longest(self) -> int:
        return max((r.length for r in self.running), default=0)

    def _too_many(self, rows: int, longest: int) -> bool:
        return rows * longest * self.cache.shape.bytes_per_token > self.kv_budget_bytes

    def _suspend(self) -> None:
        request = self.running.pop()
        self._remember(len(self.running), request)
        self.cache.rows = len(self.running)
        self.waiting.appendleft(request)

    def _admit(self) -> None:
        """Admit waiting requests, in order, while rows and memory last.

        A request with the same tokens as one admitted in this step waits for the next step, where it reuses the result.
        """
        contexts: set[tuple[int, ...]] = set()
        duplicates: deque[GenerationRequest] = deque()
        admitted = 0
        longest = self._longest
        while self.waiting and len(self.running) < self.max_running:
            request = self.waiting[0]
            longest = max(longest, request.length)
            if self.running and self._too_many(len(self.running) + 1, longest):
                break
            if contexts and admitted + request.length > _ADMITTED_TOKENS:
                break
            self.waiting.popleft()
            context = tuple(request.context)
            if context in contexts:
                duplicates.append(request)
                continue
            contexts.add(context)
            admitted += request.length
            self.running.append(request)
        self.waiting.extendleft(reversed(duplicates))

    def _decode(self, rows: int) -> None:
        requests = self.running[:rows]
        lengths = torch.tensor([r.length for r in requests])
        longest = int(lengths.max())
        self.cache.reserve(len(self.running), longest + 1)
        positions = lengths[:, None] - 1
        mask = torch.arange(longest)[None, None, None] < lengths[:, None, None, None]
        tokens = torch.tensor([[r.tokens[-1]] for r in requests])
        self._forward(0, tokens, positions, mask, longest, requests)

    def _prefill(self, first: int) -> None:
        """Compute the sequences from row ``first`` on, starting with those that have the most new tokens."""
        self.cache.reserve(len(self.running), self._longest + 1)
        self.cache.rows = len(self.running)
        prefixes = [(request, *self.prefixes.find(request.context)) for request in self.running[first:]]
        prefixes.sort(key=lambda item: item[1] - item[0].length)
        fresh = [request for request, _, _ in prefixes]
        self.running[first:] = fresh
        for row, (request, reused, stored) in enumerate(prefixes, start=first):
            request.reused_tokens = reused
            if stored is not None:
                self.cache.copy_in(row, stored, reused)
        while fresh:
            count = max(1, _PASS_TOKENS // (fresh[0].length - fresh[0].reused_tokens))
            self._prefill_pass(first, fresh[:count])
            first, fresh = first + count, fresh[count:]

    def _prefill_pass(self, first: int, requests: list[GenerationRequest]) -> None:
        longest = max(r.length for r in requests)
        new = max(r.length - r.reused_tokens for r in requests)
        tokens = torch.zeros(len(requests), new, dtype=torch.long)
        positions = torch.full((len(requests), new), -1)
        for row, request in enumerate(requests):
            at = slice(new - (request.length - request.reused_tokens), None)
            tokens[row, at] = torch.tensor(request.context[request.reused_tokens :])
            positions[row, at] = torch.arange(request.reused_tokens, request.length)
        # A padded query attends to position 0 only: its output is not used, but softmax over nothing is NaN.
        mask = torch.arange(longest)[None, None, None] <= positions.clamp(min=0)[:, None, :, None]
        self._forward(first, tokens, positions, mask, longest, requests)
        for row, request in enumerate(requests, start=first):
            # Else all but the last token are remembered already.
            if request.reused_tokens < request.length - 2:
                self._remember(row, request)

    def _forward(
        self,
        first: int,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        view: int,
        requests: list[GenerationRequest],
    ) -> None:
        self.cache.aim(first, positions, view)
        output = self.model(
            input_ids=tokens,
            position_ids=positions.clamp(min=0),
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits = output.logits[:, -1]
        own = [request.generator for request in requests]
        chosen, logprobs = sample(logits, [r.params for r in requests], self._generator, own)
        for row, request in enumerate(requests):
            if request.params.top_logprobs:
                request.top_logprobs.append(most_likely(logits[row], request.params))
        for request, token, logprob in zip(requests, chosen.tolist(), logprobs.tolist(), strict=True):
            request.tokens.append(token)
            request.logprobs.append(logprob)
            request.finish_reason = self._ending(request, token)

    def _ending(self, request: GenerationRequest, token: int) -> str | None:
        params = request.params
        if token in params.stop_token_ids or (token in self.eos_ids and not params.ignore_eos):
            return "stop"
        if params.stop and self._ends_with_stop(request):
            return "stop"
        if len(request.tokens) >= params.max_tokens or request.length >= self.max_length:
            return "length"
        return None

    def _ends_with_stop(self, request: GenerationRequest) -> bool:
        """Whether the last token completes a stop text.

        Only the tokens that the longest stop text can span, and those that its text may depend on, are decoded.
        """
        if self._text_of is None:
            return False
        span = max(len(stop.encode()) for stop in request.params.stop) + _TOKENS_BEFORE_STOP
        text = self._text_of(request.tokens[-span:])
        return any(stop in text for stop in request.params.stop)

    def _retire(self) -> list[GenerationRequest]:
        ended = [r for r in self.running if r.finish_reason is not None]
        for request in ended:
            row = self.running.index(request)
            if request.tokens:
                self._remember(row, request)
            last = self.running.pop()
            if last is not request:
                self.running[row] = last
                self.cache.move(len(self.running), row, last.length)
        self.cache.rows = len(self.running)
        return ended

    def _remember(self, row: int, request: GenerationRequest) -> None:
        # The last sampled token was never an input, so its keys and values do not exist.
        length = request.length - 1
        self.prefixes.add(request.context[:length], self.cache.copy_out(row, length))


def check_supported(model: PreTrainedModel) -> None:
    """Refuse models whose layers store something other than plain keys and values, with ValueError."""
    kinds = set(getattr(model.config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise ValueError(
            f"the transformers engine serves models with full attention in every layer; this one "
            f"({type(model).__name__}) has {', '.join(sorted(kinds - {'full_attention'}))}: use rollout.engine=vllm"
        )


def use_grouped_attention(model: PreTrainedModel) -> None:
    ALL_ATTENTION_FUNCTIONS.register(ATTENTION, _grouped_attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(ATTENTION, sdpa_mask)
    model.set_attn_implementation(ATTENTION)


def _grouped_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Scaled dot-product attention for grouped queries: heads that share keys become more queries of one head."""
    if attention_mask is None:
        return sdpa_attention_forward(module, query, key, value, None, scaling=scaling, **kwargs)  # type: ignore[no-any-return]
    batch, heads, new, width = query.shape
    shared = key.shape[1]
    group = heads // shared
    query = query.reshape(batch, shared, group * new, width)
    if group > 1 and new > 1:
        attention_mask = attention_mask.repeat(1, 1, group, 1)
    attended = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=attention_mask, scale=scaling
    )
    return attended.reshape(batch, heads, new, width).transpose(1, 2), None
