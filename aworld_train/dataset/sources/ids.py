"""Remembers the ids of millions of records: two records with other content must not have the same id.

An open-addressing hash table of 64-bit hashes of ids, and 31-bit hashes of contents, in two flat arrays. It is at most
half full, and so takes 24 to 48 bytes for each id, where a dict of ints takes over 120. Two ids with the same hash,
which would be called a conflict, come in a billion ids with a probability of 3 %.
"""

from array import array
from collections.abc import Iterable

_MIN_SLOTS = 1 << 16
_CONTENT_BITS = 0x7FFFFFFF


class IdMemory:
    def __init__(self) -> None:
        self._allocate(_MIN_SLOTS)

    def is_conflict(self, id: str, content: int) -> bool:
        """Whether an earlier record had the id and other content; if none had it, it is remembered."""
        key, content = hash(id) or 1, content & _CONTENT_BITS
        slot = self._slot(key)
        if self._ids[slot]:
            return self._contents[slot] != content
        self._ids[slot], self._contents[slot] = key, content
        self._room -= 1
        if not self._room:
            self._grow()
        return False

    def has_conflict(self, ids: Iterable[str], contents: Iterable[int]) -> bool:
        """As `is_conflict`, for many records at once; records with an empty id have no conflict."""
        return any(id and self.is_conflict(id, content) for id, content in zip(ids, contents, strict=True))

    def _slot(self, key: int) -> int:
        ids, mask = self._ids, self._mask
        slot = key & mask
        while ids[slot] not in (0, key):
            slot = (slot + 1) & mask
        return slot

    def _allocate(self, slots: int) -> None:
        self._mask, self._room = slots - 1, slots // 2
        self._ids = array("q", bytes(8 * slots))
        self._contents = array("i", bytes(4 * slots))

    def _grow(self) -> None:
        ids, contents = self._ids, self._contents
        self._allocate(2 * len(ids))
        for key, content in zip(ids, contents, strict=True):
            if key:
                slot = self._slot(key)
                self._ids[slot], self._contents[slot] = key, content
                self._room -= 1
