"""A cassette: the tool calls of episodes, recorded into a file, and replayed from it without the environment.

A call is identified by its server, its tool, its arguments, and how often its episode made it before. The server's
whole answer is replayed. Replay suits tools whose answers follow from their arguments and the calls before; a tool's
effects outside of its answer are not repeated.

    cassette = open_cassette("runs/a/tools.jsonl", Mode.replay)
    async with RecordedTools(server, cassette) as tools:
        await tools.call("calculator", {"expression": "6*7"})
"""

from aworld_train.rollout.cassette.cassette import Cassette, CassetteReplay, Mode, NoTools, open_cassette
from aworld_train.rollout.cassette.key import server_identity
from aworld_train.rollout.cassette.recorded import RecordedTools

__all__ = [
    "Cassette",
    "CassetteReplay",
    "Mode",
    "NoTools",
    "RecordedTools",
    "open_cassette",
    "server_identity",
]
