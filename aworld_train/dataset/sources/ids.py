"""Remembers the ids of millions of records: two records with other content must not have the same id.

An open-addressing hash table of 64-bit hashes of ids, and 31-bit hashes of contents, in two flat arrays. It is at most
half full, and so takes 24 to 48 bytes for each id, where a dict of ints takes over 120. Two ids with the same hash,
which would be called a conflict, come in a billion ids with a probability of 3 %.
"""

from collections.abc import Iterable, Sequence

import numpy as np

_MIN_SLOTS = 1 << 16
_CONTENT_BITS = 0x7FFFFFFF

_Ids = np.ndarray[tuple[int], np.dtype[np.int64]]
_Contents = np.ndarray[tuple[int], np.dtype[np.int32]]


class IdMemory:
    def __init__(self) -> None:
        self._allocate(_MIN_SLOTS)

    def is_conflict(self, id: str, content: int) -> bool:
        """Whether an earlier record had the id and other content; if none had it, it is remembered."""
        key, content = hash(id) or 1, content & _CONTENT_BITS
        # A memoryview gives and takes single numbers three times as fast as its array.
        ids, mask = self._id_view, self._mask
        slot = key & mask
        while present := ids[slot]:
            if present == key:
                return self._content_view[slot] != content
            slot = (slot + 1) & mask
        ids[slot], self._content_view[slot] = key, content
        self._room -= 1
        if not self._room:
            self._grow()
        return False

    def has_conflict(self, ids: Sequence[str], contents: Iterable[int]) -> bool:
        """As `is_conflict`, for many records at once; records with an empty id have no conflict."""
        keys = np.fromiter(map(hash, ids), np.int64, len(ids))
        present = np.fromiter(map(bool, ids), np.bool_, len(ids))
        hashes = np.fromiter(contents, np.int64, len(ids)) & _CONTENT_BITS
        keys[keys == 0] = 1
        return self._insert(keys[present], hashes.astype(np.int32)[present])

    def _insert(self, keys: _Ids, contents: _Contents) -> bool:
        while self._room <= len(keys):
            self._grow()
        has_conflict = False
        # Backwards, because of several records for one free slot the last stays in it, and the first should.
        keys, contents = keys[::-1], contents[::-1]
        slots = keys & self._mask
        while len(keys):
            is_free = self._ids[slots] == 0
            self._ids[slots[is_free]] = keys[is_free]
            is_at_slot = self._ids[slots] == keys
            is_new = is_free & is_at_slot
            self._contents[slots[is_new]] = contents[is_new]
            self._room -= len(np.unique(slots[is_new]))
            has_conflict |= bool((self._contents[slots] != contents)[is_at_slot].any())
            keys, contents, slots = (
                keys[~is_at_slot],
                contents[~is_at_slot],
                (slots[~is_at_slot] + 1) & self._mask,
            )
        return has_conflict

    def _allocate(self, slots: int) -> None:
        self._mask, self._room = slots - 1, slots // 2
        self._ids: _Ids = np.zeros(slots, dtype=np.int64)
        self._contents: _Contents = np.zeros(slots, dtype=np.int32)
        self._id_view, self._content_view = self._ids.data, self._contents.data

    def _grow(self) -> None:
        ids, contents = self._ids, self._contents
        self._allocate(2 * len(ids))
        for start in range(0, len(ids), _MIN_SLOTS):
            used = start + np.flatnonzero(ids[start : start + _MIN_SLOTS])
            self._insert(ids[used], contents[used])
