"""Parameters of a request by what they do to the distribution that tokens are drawn from, and a folder's own.

``docs/how-to/engine.md`` has them in a table.
"""

from typing import Any

ALLOWED: dict[str, list[Any]] = {
    "max_tokens": [1, 5, 30],
    "stop": ["a", ["7", "the"], None],
    "n": [1, 3],
    # Of these the recipe's counts.
    "temperature": [0, 0.2, 1, 2],
    "top_p": [0.1, 0.9, 1],
    "top_k": [1, 20, -1],
    "seed": [0, 7],
    # With the only values that change nothing.
    "min_p": [0, None],
    "repetition_penalty": [1, None],
    "presence_penalty": [0, None],
    "frequency_penalty": [0, None],
    "logit_bias": [{}, None],
}
CHANGING: dict[str, Any] = {
    "allowed_token_ids": [5],
    "bad_words": ["the"],
    "best_of": 2,
    "ebnf": 'root ::= "a"',
    "frequency_penalty": 0.5,
    "guided_choice": ["yes", "no"],
    "guided_grammar": 'root ::= "a"',
    "guided_json": {"type": "object"},
    "guided_regex": "[0-9]+",
    "ignore_eos": True,
    "length_penalty": 2,
    "logit_bias": {"5": 10},
    "logits_processors": ["mine.Processor"],
    "min_p": 0.1,
    "min_tokens": 5,
    "presence_penalty": 0.5,
    "regex": "[0-9]+",
    "repetition_penalty": 1.05,
    "stop_token_ids": [5],
    "structured_outputs": {"regex": "[0-9]+"},
    "typical_p": 0.9,
    "use_beam_search": True,
}
OF_PROMPT_AND_ANSWER = {
    *("add_generation_prompt", "chat_template", "continue_final_message", "documents"),
    *("audio", "modalities", "echo", "n", "prompt_logprobs", "top_logprobs", "web_search_options"),
}
"""Further parameters of which only one value is taken: they change no distribution."""
RECOMMENDED = {
    "do_sample": True,
    "temperature": 0.3,
    "top_p": 0.8,
    "top_k": 5,
    "min_p": 0.2,
    "repetition_penalty": 1.3,
}
"""A ``generation_config.json`` such as Qwen's, with more in it."""
