"""The adapter for VeRL, whose import imports neither VeRL nor torch.

Functions of VeRL are replaced at run time only in ``cpu/registration.py``, ``cpu/engine.py``, ``main.py`` and
``task_runner.py``.
"""
