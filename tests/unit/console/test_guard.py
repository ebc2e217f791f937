"""The guard: headers in, a verdict out."""

import pytest

from kourou.console.guard import Headers, Rules, check, own_hosts

RULES = Rules(own_hosts("127.0.0.1", 8082))
GOOD = [("host", "127.0.0.1:8082"), ("origin", "http://127.0.0.1:8082"), ("sec-fetch-site", "same-origin")]
CHANGE = [*GOOD, ("x-kourou", "1"), ("content-type", "application/json; charset=utf-8")]


def verdict(method: str, path: str, headers: Headers, rules: Rules = RULES) -> str | None:
    found = check(method, path, headers, rules)
    return None if found is None else found.code


def without(headers: Headers, name: str, *values: str) -> Headers:
    return [*(pair for pair in headers if pair[0] != name), *((name, value) for value in values)]


@pytest.mark.parametrize("host", ["127.0.0.1:8082", "localhost:8082", "LocalHost:8082", "[::1]:8082"])
def test_its_own_names(host: str) -> None:
    headers = [("host", host)]
    assert verdict("GET", "/", headers) is None
    assert verdict("GET", "/api/topics", headers) is None


@pytest.mark.parametrize(
    "hosts",
    [(), ("evil.example:8082",), ("127.0.0.1",), ("127.0.0.1:9999",), ("127.0.0.1:8082", "evil.example"), ("",)],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_foreign_names(hosts: tuple[str, ...], method: str) -> None:
    assert verdict(method, "/api/topics", without(CHANGE, "host", *hosts)) == "wrong_host"


@pytest.mark.parametrize("origin", ["http://evil.example", "https://127.0.0.1:8082", "null", "http://127.0.0.1:80821"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_foreign_origins(origin: str, method: str) -> None:
    assert verdict(method, "/api/topics", without(CHANGE, "origin", origin)) == "foreign_origin"
    twice = without(CHANGE, "origin", "http://127.0.0.1:8082", origin)
    assert verdict(method, "/api/topics", twice) == "foreign_origin"


@pytest.mark.parametrize("site", ["cross-site", "same-site", "x"])
def test_foreign_pages(site: str) -> None:
    """A link from a chat to a page is followed; data is not fetched and nothing is changed for other sites."""
    headers = [("host", "127.0.0.1:8082"), ("sec-fetch-site", site)]
    link = [*headers, ("sec-fetch-mode", "navigate")]
    assert verdict("GET", "/topics/orders", link) is None
    assert verdict("GET", "/topics/orders", headers) == "foreign_origin"
    assert verdict("GET", "/api/topics", link) == "foreign_origin"
    assert verdict("GET", "/events", link) == "foreign_origin"
    assert verdict("POST", "/api/topics", without(CHANGE, "sec-fetch-site", site)) == "foreign_origin"


def test_changes() -> None:
    assert verdict("POST", "/api/topics", CHANGE) is None
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert verdict(method, "/api/topics", without(CHANGE, "x-kourou")) == "missing_header"
        assert verdict(method, "/api/topics", without(CHANGE, "x-kourou", "2")) == "missing_header"
        for kinds in ((), ("text/plain",), ("application/x-www-form-urlencoded",), ("application/json", "text/plain")):
            assert verdict(method, "/api/topics", without(CHANGE, "content-type", *kinds)) == "wrong_type"
    assert verdict("OPTIONS", "/api/topics", CHANGE) == "method_not_allowed"
    assert verdict("TRACE", "/api/topics", CHANGE) == "method_not_allowed"


def test_https_and_other_names() -> None:
    rules = Rules(own_hosts("10.0.0.5", 443, ("console.example",)), is_secure=True)
    for host in ("10.0.0.5", "10.0.0.5:443", "console.example"):
        assert verdict("GET", "/", [("host", host), ("origin", f"https://{host}")], rules) is None
    assert verdict("GET", "/", [("host", "localhost:443")], rules) == "wrong_host"
    assert verdict("GET", "/", [("host", "10.0.0.5"), ("origin", "http://10.0.0.5")], rules) == "foreign_origin"
