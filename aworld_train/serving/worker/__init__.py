"""A worker: runs the tool servers of one session, is wiped, and runs those of the next.

``app`` speaks HTTP with the gateway, ``relay`` MCP with the client, ``toolserver`` MCP with one server on its standard
input and output. ``spawner`` starts servers by forking, ``wipe`` brings the worker back to where it was.
"""
