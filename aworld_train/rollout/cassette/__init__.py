"""A cassette: the tool calls of episodes, recorded into a file, and replayed from it without the environment.

A call is known by its server, its tool, its arguments, and how often its episode had made it before. What is replayed
is the whole answer that the server gave. Replaying suits tools whose answers follow from their arguments and from the
calls before them; nothing that a tool does to the world is done again.

    cassette = open_cassette("runs/a/tools.jsonl", Mode.replay)
    async with RecordedTools(server, cassette) as tools:
        await tools.call("calculator", {"expression": "6*7"})
"""

from aworld_train.rollout.cassette.cassette import Cassette, CassetteReplay, Mode, open_cassette
from aworld_train.rollout.cassette.key import server_identity
from aworld_train.rollout.cassette.recorded import RecordedTools

__all__ = ["Cassette", "CassetteReplay", "Mode", "RecordedTools", "open_cassette", "server_identity"]
