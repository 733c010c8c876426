"""Who plays episodes inside VeRL: its agent-loop worker, keeping a record of each episode.

Ray copies the worker class to its process by value, so that it may refer only to things that can be imported there.
"""

from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from aworld_train.adapter.verl.record import open_slot


@ray.remote
class EpisodeWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    """VeRL's agent-loop worker, keeping a record of each episode."""

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], **kwargs: Any
    ) -> Any:
        slot = open_slot(
            int(trajectory["step"]), bool(trajectory["validate"]), int(trajectory["sample_index"])
        )
        error: BaseException | None = None
        try:
            return await super()._run_agent_loop(sampling_params, trajectory=trajectory, **kwargs)
        except BaseException as raised:
            error = raised
            raise
        finally:
            slot.write(error)


class EpisodeManager(AgentLoopManagerTQ):  # type: ignore[misc]
    """VeRL's agent-loop manager with ``EpisodeWorker`` as its worker."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = EpisodeWorker
