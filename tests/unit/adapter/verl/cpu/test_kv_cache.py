"""Keys and values stay with their sequence, and remembered ones are found by the longest beginning they share."""

import random
from itertools import takewhile

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aworld_train.adapter.verl.cpu.kv_cache import CacheShape, PrefixStore, RowCache
from tests.properties import examples

SHAPE = CacheShape(layers=2, heads=3, width=4)
MIN_TOKENS = 16
AMPLE = 1 << 30


def states(rows: int, new: int, seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Per layer, keys and values ``[rows, head, new, width]`` as a model would compute them."""
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, SHAPE.heads, new, SHAPE.width)
    return [
        (torch.randn(shape, generator=generator), torch.randn(shape, generator=generator))
        for _ in range(SHAPE.layers)
    ]


def write(
    cache: RowCache, first: int, positions: list[list[int]], view: int, seed: int
) -> list[torch.Tensor]:
    """Write fresh numbers at ``positions`` of rows ``first ..``; per row, what its real positions now hold."""
    cache.rows = max(cache.rows, first + len(positions))
    cache.aim(first, torch.tensor(positions), view)
    new = states(len(positions), len(positions[0]), seed)
    for layer, (keys, values) in enumerate(new):
        seen_keys, seen_values = cache.update(keys, values, layer)
        assert seen_keys.shape == seen_values.shape == (len(positions), SHAPE.heads, view, SHAPE.width)
    both = torch.stack([torch.stack([layer[kind] for layer in new]) for kind in (0, 1)])
    return [
        both[:, :, row, :, [column for column, position in enumerate(at) if position >= 0]]
        for row, at in enumerate(positions)
    ]


def test_new_tokens_go_where_they_belong_and_padding_nowhere() -> None:
    cache = RowCache(SHAPE, AMPLE)
    cache.reserve(2, 6)
    rows = write(cache, 0, [[-1, -1, 0, 1], [0, 1, 2, 3]], view=4, seed=1)
    assert torch.equal(cache.copy_out(0, 2), rows[0])
    assert torch.equal(cache.copy_out(1, 4), rows[1])
    later = write(cache, 0, [[2], [4]], view=5, seed=2)
    assert torch.equal(cache.copy_out(0, 3), torch.cat([rows[0], later[0]], dim=3))
    assert torch.equal(cache.copy_out(1, 5), torch.cat([rows[1], later[1]], dim=3))


def test_memory_grows_in_blocks_ahead_of_need_and_within_the_budget_if_it_can() -> None:
    cache = RowCache(SHAPE, 6 * 257 * SHAPE.bytes_per_token)
    assert (cache.rows, cache.capacity, cache.length, cache._first, cache.get_seq_length()) == (0,) * 5
    sizes = []
    for rows, length in ((3, 255), (4, 255), (1, 256), (7, 10), (1, 257)):
        cache.reserve(rows, length)
        sizes.append((cache.capacity, cache.length))
    # Twice as many rows for a fourth are all that the budget has; more, or longer ones, only as needed.
    assert sizes == [(3, 257), (6, 257), (6, 257), (7, 257), (1, 513)]
    assert cache.keys[1].shape == cache.values[0].shape == (1, SHAPE.heads, 513, SHAPE.width)


def test_what_attention_sees_is_a_view_and_not_a_copy() -> None:
    cache = RowCache(SHAPE, AMPLE)
    cache.reserve(2, 6)
    cache.rows = 2
    cache.aim(0, torch.zeros(2, 1, dtype=torch.long), 3)
    keys, values = states(2, 1, 0)[0]
    assert cache.get_seq_length() == 3
    for seen, store in zip(cache.update(keys, values, 0), (cache.keys[0], cache.values[0]), strict=True):
        assert seen.untyped_storage().data_ptr() == store.untyped_storage().data_ptr()


@examples(60)
@given(st.data(), st.sampled_from([0, 2000 * SHAPE.bytes_per_token, AMPLE]))
def test_moving_and_reserving_keep_what_every_row_holds(data: st.DataObject, budget: int) -> None:
    """Against a model: a list with the content of each row."""
    cache = RowCache(SHAPE, budget)
    held: list[torch.Tensor] = []
    for step in range(data.draw(st.integers(1, 12))):
        action = data.draw(st.sampled_from(["add", "append", "remove", "reserve"]))
        if action == "add":
            length = data.draw(st.sampled_from([1, 7, 255, 256, 300]))
            longest = max([length, *(row.shape[3] for row in held)])
            cache.reserve(len(held) + 1, longest + 1)
            held += write(cache, len(held), [list(range(length))], view=length, seed=step)
        elif action == "append" and held:
            longest = max(row.shape[3] for row in held)
            cache.reserve(len(held), longest + 2)
            positions = [[row.shape[3]] for row in held]
            added = write(cache, 0, positions, view=longest + 1, seed=step)
            held = [torch.cat(pair, dim=3) for pair in zip(held, added, strict=True)]
        elif action == "remove" and held:
            index = data.draw(st.integers(0, len(held) - 1))
            last = held.pop()
            if index < len(held):
                held[index] = last
                cache.move(len(held), index, last.shape[3])
            cache.rows = len(held)
        elif action == "reserve":
            longest = max((row.shape[3] for row in held), default=0)
            cache.reserve(
                len(held) + data.draw(st.integers(0, 5)), longest + data.draw(st.sampled_from([1, 100, 600]))
            )
        for row, content in enumerate(held):
            assert torch.equal(cache.copy_out(row, content.shape[3]), content)


def test_what_is_copied_out_can_be_copied_in_elsewhere_and_stands_alone() -> None:
    cache = RowCache(SHAPE, AMPLE)
    cache.reserve(3, 20)
    [content] = write(cache, 0, [list(range(10))], view=10, seed=1)
    kept = cache.copy_out(0, 10)
    write(cache, 0, [list(range(10))], view=10, seed=2)
    assert torch.equal(kept, content)
    cache.copy_in(2, kept, 7)
    assert torch.equal(cache.copy_out(2, 7), content[:, :, :, :7])
    with pytest.raises(ValueError, match=r"zip\(\)"):
        cache.copy_in(2, kept[:1], 7)


def test_positions_never_written_hold_numbers() -> None:
    # Masked positions still enter attention, times zero; zero times not-a-number would not be zero.
    torch.use_deterministic_algorithms(True)  # memory that nobody initialised is now full of not-a-number
    try:
        cache = RowCache(SHAPE, AMPLE)
        cache.reserve(3, 300)
        cache.reserve(9, 900)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.isfinite(tensor).all() for tensor in (*cache.keys, *cache.values))


def test_reserving_what_is_there_already_allocates_nothing() -> None:
    cache = RowCache(SHAPE, AMPLE)
    cache.reserve(4, 100)
    before = [tensor.data_ptr() for tensor in cache.keys]
    cache.reserve(3, 50)
    cache.reserve(4, 100)
    assert [tensor.data_ptr() for tensor in cache.keys] == before


def test_many_short_sequences_and_later_a_few_long_ones_do_not_take_room_for_many_long_ones() -> None:
    budget = 64 * 300 * SHAPE.bytes_per_token
    cache = RowCache(SHAPE, budget)
    cache.reserve(64, 100)
    cache.rows = 2
    cache.reserve(2, 3000)
    taken = sum(tensor.numel() * tensor.element_size() for tensor in (*cache.keys, *cache.values))
    assert taken <= budget


def test_the_size_of_a_token_is_that_of_its_keys_and_values() -> None:
    cache = RowCache(SHAPE, AMPLE)
    cache.reserve(1, 5)
    stored = cache.copy_out(0, 5)
    assert 5 * SHAPE.bytes_per_token == stored.numel() * stored.element_size()


def stored(tokens: list[int]) -> torch.Tensor:
    """Stand-in for the keys and values of a sequence: four bytes a token, each position naming its token."""
    return torch.tensor(tokens, dtype=torch.float32)[None, None, None, :, None]


def shared(first: list[int], second: list[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))))


def test_the_longest_beginning_is_found() -> None:
    store = PrefixStore(10**6)
    whole = list(range(100))
    for length in (20, 90, 50):
        store.add(whole[:length], stored(whole[:length]))
    length, kept = store.find(whole)
    assert (length, kept is not None and kept.shape[3]) == (90, 90)


def test_a_beginning_counts_to_the_token() -> None:
    store = PrefixStore(10**6)
    store.add(list(range(40)), stored(list(range(40))))
    assert store.find([*range(39), 7, 7, 7])[0] == 39
    assert store.find([*range(17), 7, 7, 7])[0] == 17


def test_the_last_token_is_always_left_to_compute() -> None:
    # The logits after the last token are what the request came for, and they are not remembered.
    store = PrefixStore(10**6)
    store.add(list(range(40)), stored(list(range(40))))
    assert store.find(list(range(40)))[0] == 39


def test_a_short_beginning_is_neither_kept_nor_found() -> None:
    store = PrefixStore(10**6)
    store.add(list(range(MIN_TOKENS - 1)), stored(list(range(MIN_TOKENS - 1))))
    assert len(store) == 0
    store.add(list(range(MIN_TOKENS)), stored(list(range(MIN_TOKENS))))
    assert store.find([*range(MIN_TOKENS - 1), 99, 99])[0] == 0
    assert store.find([*range(MIN_TOKENS), 99])[0] == MIN_TOKENS


def test_the_least_recently_used_goes_first() -> None:
    sequences = [[base + i for i in range(20)] for base in (0, 100, 200)]
    store = PrefixStore(2 * 20 * 4)
    store.add(sequences[0], stored(sequences[0]))
    store.add(sequences[1], stored(sequences[1]))
    store.find(sequences[0])
    store.add(sequences[2], stored(sequences[2]))
    assert [store.find(s)[0] > 0 for s in sequences] == [True, False, True]


def test_what_fills_the_whole_budget_is_kept_and_counted_once() -> None:
    store = PrefixStore(20 * 4)
    for _ in range(2):
        store.add(list(range(20)), stored(list(range(20))))
    assert (len(store), store.bytes) == (1, 20 * 4)


def test_what_is_larger_than_the_whole_budget_drives_nothing_out() -> None:
    store = PrefixStore(30 * 4)
    store.add(list(range(20)), stored(list(range(20))))
    store.add(list(range(500, 540)), stored(list(range(500, 540))))
    assert len(store) == 1
    assert store.find(list(range(20)))[0] == 19


def test_after_clear_nothing_is_found() -> None:
    store = PrefixStore(10**6)
    store.add(list(range(40)), stored(list(range(40))))
    store.clear()
    assert (len(store), store.bytes, store.find(list(range(40)))) == (0, 0, (0, None))


def test_a_sequence_is_still_found_after_another_with_the_same_beginning_was_forgotten() -> None:
    beginning = list(range(32))
    first, second = beginning + [50] * 16, beginning + [60] * 16
    store = PrefixStore(2 * 48 * 4)
    store.add(first, stored(first))
    store.add(second, stored(second))
    store.find(first)
    filler = [900 + i for i in range(48)]
    store.add(filler, stored(filler))  # drives `second` out
    assert len(store) == 2
    assert store.find(first)[0] == 47
    assert store.find([*beginning, 70, 71])[0] == 32


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_added_the_budget_holds_and_what_is_found_is_a_true_beginning(seed: int) -> None:
    rng = random.Random(seed)
    budget = 600 * 4
    store = PrefixStore(budget)
    added: list[list[int]] = []
    for _ in range(400):
        tokens = [rng.randrange(2) for _ in range(rng.randint(1, 90))]
        if added and rng.random() < 0.6:
            base = rng.choice(added)
            tokens = base[: rng.randint(0, len(base))] + tokens
        if rng.random() < 0.5:
            store.add(tokens, stored(tokens))
            added.append(tokens)
        else:
            length, kept = store.find(tokens)
            assert (kept is None) == (length == 0)
            assert length < len(tokens)
            if kept is not None:
                assert kept[0, 0, 0, :length, 0].tolist() == tokens[:length]
                assert length >= min(MIN_TOKENS, len(tokens) - 1)
        assert 0 <= store.bytes <= budget
        if len(store) == 0:
            assert store.bytes == 0


@examples(150)
@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=60), min_size=1, max_size=8),
    st.lists(st.integers(0, 1), min_size=1, max_size=70),
)
def test_without_a_limit_as_much_is_found_as_any_sequence_shares(
    sequences: list[list[int]], wanted: list[int]
) -> None:
    store = PrefixStore(10**9)
    for tokens in sequences:
        store.add(tokens, stored(tokens))
    best = max(shared(tokens, wanted) for tokens in sequences)
    found, _ = store.find(wanted)
    assert found == (min(best, len(wanted) - 1) if best >= MIN_TOKENS else 0)
