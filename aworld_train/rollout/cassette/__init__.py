"""A cassette: the tool calls of episodes, recorded into a file, and replayed from it without the environment.

A call is identified by its server, its tool, its arguments, and how often its episode made it before. The server's
whole answer is replayed, and no effect that the tool had outside of it.
"""

from aworld_train.rollout.cassette.cassette import Cassette as Cassette
from aworld_train.rollout.cassette.cassette import CassetteReplay as CassetteReplay
from aworld_train.rollout.cassette.cassette import Mode as Mode
from aworld_train.rollout.cassette.cassette import NoTools as NoTools
from aworld_train.rollout.cassette.cassette import open_cassette as open_cassette
from aworld_train.rollout.cassette.key import server_identity as server_identity
from aworld_train.rollout.cassette.recorded import RecordedTools as RecordedTools
