"""An update has as many episodes as the others, all rows of each, and every rank as many rows of it."""

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.adapter.verl.mini_batches import arrange

counts = st.lists(st.integers(1, 6), min_size=1, max_size=20)


@pytest.mark.parametrize("keeps_groups", [False, True])
@given(
    rows=counts, updates=st.integers(1, 5), ranks=st.integers(1, 3), of_pass=st.integers(1, 3), data=st.data()
)
def test_rows_of_an_episode_stay_together_and_ranks_get_as_many_rows_of_each_update(
    keeps_groups: bool, rows: list[int], updates: int, ranks: int, of_pass: int, data: st.DataObject
) -> None:
    keys = [f"t{episode % 3}_{episode}_{row}" for episode, count in enumerate(rows) for row in range(count)]
    keys = data.draw(st.permutations(keys))
    made = arrange(keys, updates, ranks * of_pass, keeps_groups=keeps_groups)
    assert made.episodes == len(rows) and made.updates == min(updates, len(rows))
    assert made.rows % (made.updates * ranks * of_pass) == 0
    filled = [*keys, *(f"pad_{number}_0" for number in range(made.rows - len(keys)))]
    tokens = [data.draw(st.integers(2, 50)) for _ in keys] + [128] * (made.rows - len(keys))
    order = made.order(tokens, ranks)
    assert sorted(order) == list(range(made.rows))
    size = made.rows // ranks // made.updates
    parts: list[list[str]] = [[] for _ in range(made.updates)]
    for place, row in enumerate(order):
        parts[place // size % made.updates].append(filled[row])
    episodes = [{key.rsplit("_", 1)[0] for key in part if not key.startswith("pad")} for part in parts]
    assert sum(map(len, episodes)) == len(rows), "an episode is in two updates"
    assert max(map(len, episodes)) - min(map(len, episodes)) <= 1
    if keeps_groups:
        tasks = [filled[row].split("_")[0] for row in made.order(tokens, 1)]
        runs = [task for task, _ in groupby(task for task in tasks if task != "pad")]
        assert len(runs) == len(set(runs)), "a task is cut where an update ends, and nowhere else"


def test_few_rows_fill_a_batch_up() -> None:
    """Two updates of two episodes: 3 + 1 rows and 1 + 1 rows would be filled up by two; 3 + 1 and 2 + 2 by none."""
    keys = [f"t_{episode}_{row}" for episode, count in enumerate((3, 2, 2, 1)) for row in range(count)]
    made = arrange(keys, 2, 1)
    assert (made.rows, sorted(map(len, made.members))) == (8, [4, 4])
