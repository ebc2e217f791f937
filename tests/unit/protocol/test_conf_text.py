"""Java's .properties text: the rules of java.util.Properties, and texts that survive both ways."""

import pytest
from hypothesis import given, settings, strategies as st

from kourou.protocol import conf_text
from kourou.protocol.errors import BodyError, ProtocolError


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("\n\n  \t\f\n", {}),
        ("a=1", {"a": "1"}),
        ("a=1\nb=2\r\nc=3\rd=4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("a:1\nb 2\nc\t3", {"a": "1", "b": "2", "c": "3"}),
        ("a = 1 \n\f b  :\t2", {"a": "1 ", "b": "2"}),
        ("a", {"a": ""}),
        ("a=\nb:\nc ", {"a": "", "b": "", "c": ""}),
        ("=1", {"": "1"}),
        ("a==1\nb=:1\nc = = 1", {"a": "=1", "b": ":1", "c": "= 1"}),
        ("# comment\n! comment\n   # comment\na=#1", {"a": "#1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\\n   2\\\r\n\t3", {"a": "123"}),
        ("a=1\\\n# no comment\nb=2", {"a": "1# no comment", "b": "2"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("# comment\\\na=1", {"a": "1"}),
        ("a=end\\", {"a": "end"}),
        ("\\\n\\\n", {}),
        ("\\\n# comment\n\\\n\na=1", {"a": "1"}),
        (r"a\=b\:c\ d=1", {"a=b:c d": "1"}),
        (r"\#a=1", {"#a": "1"}),
        (r"a=\t\n\r\f\q\"\\", {"a": '\t\n\r\fq"\\'}),
        (r"a=\u0041\u4e2d\u4E2D", {"a": "A中中"}),
        (r"a=\ud83d\ude80", {"a": "🚀"}),
        (r"a=\ud83d!", {"a": "\ufffd!"}),
        ("rocketmqHome=/opt/mq\nconfigStorePath=C\\:\\\\mq", {"rocketmqHome": "/opt/mq", "configStorePath": "C:\\mq"}),
        ("ключ=значение 🚀", {"ключ": "значение 🚀"}),
        ("a=\x0b\x1c\x85\u2028b", {"a": "\x0b\x1c\x85\u2028b"}),
    ],
)
def test_reading(text: str, wanted: dict[str, str]) -> None:
    assert conf_text.loads(text) == wanted


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\u", r"a=\u00g0", r"\uzzzz=1", r"a=\u 123", r"a=\u+123"])
def test_a_broken_escape(text: str) -> None:
    with pytest.raises(BodyError, match="invalid escape"):
        conf_text.loads(text)


def test_writing_as_apache_answers() -> None:
    assert conf_text.dumps({"b": "2 = 3", "a": "C:\\mq"}) == "a=C:\\mq\nb=2 = 3\n"


def test_writing_what_can_be_read_again() -> None:
    assert conf_text.dumps_escaped({"a b": " 1\n2", "#": "\\"}) == "\\#=\\\\\na\\ b=\\ 1\\n2\n"


readable = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(deadline=None)
@given(st.dictionaries(readable, readable, max_size=5))
def test_what_is_written_is_read_again(properties: dict[str, str]) -> None:
    assert conf_text.loads(conf_text.dumps_escaped(properties)) == properties


@settings(deadline=None)
@given(st.text(st.sampled_from("ab=: \t\f\n\r\\#!u0041d8🚀"), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = conf_text.loads(text)
    except ProtocolError:
        return
    "".join(found).encode()
    assert conf_text.loads(conf_text.dumps_escaped(found)) == found
