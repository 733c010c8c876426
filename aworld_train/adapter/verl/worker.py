"""Who plays episodes inside VeRL: its agent-loop worker, keeping a record of each episode and an eye on groups.

Ray copies the worker class to its process by value, so that it may refer only to things that can be imported there.
"""

from pathlib import Path
from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from aworld_train.adapter.episodes.groups import Group
from aworld_train.adapter.episodes.paths import EPISODES_FILE
from aworld_train.adapter.episodes.record import Unscored, current_episode, open_record
from aworld_train.adapter.episodes.settings import read_settings
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
        slot = open_record(
            int(trajectory["step"]), bool(trajectory["validate"]), int(trajectory["sample_index"])
        )
        error: BaseException | None = None
        try:
            await super()._run_agent_loop(sampling_params, trajectory=trajectory, **kwargs)
        except Unscored:
            pass  # its line says why; the others of its group go on
        except BaseException as raised:
            error = raised
            raise
        finally:
            slot.write(error)
        return bool(slot.outputs)

    async def _compute_score(self, outputs: list[Any], kwargs: dict[str, Any]) -> None:
        await super()._compute_score(outputs, kwargs=kwargs)
        current_episode().take_score(kwargs)


class EpisodeManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """VeRL's agent-loop manager with ``EpisodeWorker`` as its worker."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = EpisodeWorker
