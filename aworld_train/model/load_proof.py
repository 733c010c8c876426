"""Loads an exported model in a process of its own, as its users will, and compares it with the trained weights.

The logits have to be those of the trained weights rounded to the export's dtype: the same numbers computed in the same
order, so that only a wrong weight, or one that is missing, makes a difference.
"""

import contextlib
import json
import sys
from typing import Any

from aworld_train.errors import one_line

_TEXT = "What is 48/2? The answer is 24."
_NEW_TOKENS = 4


def prove(folder: str, reference: str, trust_remote_code: bool) -> dict[str, Any]:
    """What was loaded, and how far its logits are from those of the reference; ``ValueError`` if a weight is wrong."""
    import torch
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    ids = torch.tensor([tokenizer(_TEXT)["input_ids"]])
    model = _load(folder, trust_remote_code)
    dtype = model.dtype
    logits = _logits(model, ids)
    model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=_NEW_TOKENS)
    name = type(model).__name__
    del model
    trained = _load(reference, trust_remote_code)
    exact = _logits(trained, ids)
    # Buffers stay as they are, since a model computes them anew when it is loaded.
    for weight in trained.parameters():
        weight.data = weight.data.to(dtype)
    rounded = _logits(trained, ids)
    scale = float(exact.abs().max())
    difference = float((logits - rounded).abs().max())
    if not difference <= torch.finfo(dtype).eps * scale:
        raise ValueError(
            f"its logits differ by {difference:.3g} from those of the trained weights, of at most {scale:.3g}"
        )
    return {
        "class": name,
        "tokenizer": type(tokenizer).__name__,
        "tokens": ids.shape[1],
        "max_logit": scale,
        "max_difference": float((logits - exact).abs().max()),
    }


def _load(folder: str, trust_remote_code: bool) -> Any:
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
    # The class that the configuration names: AutoModelForCausalLM knows no models that see images.
    known = getattr(transformers, config.architectures[0], transformers.AutoModelForCausalLM)
    model, report = known.from_pretrained(
        folder, dtype="auto", trust_remote_code=trust_remote_code, output_loading_info=True
    )
    faults = {name: sorted(map(str, found))[:3] for name, found in report.items() if found}
    if faults:
        raise ValueError(f"transformers reports {faults}")
    return model.eval()


def _logits(model: Any, ids: Any) -> Any:
    import torch

    with torch.no_grad():
        return model(input_ids=ids).logits.float()


if __name__ == "__main__":
    question = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        try:
            answer = prove(**question)
        except Exception as error:  # whatever it is, a user of the model would meet it
            answer = {"error": one_line(error)}
    sys.stdout.write(json.dumps(answer))
