"""VeRL on CPU: the platform, the training engine and the rollout server that the ``transformers`` engine means.

``platform`` is imported by every process that imports VeRL (through ``VERL_USE_EXTERNAL_MODULES``, which raises on
error) and is light; ``registration`` is imported where models are built (``model.external_lib``).
"""

PLATFORM_MODULE = "aworld_train.adapter.verl.cpu.platform"
REGISTRATION_MODULE = "aworld_train.adapter.verl.cpu.registration"
