"""What ``agent.yaml`` in the run folder says about episodes: written from the recipe, read where they are played."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from aworld_train.rollout.context import ContextSettings
from aworld_train.rollout.episode import Limits
from aworld_train.rollout.model import Sampling
from aworld_train.rollout.outcome import Outcome, Treatment
from aworld_train.rollout.repetition import RepetitionLimits


@dataclass(frozen=True)
class EpisodeSettings:
    """How episodes are played; the fields are the recipe's keys of the same names."""

    tool_parser: str
    max_turns: int
    max_tool_result_chars: int
    tool_timeout: float
    episode_timeout: float
    recovery_timeout: float
    system_prompt: str | None = None
    servers: tuple[str, ...] = ()
    trainable: tuple[str, ...] = ()
    agents_sampling: bool = False
    outcomes: Mapping[str, str] = field(default_factory=dict)
    repetition: RepetitionLimits = field(default_factory=RepetitionLimits)
    context: ContextSettings = field(default_factory=ContextSettings)

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Self:
        """From the keyword arguments that VeRL makes of ``agent.yaml``; what VeRL adds is left aside."""
        values = {each.name: given[each.name] for each in fields(cls) if each.name in given}
        for name in ("servers", "trainable"):
            values[name] = tuple(values.get(name) or ())
        if isinstance(repetition := values.get("repetition"), Mapping):
            values["repetition"] = RepetitionLimits(**repetition)
        values["outcomes"] = dict(values.get("outcomes") or {})
        return cls(**values)

    def treatment(self, outcome: Outcome) -> Treatment:
        """What becomes of an episode that ended like this."""
        said = self.outcomes.get(outcome.value)
        return Treatment(said) if said else outcome.treatment

    def limits(
        self, sampling_params: Mapping[str, Any], *, validating: bool, prompt: int, response: int
    ) -> Limits:
        """What holds in one episode; where the model is measured, agents have no say in sampling."""
        return Limits(
            max_turns=self.max_turns,
            max_prompt_tokens=prompt,
            max_response_tokens=response,
            sampling=Sampling(
                float(sampling_params.get("temperature", 1.0)),
                float(sampling_params.get("top_p", 1.0)),
                int(sampling_params.get("top_k", -1)),
            ),
            agents_sampling=self.agents_sampling and not validating,
            repetition=self.repetition,
            context=self.context,
        )
