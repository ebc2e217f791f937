"""Users and access rules of brokers, where access control is on."""

from typing import Any, Final

import msgspec

from kourou.console.calls import Call, Done, Preview, Way
from kourou.console.facts import Member
from kourou.console.routes.topics import cluster_names, command
from kourou.console.sessions import Role
from kourou.printable import printable
from kourou.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo
from kourou.protocol.errors import KourouError

MASK: Final = "***"


class UserRow(msgspec.Struct, frozen=True):
    broker: str
    name: str
    is_super: bool = msgspec.field(name="super")
    enabled: bool = True


class RuleRow(msgspec.Struct, frozen=True):
    broker: str
    subject: str
    type: str
    resource: str
    actions: list[str]
    addresses: list[str]
    decision: str


class AclView(msgspec.Struct, frozen=True):
    on: bool
    reason: str
    users: list[UserRow]
    rules: list[RuleRow]


async def acl(call: Call) -> AclView:
    users: list[UserRow] = []
    rules: list[RuleRow] = []
    reason = "no broker answers"
    is_on = False
    for master in await call.look.masters():
        try:
            for user in await call.look.users(master.address):
                is_super = user.user_type == "Super"
                users.append(
                    UserRow(master.name, printable(user.username or ""), is_super, user.user_status != "disable")
                )
            for info in await call.look.rules(master.address):
                rules += _rules_of(master, info)
            is_on = True
        except KourouError as error:
            reason = str(error)
    return AclView(is_on, "" if is_on else printable(reason), users, rules)


def _rules_of(master: Member, info: AclInfo) -> list[RuleRow]:
    return [
        RuleRow(
            master.name,
            printable(info.subject or ""),
            printable(policy.policy_type or ""),
            printable(entry.resource or ""),
            [printable(action) for action in entry.actions or ()],
            [printable(address) for address in entry.source_ips or ()],
            printable(entry.decision or ""),
        )
        for policy in info.policies or ()
        for entry in policy.entries or ()
    ]


async def _command(call: Call, name: str, *words: str) -> str:
    """A line for each cluster: users and rules are created on all of them."""
    return "; ".join(command(name, "-c", cluster, *words) for cluster in await cluster_names(call.look))


class NewUser(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    password: str
    is_super: bool = msgspec.field(default=False, name="super")
    preview: bool = False
    confirm: str | None = None


async def create_user(call: Call) -> Any:
    given = call.read(NewUser)
    words = ("-u", given.name, "-p", MASK, *(("-t", "Super") if given.is_super else ()))
    cli = await _command(call, "createUser", *words)
    if given.preview:
        return Preview({"name": given.name}, cli)
    await call.look.mq.admin.brokers.create_user(given.name, given.password, is_super=given.is_super)
    return _acl_done(call, "create user", given.name, cli)


class Deletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    confirm: str | None = None
    preview: bool = False


async def delete_user(call: Call) -> Any:
    given = call.read(Deletion)
    name = call.path["name"]
    cli = await _command(call, "deleteUser", "-u", name)
    if given.preview:
        return Preview({"name": name}, cli, name)
    call.confirm(given.confirm, name)
    await call.look.mq.admin.brokers.delete_user(name)
    return _acl_done(call, "delete user", name, cli)


class NewRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    subject: str
    resource: str
    actions: list[str]
    addresses: list[str] = []
    decision: str = "Allow"
    preview: bool = False
    confirm: str | None = None


async def create_rule(call: Call) -> Any:
    given = call.read(NewRule)
    words = ("-s", given.subject, "-r", given.resource, "-a", ",".join(given.actions), "-d", given.decision)
    cli = await _command(call, "createAcl", *words, *(("-i", ",".join(given.addresses)) if given.addresses else ()))
    if given.preview:
        return Preview({"subject": given.subject}, cli)
    entry = PolicyEntryInfo(
        resource=given.resource, actions=given.actions, source_ips=given.addresses, decision=given.decision
    )
    rule = AclInfo(subject=given.subject, policies=[PolicyInfo(policy_type="Custom", entries=[entry])])
    await call.look.mq.admin.brokers.create_rule(rule)
    return _acl_done(call, "create rule", f"{given.subject} {given.resource}", cli)


class RuleDeletion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    subject: str
    resource: str | None = None
    confirm: str | None = None
    preview: bool = False


async def delete_rule(call: Call) -> Any:
    given = call.read(RuleDeletion)
    words = ("-s", given.subject, *(("-r", given.resource) if given.resource else ()))
    cli = await _command(call, "deleteAcl", *words)
    if given.preview:
        return Preview({"subject": given.subject}, cli, given.subject)
    call.confirm(given.confirm, given.subject)
    await call.look.mq.admin.brokers.delete_rule(given.subject, given.resource)
    return _acl_done(call, "delete rule", f"{given.subject} {given.resource or ''}", cli)


def _acl_done(call: Call, action: str, what: str, cli: str) -> Done:
    call.console.facts.forget("users", "rules")
    call.note(action, what, cli=cli)
    return Done({"name": what}, cli)


WAYS: Final = (
    Way("GET", "/api/acl", acl, Role.ADMINISTER),
    Way("POST", "/api/acl/users", create_user, Role.ADMINISTER),
    Way("DELETE", "/api/acl/users/{name}", delete_user, Role.ADMINISTER),
    Way("POST", "/api/acl/rules", create_rule, Role.ADMINISTER),
    Way("DELETE", "/api/acl/rules", delete_rule, Role.ADMINISTER),
)
