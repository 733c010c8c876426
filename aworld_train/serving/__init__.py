"""What runs inside a tool environment: a gateway in front, workers behind it, tool servers in the workers.

    client ──HTTP──► gateway ──unix socket──► worker ──stdin, stdout──► tool servers

The gateway listens for MCP over streamable HTTP, checks tokens, and gives each session a worker of its own. A worker
runs the tool servers of one session and is wiped before the next. Both backends of ``aworld_train.env`` run exactly
this: in containers, or as processes of this machine.

This folder is copied into images. It imports the standard library, aiohttp, yaml, jwt, prometheus_client, and of
aworld-train nothing but ``aworld_train.errors`` and ``aworld_train.masking``.
"""
