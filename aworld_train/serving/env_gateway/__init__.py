"""The environment gateway: the one published port of an environment, in front of its workers.

``worker.relay`` states why this is not built on the mcp SDK.
"""
