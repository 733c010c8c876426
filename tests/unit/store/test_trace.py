"""Where a token of a training row comes from, and whether it was trained on: it, and its episode."""

import uuid

import pytest

from aworld_train.episode.figures import figures_of
from aworld_train.errors import UsageError
from aworld_train.store.content import packed_floats
from aworld_train.store.database import Database
from aworld_train.store.events import TrainedRow
from aworld_train.store.loading import load
from aworld_train.store.reading import Store
from aworld_train.store.recording import StoreRecorder
from aworld_train.store.redaction import Redactor
from aworld_train.store.retention import parse_keep
from aworld_train.store.store_location import StoreLocation
from aworld_train.store.trace import TokenOrigin, trace_token
from tests.stored_episodes import branching_content
from tests.stored_runs import task_row

STEP = 5
ADVANTAGES = [0.5, 0.5, 0.0, -0.25, -0.25, -0.25]


def traced(place: StoreLocation, treatment: str) -> list[list[TokenOrigin]]:
    """The origins of all tokens of the two rows of an episode that is used so."""
    writer = StoreRecorder(place.folder.parent, parse_keep("all"), Redactor())
    episode = uuid.uuid4().hex
    writer.begin(episode, writer.task(task_row(0, 2, 3)), step=STEP, phase="train", attempt=0, key="uid_0")
    writer.end(episode, figures_of({"outcome": "answered", "treatment": treatment}), branching_content())
    writer.trained(
        STEP,
        [
            TrainedRow("uid_0_0", 0.0, 5, packed_floats(ADVANTAGES)),
            TrainedRow("uid_0_1", -1.0, 1),
        ],
    )
    writer.close()
    database = Database(place)
    load(database, final=True)
    database.close()
    with Store(place) as store:
        for position, token in ((0, -1), (0, 8), (1, 6)):
            with pytest.raises(
                UsageError, match=f"Row {position} of step 5 has . tokens, and {token} is none"
            ):
                trace_token(store, STEP, position, token)
        return [
            [trace_token(store, STEP, position, token) for token in range(count)]
            for position, count in ((0, 8), (1, 6))
        ]


def test_tokens_of_an_episode_that_was_trained_on_are_under_its_mask(place: StoreLocation) -> None:
    first, second = traced(place, "trained")
    assert [origin.under_mask for origin in first] == [False, False, True, True, False, True, True, True]
    assert [origin.advantage for origin in first] == [None, None, 0.5, 0.5, None, -0.25, -0.25, -0.25]
    assert [origin.under_mask for origin in second] == [False] * 5 + [True]
    assert [origin.advantage for origin in second] == [None] * 5 + [-1.0]


@pytest.mark.parametrize("treatment", ["masked", ""])
def test_no_token_of_an_episode_that_was_not_trained_on_is_under_the_mask(
    place: StoreLocation, treatment: str
) -> None:
    origins = [origin for row in traced(place, treatment) for origin in row]
    assert {(origin.under_mask, origin.advantage) for origin in origins} == {(False, None)}


def test_a_token_has_its_place_its_call_and_its_weights(place: StoreLocation) -> None:
    first, second = traced(place, "trained")
    assert [origin.token_id for origin in first] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [(origin.node, origin.place) for origin in first] == [
        *((0, 0), (0, 1), (1, 0), (1, 1)),
        *((2, 0), (3, 0), (3, 1), (3, 2)),
    ]
    assert [origin.call_number for origin in second] == [None, None, 0, 0, None, 2]
    assert [origin.logprob for origin in second] == [None, None, -3 / 8, -4 / 8, None, -10 / 8]
    assert [origin.weights for origin in second] == [None, None, (2, 3), (2, 3), None, (2, 3)]
    last = second[-1]
    assert (last.row, last.position, last.agent, last.episode.step) == (1, 1, "solver", STEP)
    assert last.call is not None and last.call.finish_reason == "length"
    assert [message.content for message in last.messages] == ["It is 7."]
