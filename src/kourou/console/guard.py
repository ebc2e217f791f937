"""Whether a request may pass, by its head alone: method, path, headers in, a verdict out. Pure.

A browser sends requests of foreign pages with the user's cookies, and a foreign page may let its own name resolve to
127.0.0.1. So the host has to be a name of the console, changes need headers that a foreign page can't set without a
preflight request (which is refused, since CORS is not supported), and the origin has to be the console.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from kourou.console.errors import ConsoleError

SAFE_METHODS: Final = frozenset(("GET", "HEAD"))
METHODS: Final = frozenset((*SAFE_METHODS, "POST", "PATCH", "PUT", "DELETE"))

ADDRESS_MAX: Final = 100

OWN_HEADER: Final = "x-kourou"
"""Every change has the header `X-Kourou: 1`, which a foreign page can't set."""

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

ANSWER_HEADERS: Final = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
)
"""The headers of every answer."""


class Rules(msgspec.Struct, frozen=True):
    """The values that the guard compares with."""

    hosts: frozenset[str]
    """The accepted values of `Host`, in lower case."""
    is_secure: bool = False
    """Browsers reach the console by https."""
    is_behind_proxy: bool = False
    """Connections come from a proxy, which adds the address of the browser to `X-Forwarded-For`."""


Headers = Sequence[tuple[str, str]]
"""Names in lower case."""


def check(method: str, path: str, headers: Headers, rules: Rules) -> ConsoleError | None:
    """The refusal, or None. `path` begins with a slash."""
    hosts = _all(headers, "host")
    if len(hosts) != 1 or hosts[0].lower() not in rules.hosts:
        return ConsoleError(
            "wrong_host",
            f"unknown host name {hosts[0][:100]!r}" if hosts else "the request names no host",
            "use the address that the console printed, or start it with --allow-host NAME",
        )
    if method not in METHODS:
        return ConsoleError("method_not_allowed", f"the method {method[:20]} is not supported")
    if refusal := _foreign(method, path, headers, rules):
        return refusal
    return None if method in SAFE_METHODS else _check_change(headers)


def _foreign(method: str, path: str, headers: Headers, rules: Rules) -> ConsoleError | None:
    scheme = "https" if rules.is_secure else "http"
    ours = {f"{scheme}://{host}" for host in rules.hosts}
    if any(origin.lower() not in ours for origin in _all(headers, "origin")):
        return ConsoleError("foreign_origin", "the request comes from a page of another site")
    is_page = method in SAFE_METHODS and not path.startswith(("/api", "/events"))
    is_link = is_page and _all(headers, "sec-fetch-mode") == ["navigate"]
    for site in _all(headers, "sec-fetch-site"):
        if site not in ("same-origin", "none") and not is_link:
            return ConsoleError("foreign_origin", "the request comes from a page of another site")
    return None


def _check_change(headers: Headers) -> ConsoleError | None:
    if _all(headers, OWN_HEADER) != ["1"]:
        return ConsoleError("missing_header", "a change needs the header X-Kourou: 1")
    kinds = [value.partition(";")[0].strip().lower() for value in _all(headers, "content-type")]
    if kinds != ["application/json"]:
        return ConsoleError("wrong_type", "a change needs a JSON body, with Content-Type: application/json")
    return None


def _all(headers: Headers, name: str) -> list[str]:
    return [value for key, value in headers if key == name]


def address_of(peer: str, headers: Headers, rules: Rules) -> str:
    """The address that a request comes from; empty if a proxy does not report it.

    If there are several addresses, the last one counts: the proxy has added it, the others come from the request.
    """
    if not rules.is_behind_proxy:
        return peer
    told = _all(headers, "x-forwarded-for")
    last = told[-1].rpartition(",")[2].strip() if told else ""
    return last[:ADDRESS_MAX]


def own_hosts(host: str, port: int, more: Sequence[str] = ()) -> frozenset[str]:
    """The names of a console that listens on this address: the loopback names too if it listens there."""
    names = {_bracketed(host)}
    if is_loopback(host):
        names |= {"127.0.0.1", "localhost", "[::1]"}
    with_port = {f"{name}:{port}" for name in names}
    if port in (80, 443):
        with_port |= names
    return frozenset(name.lower() for name in (*with_port, *more))


def is_loopback(host: str) -> bool:
    return host in ("localhost", "::1", "[::1]") or host.startswith("127.")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
