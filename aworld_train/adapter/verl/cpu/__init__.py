"""VeRL on CPU: the platform, the training engine and the rollout server of ``rollout.engine=transformers``.

Every process that imports VeRL imports ``platform`` (through ``VERL_USE_EXTERNAL_MODULES``, which raises on error), so
``platform`` imports little; ``registration`` is imported where models are built (``model.external_lib``).
"""

import os

PLATFORM_MODULE = "aworld_train.adapter.verl.cpu.platform"
REGISTRATION_MODULE = "aworld_train.adapter.verl.cpu.registration"
CHECKPOINT_ENGINE_MODULE = "aworld_train.adapter.verl.cpu.checkpoint_engine"
OBJECTS = "objects"
"""Name of the checkpoint engine that is registered there."""


def threads_per_process(processes: int) -> int:
    return max(1, len(os.sched_getaffinity(0)) // max(1, processes))
