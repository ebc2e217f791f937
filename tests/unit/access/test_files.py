"""The sealed file of users, plain_acl.yml, and addresses."""

import base64
from contextlib import suppress
from ipaddress import ip_address

import pytest
from hypothesis import given, strategies as st

from kourou.access.addresses import AddressPattern, parse_address
from kourou.access.decisions import Decision, Grants
from kourou.access.directory import Directory
from kourou.access.errors import AccessError, AccessFileError
from kourou.access.plain_acl import Account, migrate, parse
from kourou.access.policies import ResourceType
from kourou.access.sealing import parse_key, seal, unseal
from kourou.protocol.headers.table import PUB, SUB, Right

KEY = bytes(range(32))


def test_a_sealed_file() -> None:
    sealed = seal(b"content", KEY)
    assert b"content" not in sealed and unseal(sealed, KEY, "users") == b"content"
    assert seal(b"content", None) == b"content" == unseal(b"content", KEY, "users")
    with pytest.raises(AccessFileError, match="users is sealed; give its key"):
        unseal(sealed, None, "users")
    for data, key in ((sealed, bytes(32)), (sealed[:-1], KEY), (sealed[:20], KEY), (sealed[:-1] + b"x", KEY)):
        with pytest.raises(AccessFileError, match="can't be opened with this key"):
            unseal(data, key, "users")


def test_keys() -> None:
    assert parse_key(base64.b64encode(KEY).decode() + "\n", "f") == KEY
    for text in ("", "x", base64.b64encode(b"short").decode(), "ä" * 44):
        with pytest.raises(AccessFileError, match="the key in f is not 32 bytes in base64; make one with"):
            parse_key(text, "f")


@pytest.mark.parametrize(
    ("pattern", "included", "excluded"),
    [
        ("*", ["1.2.3.4", "::1"], []),
        ("*.*.*.*", ["1.2.3.4", "::1"], []),
        ("*:*:*:*:*:*:*:*", ["1.2.3.4", "::1"], []),
        ("1.2.3.4", ["1.2.3.4"], ["1.2.3.5", "::1"]),
        ("1.2.3.{4,6}", ["1.2.3.4", "1.2.3.6"], ["1.2.3.5"]),
        ("1.2.3.4, 1.2.3.5", ["1.2.3.4", "1.2.3.5"], ["1.2.3.6"]),
        ("1.2.3.*", ["1.2.3.0", "1.2.3.255"], ["1.2.4.0"]),
        ("1.2.3-7.*", ["1.2.3.9", "1.2.7.9"], ["1.2.8.9"]),
        ("1.2.*", ["1.2.3.4"], ["1.3.3.4"]),
        ("fe80::1", ["fe80::1"], ["fe80::2", "1.2.3.4"]),
        ("2001:db8:0:0:0:0:0:1-f", ["2001:db8::a"], ["2001:db8::10"]),
        ("2001:db8:*", ["2001:db8::a"], ["2001:db9::a"]),
    ],
)
def test_address_patterns(pattern: str, included: list[str], excluded: list[str]) -> None:
    found = AddressPattern(pattern)
    assert [text for text in included if not found.matches(ip_address(text))] == []
    assert [text for text in excluded if found.matches(ip_address(text))] == []


@given(st.text(alphabet="0123456789.*-{},:af", max_size=20))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    with suppress(AccessFileError):
        AddressPattern(text).matches(ip_address("1.2.3.4"))


def test_an_ipv4_peer_of_an_ipv6_socket() -> None:
    assert parse_address("::ffff:10.0.0.1") == ip_address("10.0.0.1")
    assert parse_address("fe80::1%eth0") == ip_address("fe80::1")


TEXT = """
globalWhiteRemoteAddresses: ["10.0.0.*"]
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress: 192.168.0.*
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [topicA=DENY, topicB=PUB|SUB, topicC=SUB]
  groupPerms:
  - groupA=DENY
  - groupB=PUB|SUB
- accessKey: rocketmq2
  secretKey: 12345678
  admin: true
"""


def test_plain_acl() -> None:
    acl = parse([("plain_acl.yml", TEXT)])
    account, admin = acl.accounts["RocketMQ"], acl.accounts["rocketmq2"]
    assert acl.trusted[0].matches(ip_address("10.0.0.9"))
    assert account.trusted is not None and account.trusted.matches(ip_address("192.168.0.1"))
    assert account.secret_key == "12345678" and "12345678" not in repr(account)
    assert (account.rights_on_topic("topicB"), account.rights_on_topic("other")) == (PUB | SUB, Right(0))
    assert (account.rights_on_group("groupA"), account.rights_on_group("other")) == (Right(0), SUB)
    assert admin.is_admin and not admin.has_rules and account.has_rules
    assert parse([("a.yml", ""), ("b.yml", "accounts:\n")]).accounts == {}


