"""The adapter for VeRL: composes its configuration, plays its episodes, and runs it on machines without a GPU.

The adapter uses VeRL's extension points where they exist; functions of VeRL are replaced at run time only in
``cpu/registration.py``, ``cpu/engine.py``, ``main.py`` and ``task_runner.py``. Importing this package imports neither
VeRL nor torch.
"""
