"""What runs inside a tool environment.

    client ──HTTP──► gateway ──unix socket──► worker ──stdin, stdout──► tool servers

A worker runs the tool servers of one session and is wiped before the next. Both backends of ``aworld_train.env`` run
this: in containers, or as processes of this machine. The folder is copied into images, so it imports the standard
library, aiohttp, yaml, jwt, prometheus_client, and of aworld-train only ``errors`` and ``masking``.
"""