REPEATED = "rules: &rules [" + "a=PUB, " * 20_000 + "]\naccounts:\n"
REPEATED += "".join(f"- {{accessKey: account{n}, secretKey: abcdefg, topicPerms: *rules}}\n" for n in range(2_000))
"""Takes 12 seconds to read: there is one topic, so it is far below the limit of permissions."""


def test_an_administrator_is_limited_by_lists_of_permissions_alone() -> None:
    """Defaults apply to names in no list, and are not used without any list: as in RocketMQ 4."""
    text = "accounts: [{accessKey: operator, secretKey: 12345678, admin: true, %s}]"
    for more, has_rules in (
        ("defaultTopicPerm: SUB, defaultGroupPerm: PUB", False),
        ("topicPerms: []", False),
        ("topicPerms: [a=DENY]", True),
        ("groupPerms: [a=SUB]", True),
    ):
        assert parse([("plain_acl.yml", text % more)]).accounts["operator"].has_rules == has_rules


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: b: c", "plain_acl.yml is not valid YAML in line 1: correct the file"),
        ("[" * 100_000, "plain_acl.yml is nested deeper than 32 lists and maps"),
        ("- " * 100_000, "plain_acl.yml is nested deeper than 32 lists and maps"),
        ("a: {" * 100_000, "plain_acl.yml is nested deeper than 32 lists and maps"),
        ("accounts: [{accessKey: " + "1" * 5_000 + ", secretKey: abcdefg}]", "a number or a date that is not valid"),
        (
            "accounts: [{accessKey: " + "1:" * 5_000 + "1, secretKey: abcdefg}]",
            "accessKey has a number that is too long",
        ),
        ("accounts: [{accessKey: " + "1:" * 9_000 + "1, secretKey: abcdefg}]", "a value of more than 16384 characters"),
        ("accounts: [{accessKey: 2024-99-99, secretKey: abcdefg}]", "a number or a date that is not valid"),
        ("accounts: &a [*a]", "plain_acl.yml has aliases that repeat too much"),
        (REPEATED, "plain_acl.yml has aliases that repeat too much"),
        ("- a", "plain_acl.yml has no keys at its top level"),
        ("accounts: 7", "plain_acl.yml: accounts is not a list"),
        ("accounts: [7]", "plain_acl.yml: account 1 is not a map"),
        ("accounts: [{accessKey: abc, secretKey: 12345678}]", "accessKey of account 1 is shorter than 7"),
        ("accounts: [{accessKey: abcdefg, secretKey: s}]", "secretKey of account 1 is shorter than 7"),
        ("accounts: [{accessKey: abcdefg, secretKey: abcdefg, topicPerms: [a]}]", "topicPerms has 'a': write name=PUB"),
        ("globalWhiteRemoteAddresses: [1.2]", "the address '1.2' is not valid"),
        (TEXT + TEXT[TEXT.index("- accessKey") :], "accessKey 'RocketMQ' is also in plain_acl.yml"),
    ],
)
def test_a_plain_acl_that_is_not_valid(text: str, problem: str) -> None:
    with pytest.raises(AccessFileError) as error:
        parse([("plain_acl.yml", text)])
    assert problem in str(error.value)
    assert "12345678" not in str(error.value)


rights = st.sampled_from([Right(0), PUB, SUB, PUB | SUB])
accounts = st.builds(
    Account,
    access_key=st.just("account"),
    secret_key=st.just("12345678"),
    default_topic=rights,
    default_group=rights,
    topics=st.dictionaries(st.sampled_from(["a", "b"]), rights),
    groups=st.dictionaries(st.sampled_from(["a", "b"]), rights),
)


@given(accounts, st.sampled_from(["a", "b", "c"]), st.sampled_from([PUB, SUB]))
def test_a_migrated_account_may_do_the_same(account: Account, name: str, right: Right) -> None:
    """CVE-2024-27309: a migration that loses rules. Never fewer denials than before."""
    user, acl = migrate(account)
    directory = Directory()
    directory.create_user(user)
    directory.put_acl(acl.subject or "", acl)
    grants = directory.grants("account")
    assert isinstance(grants, Grants)
    home = ip_address("127.0.0.1")
    for kind, allowed in (
        (ResourceType.TOPIC, account.rights_on_topic(name)),
        (ResourceType.GROUP, account.rights_on_group(name)),
    ):
        assert (grants.decide(kind, name, right, home) is Decision.ALLOW) == (right in allowed)


def test_a_migrated_account_has_a_valid_name() -> None:
    user, _ = migrate(Account(access_key="bad\x1bname", secret_key="12345678"))
    with pytest.raises(AccessError):
        Directory().create_user(user)
