"""Who plays episodes inside VeRL: its agent-loop worker, keeping a record of each episode and an eye on groups.

Ray copies the worker class to its process by value, so that it may refer only to things that can be imported there.
"""

from pathlib import Path
from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from aworld_train.adapter.episodes.groups import Group
from aworld_train.adapter.episodes.record import current_record, open_record
from aworld_train.adapter.episodes.settings import EPISODES_FILE, read_settings
from aworld_train.adapter.verl.reward import take_score
from aworld_train.rollout.pauses import keep_pauses_short, while_nobody_waits


@ray.remote
class EpisodeWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    """VeRL's agent-loop worker, keeping a record of each episode.

    Where the recipe says so, a group with too few healthy episodes plays the failed ones once more.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        rollout = self.config.actor_rollout_ref.rollout
        keep_pauses_short()
        self.watch_groups(str(Path(rollout.agent.agent_loop_config_path).with_name(EPISODES_FILE)))

    def watch_groups(self, settings: str) -> None:
        """Play small groups again from now on, if the file of settings says so."""
        self._least = read_settings(settings).replay_below
        self._groups: dict[str, Group] = {}

    async def _run_prompt(self, prompt: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        uid = prompt["uid"]
        # VeRL plays a task as often as its row says, where it says so.
        size = int(prompt.get("__rollout_n__", self.config.actor_rollout_ref.rollout.n))
        self._groups[uid] = Group(size, self._least)
        try:
            await super()._run_prompt(prompt, *args, **kwargs)
        finally:
            del self._groups[uid]
            if not self._groups:
                while_nobody_waits()

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], **kwargs: Any
    ) -> Any:
        group = self._groups[kwargs["uid"]]
        healthy = False
        try:
            healthy = await self._play(sampling_params, trajectory, **kwargs)
        finally:
            group.report(healthy)
        if not healthy and not trajectory["validate"] and await group.too_small():
            await self._play(sampling_params, trajectory, **kwargs)

    async def _play(self, sampling_params: dict[str, Any], trajectory: dict[str, Any], **kwargs: Any) -> bool:
        """Play an episode, put its rows where VeRL looks for them, and say whether there are any."""
        record = open_record(
            int(trajectory["step"]), bool(trajectory["validate"]), int(trajectory["sample_index"])
        )
        error: BaseException | None = None
        try:
            await super()._run_agent_loop(sampling_params, trajectory=trajectory, **kwargs)
        except BaseException as raised:
            error = raised
            raise
        finally:
            record.write(error)
        return record.kept

    async def _agent_loop_postprocess(self, output: list[Any], validate: bool, **kwargs: Any) -> None:
        """Score an episode and put its rows where VeRL looks for them; one without a score is left out."""
        if not output:
            return
        record = current_record()
        await self._compute_score(output, kwargs=kwargs)
        score = take_score(output[-1])
        if score is None:  # VeRL was configured to score in another way, or not at all
            last = output[-1]
            record.reward(last.reward_score, last.extra_fields.get("reward_extra_info") or {})
        elif not record.score(score, kwargs):
            return
        # VeRL does not score again what has a score.
        await super()._agent_loop_postprocess(output, validate, **kwargs)


class EpisodeManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """VeRL's agent-loop manager with ``EpisodeWorker`` as its worker."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = EpisodeWorker
