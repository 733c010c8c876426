"""The environment gateway: the one published port of an environment, in front of its workers.

``app`` checks tokens and forwards requests, ``pool`` assigns workers to sessions and queues those that wait, ``link``
follows the state of one worker, ``metrics`` counts. ``worker.relay`` states why this is not built on the mcp SDK.
"""
