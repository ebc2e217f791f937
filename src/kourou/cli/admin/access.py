"""Users and access rules."""

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import BrokerAddress, ClusterName, Done, Output, Rows, brokers_of, command
from kourou.cli.running import CommandError

if TYPE_CHECKING:
    from kourou.client import Client
    from kourou.protocol.bodies import AclInfo, UserInfo

Username = Annotated[str, typer.Option("--username", "-u", help="Name of the user.")]
Subject = Annotated[str, typer.Option("--subject", "-s", help="Subject of the rule: User:name.")]
Resources = Annotated[str, typer.Option("--resources", "-r", help="Resources of the rule: Topic:a,Group:b.")]
Actions = Annotated[str, typer.Option("--actions", "-a", help="Of Pub, Sub, Create, Update, Delete, Get, List.")]
SourceIps = Annotated[str | None, typer.Option("--sourceIp", "-i", help="Client addresses, separated by commas.")]
Decision = Annotated[str, typer.Option("--decision", "-d", help="Allow or Deny.")]
FromBroker = Annotated[str, typer.Option("--fromBroker", "-f", help="Broker to copy from, host:port.")]
ToBroker = Annotated[str, typer.Option("--toBroker", "-t", help="Broker to copy to, host:port.")]


def _words(text: str | None) -> list[str]:
    return [word for word in ((text or "").replace(";", ",").split(",")) if word.strip()]


