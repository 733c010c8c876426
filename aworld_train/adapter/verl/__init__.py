"""VeRL: composes its configuration, plays its episodes, and runs it on machines without a GPU.

Everything here goes through VeRL's own extension points; nothing of VeRL is patched except the one call named in
``cpu/platform.py``. Importing this package imports neither VeRL nor torch.
"""
