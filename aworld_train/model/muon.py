"""Muon (https://kellerjordan.github.io/posts/muon) in float32: ``torch.optim.Muon``'s bfloat16 is slow on processors."""

import math
from collections.abc import Iterable

import torch

_COEFFICIENTS = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5
_MOMENTUM = 0.95


class Muon(torch.optim.Optimizer):  # type: ignore[misc]
    """Momentum whose update is orthogonalized, for matrices."""

    def __init__(self, matrices: Iterable[torch.Tensor], lr: float, weight_decay: float) -> None:
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay})

    def step(self) -> None:
        with torch.no_grad():
            self._update()

    def _update(self) -> None:
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                momentum = self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
                momentum.lerp_(matrix.grad, 1 - _MOMENTUM)
                update = orthogonalized(matrix.grad.lerp(momentum, _MOMENTUM))
                rows, columns = matrix.shape
                matrix.mul_(1 - group["lr"] * group["weight_decay"])
                matrix.add_(update, alpha=-group["lr"] * math.sqrt(max(1, rows / columns)))


def orthogonalized(matrix: torch.Tensor) -> torch.Tensor:
    """About the nearest matrix whose singular values are equal: they are between 0.7 and 1.2 (Newton-Schulz)."""
    linear, cubic, quintic = _COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    result = matrix.T if is_tall else matrix
    result = result / result.norm().clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram = result @ result.T
        result = torch.addmm(
            result, torch.addmm(gram, gram, gram, beta=cubic, alpha=quintic), result, beta=linear
        )
    return result.T if is_tall else result
