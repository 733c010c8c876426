"""A worker: runs the tool servers of one session, is wiped, and runs those of the next.

``app`` speaks HTTP with the gateway, ``relay`` MCP with the client, ``toolserver`` MCP with one server.
"""
