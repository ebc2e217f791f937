"""Routes as they were last encoded: clients ask for the same ones again and again."""

from collections.abc import Callable

ROUTES_MAX = 50_000
SIZE_MAX = 64 * 1024 * 1024
"""Routes that are kept, and their bytes. Beyond either limit all are dropped, and encoded again as they are asked for.
Dropping them takes some 4 ms."""


class RouteCache:
    """Encoded routes by topic and form (standard JSON or fastjson's)."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, bool], bytes] = {}
        self.size = 0  # at least their bytes: a route that was replaced stays counted

    def __len__(self) -> int:
        return len(self._routes)

    def get(self, topic: str, *, standard: bool) -> bytes | None:
        return self._routes.get((topic, standard))

    def put(self, topic: str, encoded: bytes, *, standard: bool) -> None:
        if self.size + len(encoded) > SIZE_MAX or len(self._routes) >= ROUTES_MAX:
            self.clear()
        self._routes[topic, standard] = encoded
        self.size += len(encoded)

    def drop(self, topic: str) -> None:
        """The route of this topic has changed."""
        self._routes.pop((topic, True), None)
        self._routes.pop((topic, False), None)

    def clear(self) -> None:
        """Something that many routes contain has changed."""
        self._routes.clear()
        self.size = 0

    def check(self, encode: Callable[[str, bool], bytes | None]) -> None:
        """Asserts that every kept route is what would be encoded now, and that the size is counted."""
        for (topic, standard), encoded in self._routes.items():
            assert encode(topic, standard) == encoded, f"outdated route of {topic}"
        assert self.size >= sum(map(len, self._routes.values()))
        assert len(self._routes) <= ROUTES_MAX
