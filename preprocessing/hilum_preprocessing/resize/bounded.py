"""A cache bounded in bytes, which drops the least recently used entries. Torch-free."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """At most `limit_bytes` of values, by `size_of`.

    A single value that is larger is made and not kept. For any thread.
    """

    def __init__(self, limit_bytes: int, size_of: Callable[[Value], int]) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._size_of = size_of
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Values held."""
        return len(self._values)

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of the key, made when it is not there.

        Two threads may make it at once; both values are equal.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        self._keep(key, value)
        return value

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._values.clear()
            self.held_bytes = 0

    def _keep(self, key: Key, value: Value) -> None:
        with self._lock:
            if key in self._values or self._size_of(value) > self.limit_bytes:
                return
            self._values[key] = value
            self.held_bytes += self._size_of(value)
            while self.held_bytes > self.limit_bytes:
                self.held_bytes -= self._size_of(self._values.popitem(last=False)[1])
