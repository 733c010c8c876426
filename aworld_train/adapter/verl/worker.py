"""VeRL's agent-loop worker, which records each episode and plays the failed episodes of small groups again.

Ray copies the worker class to its process by value, so the class may use only names that can be imported in that
process.
"""

import os
from pathlib import Path
from typing import Any

import ray
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopManagerTQ, AgentLoopWorkerTQ

from aworld_train.adapter.episodes.groups import Group
from aworld_train.adapter.episodes.paths import EPISODES_FILE
from aworld_train.adapter.episodes.record import RUN_DIR_VARIABLE, current_record, open_record
from aworld_train.adapter.episodes.settings import read_settings
from aworld_train.adapter.verl import liveness
from aworld_train.adapter.verl.log import error_line
from aworld_train.adapter.verl.reward import take_score
from aworld_train.rollout.pauses import keep_pauses_short, while_nobody_waits
from aworld_train.waits import beat, report, waiting


@ray.remote
class EpisodeWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        rollout = self.config.actor_rollout_ref.rollout
        keep_pauses_short()
        report(Path(os.environ[RUN_DIR_VARIABLE]), "episodes")
        self.watch_groups(str(Path(rollout.agent.agent_loop_config_path).with_name(EPISODES_FILE)))

    def watch_groups(self, settings: str) -> None:
        """Read from the file ``episodes.yaml`` below which size failed episodes are played again."""
        self._settings = settings
        self._min_healthy = read_settings(settings).replay_below
        self._groups: dict[str, Group] = {}

    async def until_the_end(self) -> None:
        """Run for as long as this process lives; see ``liveness``."""
        await beat()

    async def _run_prompt(self, prompt: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        uid = prompt["uid"]
        # A row may say how often VeRL plays its task.
        size = int(prompt.get("__rollout_n__", self.config.actor_rollout_ref.rollout.n))
        self._groups[uid] = Group(size, self._min_healthy)
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
        validate = bool(trajectory["validate"])
        record = open_record(int(trajectory["step"]), validate, int(trajectory["sample_index"]))
        session = kwargs["session_id"]
        record.begin(
            read_settings(self._settings),
            kwargs,
            phase="val" if validate else "train",
            attempt=int(session),
            key=f"{kwargs['uid']}_{session}",
        )
        error: BaseException | None = None
        try:
            await super()._run_agent_loop(sampling_params, trajectory=trajectory, **kwargs)
        except BaseException as raised:
            error = raised
            raise
        finally:
            if not record.is_written:
                record.write(error)
        return record.is_usable

    async def _agent_loop_postprocess(self, output: list[Any], validate: bool, **kwargs: Any) -> None:
        if not output:
            return
        record = current_record()
        with waiting("score", str((kwargs.get("extra_info") or {}).get("scorer") or "")):
            try:
                await self._compute_score(output, kwargs=kwargs)
            except ray.exceptions.RayError as error:
                raise RuntimeError(f"the reward worker failed: {error_line(error)}") from error
        score = take_score(output[-1])
        if score is None:  # VeRL was configured with another reward function, or with none
            last = output[-1]
            record.reward(last.reward_score, last.extra_fields.get("reward_extra_info") or {})
        elif not record.score(score, kwargs):
            return
        with waiting("model", "the teacher"):
            for row in output:
                await self._compute_teacher_logprobs(row, row.prompt_ids, row.response_ids, validate, kwargs)
        # VeRL trains on the rows from here on, even if this process is killed.
        await record.keep()
        # VeRL does not score a row again that has a score.
        await super()._agent_loop_postprocess(output, validate, **kwargs)

    async def _compute_teacher_logprobs(self, output: Any, *arguments: Any, **named: Any) -> None:
        """A row's log-probabilities by the teacher, once; VeRL would ask for those of an episode's last row alone."""
        if "teacher_logprobs" in output.extra_fields:
            return
        try:
            await super()._compute_teacher_logprobs(output, *arguments, **named)
        except (ray.exceptions.RayError, ValueError) as error:
            raise RuntimeError(f"the teacher failed: {error_line(error)}") from error


class EpisodeManager(AgentLoopManagerTQ):  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.agent_loop_workers_class = EpisodeWorker

    async def _init_agent_loop_workers(self) -> None:
        await super()._init_agent_loop_workers()
        workers = liveness.numbered("the episode worker", self.agent_loop_workers)
        calls = {name: worker.until_the_end.remote for name, worker in workers.items()}
        liveness.watch(calls | liveness.queue_calls())
