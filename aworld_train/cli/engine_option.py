"""The option ``--engine``, a short form of the recipe's key ``rollout.engine``."""

from collections.abc import Sequence
from typing import Annotated

import typer

EngineOption = Annotated[
    str | None,
    typer.Option("--engine", help="Short for rollout.engine=NAME: transformers or vllm."),
]


def with_engine(overrides: Sequence[str] | None, engine: str | None) -> list[str]:
    return [*(overrides or ()), *([f"rollout.engine={engine}"] if engine is not None else ())]