# ── Users ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@command("createUser")
async def create_user(
    mq: "Client",
    username: Username,
    password: Annotated[str, typer.Option("--password", "-p", help="Password.")],
    kind: Annotated[str | None, typer.Option("--userType", "-t", help="Super or Normal.")] = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Create a user."""
    if kind not in (None, "Super", "Normal"):
        raise typer.BadParameter(f"-t {kind}: Super or Normal is expected")
    for address in await brokers_of(mq, broker, cluster, with_slaves=True):
        await mq.admin.brokers.create_user(username, password, is_super=kind == "Super", broker=address)
    return Done(f"user {username} on {broker or cluster}")


@command("updateUser")
async def update_user(
    mq: "Client",
    username: Username,
    password: Annotated[str | None, typer.Option("--password", "-p", help="New password.")] = None,
    kind: Annotated[str | None, typer.Option("--userType", "-t", help="Super or Normal.")] = None,
    status: Annotated[str | None, typer.Option("--userStatus", "-s", help="enable or disable.")] = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Change a user; properties that are not given stay unchanged."""
    from kourou.protocol.bodies import UserInfo

    user = UserInfo(username=username, password=password, user_type=kind, user_status=status)
    for address in await brokers_of(mq, broker, cluster, with_slaves=True):
        await mq.admin.brokers.update_user(user, broker=address)
    return Done(f"user {username} changed on {broker or cluster}")


@command("deleteUser")
async def delete_user(
    mq: "Client", username: Username, broker: BrokerAddress = None, cluster: ClusterName = None
) -> Output:
    """Delete a user."""
    for address in await brokers_of(mq, broker, cluster, with_slaves=True):
        await mq.admin.brokers.delete_user(username, broker=address)
    return Done(f"user {username} deleted from {broker or cluster}")


@command("getUser")
async def get_user(
    mq: "Client",
    username: Annotated[str | None, typer.Option("--username", "-u", help="Name of the user.")] = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Show a user."""
    if username is None:
        raise typer.BadParameter("-u is missing: the name of the user")
    found = [await mq.admin.brokers.user(address, username) for address in await brokers_of(mq, broker, cluster)]
    users = [user for user in found if user is not None]
    if not users:
        raise CommandError(f"there is no user {username!r} on {broker or cluster}")
    return _users(users)


@command("listUser")
async def list_users(
    mq: "Client",
    wanted: Annotated[str | None, typer.Option("--filter", "-f", help="Only names with this text.")] = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """List users."""
    found = [
        user
        for address in await brokers_of(mq, broker, cluster)
        for user in await mq.admin.brokers.users(address, wanted)
    ]
    return _users(found)


def _users(users: "list[UserInfo]") -> Rows:
    rows = [[user.username, user.user_type, user.user_status] for user in users]
    return Rows(["#UserName", "#UserType", "#UserStatus"], rows)


@command("copyUser")
async def copy_users(
    mq: "Client",
    source: FromBroker,
    target: ToBroker,
    names: Annotated[str | None, typer.Option("--usernames", "-u", help="Only these, separated by commas.")] = None,
) -> Output:
    """Copy users from one broker to another, with their passwords."""
    brokers = mq.admin.brokers
    wanted = _words(names) or [user.username or "" for user in await brokers.users(source)]
    for name in wanted:
        user = await brokers.user(source, name)
        if user is None:
            raise CommandError(f"there is no user {name!r} on {source}")
        if await brokers.user(target, name) is None:
            is_super = user.user_type == "Super"
            await brokers.create_user(name, user.password or "", is_super=is_super, broker=target)
        else:
            await brokers.update_user(user, broker=target)
    return Done(f"{len(wanted)} users copied from {source} to {target}")


# ── Rules ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@command("createAcl")
async def create_rule(
    mq: "Client",
    subject: Subject,
    resources: Resources,
    actions: Actions,
    decision: Decision,
    source_ips: SourceIps = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Add an access rule."""
    rule = _rule(subject, resources, actions, decision, source_ips)
    for address in await brokers_of(mq, broker, cluster, with_slaves=True):
        await mq.admin.brokers.create_rule(rule, broker=address)
    return Done(f"rule of {subject} on {broker or cluster}: {decision} {actions} of {resources}")


@command("updateAcl")
async def update_rule(
    mq: "Client",
    subject: Subject,
    resources: Resources,
    actions: Actions,
    decision: Decision,
    source_ips: SourceIps = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Change an access rule."""
    rule = _rule(subject, resources, actions, decision, source_ips)
    for address in await brokers_of(mq, broker, cluster, with_slaves=True):
        await mq.admin.brokers.update_rule(rule, broker=address)
    return Done(f"rule of {subject} changed on {broker or cluster}: {decision} {actions} of {resources}")


def _rule(subject: str, resources: str, actions: str, decision: str, source_ips: str | None) -> "AclInfo":
    from kourou.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo

    entries = [
        PolicyEntryInfo(
            resource=resource, actions=_words(actions), source_ips=_words(source_ips) or None, decision=decision
        )
        for resource in _words(resources)
    ]
    return AclInfo(subject=subject, policies=[PolicyInfo(policy_type="Custom", entries=entries)])


@command("deleteAcl")
async def delete_rule(
    mq: "Client",
    subject: Subject,
    resource: Annotated[str | None, typer.Option("--resources", "-r", help="Only rules about this resource.")] = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Delete access rules of a subject."""
    for address in await brokers_of(mq, broker, cluster, with_slaves=True):
        await mq.admin.brokers.delete_rule(subject, resource, broker=address)
    return Done(f"rules of {subject} deleted from {broker or cluster}")


@command("getAcl")
async def get_rules(
    mq: "Client",
    subject: Annotated[str | None, typer.Option("--subject", "-s", help="Subject of the rules: User:name.")] = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """Show the access rules of a subject."""
    if subject is None:
        raise typer.BadParameter("-s is missing: the subject, such as User:name")
    found = [await mq.admin.brokers.rule(address, subject) for address in await brokers_of(mq, broker, cluster)]
    rules = [rule for rule in found if rule is not None]
    if not rules:
        raise CommandError(f"there are no rules of {subject!r} on {broker or cluster}")
    return _rules(rules)


@command("listAcl")
async def list_rules(
    mq: "Client",
    subject: Annotated[str | None, typer.Option("--subject", "-s", help="Only subjects with this text.")] = None,
    resource: Annotated[str | None, typer.Option("--resource", "-r", help="Only rules about this resource.")] = None,
    broker: BrokerAddress = None,
    cluster: ClusterName = None,
) -> Output:
    """List access rules."""
    found = [
        rule
        for address in await brokers_of(mq, broker, cluster)
        for rule in await mq.admin.brokers.rules(address, subject=subject, resource=resource)
    ]
    return _rules(found)


def _rules(rules: "list[AclInfo]") -> Rows:
    rows = [
        [rule.subject, policy.policy_type, entry.resource, entry.actions, entry.source_ips, entry.decision]
        for rule in rules
        for policy in rule.policies or []
        for entry in policy.entries or []
    ]
    return Rows(["#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"], rows)


@command("copyAcl")
async def copy_rules(
    mq: "Client",
    source: FromBroker,
    target: ToBroker,
    subjects: Annotated[str | None, typer.Option("--subjects", "-s", help="Only these, separated by commas.")] = None,
) -> Output:
    """Copy access rules from one broker to another."""
    brokers = mq.admin.brokers
    wanted = _words(subjects) or [rule.subject or "" for rule in await brokers.rules(source)]
    for subject in wanted:
        rule = await brokers.rule(source, subject)
        if rule is None:
            raise CommandError(f"there are no rules of {subject!r} on {source}")
        known = await brokers.rule(target, subject)
        await (brokers.create_rule if known is None else brokers.update_rule)(rule, broker=target)
    return Done(f"rules of {len(wanted)} subjects copied from {source} to {target}")
