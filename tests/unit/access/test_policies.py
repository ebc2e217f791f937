"""Policies and decisions, against the rules written out slowly."""

from ipaddress import ip_address

import pytest
from hypothesis import given, strategies as st

from kourou.access.decisions import Decision, Grants
from kourou.access.errors import AccessError
from kourou.access.policies import (
    ENTRIES_MAX,
    Acl,
    Entry,
    Pattern,
    PolicyType,
    Resource,
    ResourceType,
    new_acl,
    new_entry,
    parse_resource,
)
from kourou.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo
from kourou.protocol.headers.table import GET, PUB, SUB, UPDATE, Right

HOME = ip_address("127.0.0.1")


def entry(resource: str, actions: str = "All", decision: str = "Allow", *sources: str) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource=resource, actions=actions.split(","), source_ips=list(sources), decision=decision)


def acl(*custom: PolicyEntryInfo, default: tuple[PolicyEntryInfo, ...] = ()) -> Acl:
    policies = [PolicyInfo(policy_type="Custom", entries=list(custom))] if custom else []
    if default:
        policies.append(PolicyInfo(policy_type="Default", entries=list(default)))
    return new_acl("User:a", AclInfo(policies=policies))


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("*", Resource(ResourceType.ANY, "", Pattern.ANY)),
        ("Topic:orders", Resource(ResourceType.TOPIC, "orders")),
        ("topic:orders-*", Resource(ResourceType.TOPIC, "orders-", Pattern.PREFIXED)),
        ("Group:*", Resource(ResourceType.GROUP, "", Pattern.ANY)),
        ("Cluster:a:b", Resource(ResourceType.CLUSTER, "a:b")),
        ("Queue:x", None),
        ("", None),
        (None, None),
        ("Topic:" + "x" * 1_000, None),
    ],
)
def test_resources(text: str | None, resource: Resource | None) -> None:
    assert parse_resource(text) == resource
    if resource is not None and text is not None:
        assert parse_resource(resource.key) == resource


@pytest.mark.parametrize(
    ("info", "refusal"),
    [
        (entry("Queue:x"), "The resource is null."),
        (entry("Topic:x", "Fly"), "The actions is empty."),
        (entry("Topic:x", "Pub,Any"), "The actions can not be Any."),
        (entry("Topic:x", "Pub", "Perhaps"), "The decision is null or illegal."),
        (entry("Topic:x", "Pub", "Allow", " "), "The source ip is empty."),
        (entry("Topic:x", "Pub", "Allow", "1.2.3"), "The source ip is invalid."),
        (entry("Topic:x", "Pub", "Allow", "1.2.3.4/33"), "The source ip is invalid."),
    ],
)
def test_entries_that_are_not_valid(info: PolicyEntryInfo, refusal: str) -> None:
    with pytest.raises(AccessError) as error:
        new_entry(info)
    assert str(error.value) == refusal


def test_an_entry_keeps_what_was_given() -> None:
    info = entry("Topic:x*", "pub,SUB,Pub", "deny", "10.0.0.0/8")
    assert new_entry(info).info == entry("Topic:x*", "Pub,Sub", "Deny", "10.0.0.0/8")


def test_the_most_exact_entry_decides() -> None:
    grants = Grants(
        acl(
            entry("Topic:a*"),
            entry("Topic:ab*", "All", "Deny"),
            entry("Topic:abc", "Pub"),
            entry("*", "Get"),
            entry("Group:*", "Sub", "Allow", "10.0.0.0/8"),
        )
    )

    def decide(kind: ResourceType, name: str | None, rights: Right) -> Decision:
        return grants.decide(kind, name, rights, HOME)

    assert decide(ResourceType.TOPIC, "ax", PUB) is Decision.ALLOW
    assert decide(ResourceType.TOPIC, "abx", PUB) is Decision.DENY
    assert decide(ResourceType.TOPIC, "abc", PUB) is Decision.ALLOW
    assert decide(ResourceType.TOPIC, "abc", SUB) is Decision.DENY  # the literal entry is not about SUB
    assert decide(ResourceType.TOPIC, "x", GET) is Decision.ALLOW
    assert decide(ResourceType.TOPIC, None, GET) is Decision.ALLOW  # all topics
    assert decide(ResourceType.TOPIC, None, PUB) is Decision.NO_POLICY
    assert decide(ResourceType.GROUP, "g", SUB) is Decision.NO_POLICY  # from another address
    assert grants.decide(ResourceType.GROUP, "g", SUB, ip_address("10.1.1.1")) is Decision.ALLOW


