"""A cache of encoded routes."""

from collections.abc import Callable

ROUTES_MAX = 50_000
SIZE_MAX = 64 * 1024 * 1024
"""Limits: the number of routes, and their bytes. Above either limit the cache is cleared, which takes about 4 ms;
routes are encoded again on demand."""


class RouteCache:
    """Encoded routes by topic and format (standard JSON or fastjson's)."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, bool], bytes] = {}
        self.size = 0  # at least their bytes: replaced routes stay counted

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
        """The route of this topic changed."""
        self._routes.pop((topic, True), None)
        self._routes.pop((topic, False), None)

    def clear(self) -> None:
        """Something that many routes contain changed."""
        self._routes.clear()
        self.size = 0

    def check(self, encode: Callable[[str, bool], bytes | None]) -> None:
        """Assert that every cached route is up to date, and that the size is right."""
        for (topic, standard), encoded in self._routes.items():
            assert encode(topic, standard) == encoded, f"outdated route of {topic}"
        assert self.size >= sum(map(len, self._routes.values()))
        assert len(self._routes) <= ROUTES_MAX
