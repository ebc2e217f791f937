"""A request of the broker is decoded in one place, where access control is asked as well."""

import re

import pytest
from tests.architecture.sources import Source, sources

from kourou.protocol import headers

PLACES = {"broker/serving.py", "broker/request_bodies.py"}

DECODES = re.compile(r"\bheaders\.(\w+)\.decode\(|\bfastjson\.decode\(|\.decode\((?:asked\.)?command\.(?:ext|body)\)")


@pytest.mark.parametrize(
    "source",
    [source for source in sources() if source.package == "broker" and source.is_plain and source.name not in PLACES],
    ids=lambda source: source.name,
)
def test_requests_are_decoded_in_one_place(source: Source) -> None:
    found = [match for match in DECODES.finditer(source.text) if match[1] is None or getattr(headers, match[1]).codes]
    assert not found, (
        f"{found[0][0]} … decodes a request. A function that serves requests takes `asked: Request[headers.X]`, whose "
        "`header` is decoded already; `RequestBodies.read` decodes bodies."
    )