def test_default_entries_count_when_no_custom_entry_applies() -> None:
    grants = Grants(acl(entry("Topic:a", "Pub", "Deny"), default=(entry("Topic:*", "Pub,Sub"),)))
    assert grants.decide(ResourceType.TOPIC, "a", PUB, HOME) is Decision.DENY
    assert grants.decide(ResourceType.TOPIC, "a", SUB, HOME) is Decision.ALLOW
    assert grants.decide(ResourceType.TOPIC, "b", PUB, HOME) is Decision.ALLOW
    assert grants.decide(ResourceType.TOPIC, "b", UPDATE, HOME) is Decision.NO_POLICY


def test_an_entry_replaces_that_of_the_same_resource() -> None:
    merged = acl(entry("Topic:a"), entry("Topic:b")).merged(acl(entry("Topic:a", "Pub", "Deny"), entry("Topic:c")))
    assert [(one.resource.key, one.is_allowed) for one in merged.policies[PolicyType.CUSTOM]] == [
        ("Topic:a", False),
        ("Topic:b", True),
        ("Topic:c", True),
    ]
    left = merged.without(PolicyType.CUSTOM, Resource(ResourceType.TOPIC, "b"))
    assert [one.resource.name for one in left.policies[PolicyType.CUSTOM]] == ["a", "c"]


def test_the_number_of_entries_is_limited() -> None:
    with pytest.raises(AccessError, match=f"more than {ENTRIES_MAX} entries"):
        acl(*(entry(f"Topic:{number}") for number in range(ENTRIES_MAX + 1)))


names = st.sampled_from(["a", "ab", "abc", "b", "ba"])
resources = st.one_of(
    st.just("*"),
    st.builds(
        lambda kind, name, star: f"{kind}:{name}{star}",
        st.sampled_from(["Topic", "Group"]),
        st.sampled_from(["", "a", "ab", "abc", "b"]),
        st.sampled_from(["", "*"]),
    ),
)
entries = st.builds(
    entry,
    resources,
    st.sampled_from(["All", "Pub", "Sub", "Pub,Sub", "Get"]),
    st.sampled_from(["Allow", "Deny"]),
    st.sampled_from(["127.0.0.0/8", "10.0.0.0/8", "0.0.0.0/0"]),
)


@given(
    st.lists(entries, min_size=1, max_size=8),
    st.lists(entries, max_size=4),
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.none() | names,
    st.sampled_from([PUB, SUB, GET, PUB | SUB]),
)
def test_decisions_equal_the_rules_written_out(
    custom: list[PolicyEntryInfo], default: list[PolicyEntryInfo], kind: ResourceType, name: str | None, rights: Right
) -> None:
    found = acl(*custom, default=tuple(default))
    assert Grants(found).decide(kind, name, rights, HOME) is written_out(found, kind, name, rights)


def written_out(acl: Acl, kind: ResourceType, name: str | None, rights: Right) -> Decision:
    def rank(one: Entry) -> tuple[int, int, int]:
        resource = one.resource
        return (resource.type is ResourceType.ANY, resource.pattern.value, -len(resource.name))

    for policy in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        matching = [
            one
            for one in acl.policies.get(policy, ())
            if one.resource.includes(kind, name)
            and one.rights & rights
            and any(HOME in network for network in one.networks)
        ]
        if matching:
            return Decision.ALLOW if min(matching, key=rank).is_allowed else Decision.DENY
    return Decision.NO_POLICY
