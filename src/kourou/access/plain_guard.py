"""The decision about each request by plain_acl.yml, with RocketMQ 4's rules and texts.

RocketMQ 4 has rules for a dozen requests and serves all others to every account. In Kourou, requests that change
topics, groups or the broker, and requests without a rule, need an administrator; see docs/differences.md.
"""

from collections.abc import Iterable
from typing import Final

from kourou.access.addresses import Address
from kourou.access.errors import AccessError
from kourou.access.guard import Need
from kourou.access.plain_acl import Account, PlainAcl
from kourou.access.policies import ResourceType
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers.table import CREATE, DELETE, PUB, SUB, UPDATE
from kourou.protocol.signing import ACCESS_KEY, Credentials
from kourou.protocol.system_names import TRACE_TOPIC

_CHANGES = CREATE | UPDATE | DELETE


class PlainGuard:
    """Access control by accounts."""

    refusal_code: Final = ResponseCode.SYSTEM_ERROR

    def __init__(self, acl: PlainAcl) -> None:
        self._acl = acl
        self.exempt_codes: frozenset[int] = frozenset()

    def secret_of(self, access_key: str) -> str | None:
        """The secret key of an account; None if it does not exist."""
        account = self._acl.accounts.get(access_key)
        return None if account is None else account.secret_key

    def authenticate(self, command: Command, address: Address, certified: str | None = None) -> Account | None:
        """The account that sent a request; None for a trusted address. Raises AccessError.

        `certified` is the account that the certificate of the connection names; it is used for requests without a
        signature.
        """
        if any(pattern.matches(address) for pattern in self._acl.trusted):
            return None
        signed_by = (command.ext or {}).get(ACCESS_KEY)
        key = signed_by or certified
        if not key:
            raise _error("No accessKey is configured")
        account = self._acl.accounts.get(key)
        if account is None:
            raise _error(f"No acl config for {key}")
        if account.trusted is not None and account.trusted.matches(address):
            return None
        if signed_by and not Credentials(key, account.secret_key).have_signed(command):
            raise _error(f"Check signature failed for accessKey={key}")
        return account

    def name_of(self, _account: Account | None, command: Command, certified: str | None) -> str | None:
        """The access key of the sender of a request, as `may_still` takes it; None: unknown."""
        return (command.ext or {}).get(ACCESS_KEY) or certified

    def may_still(self, name: str | None, code: int, needs: Iterable[Need], address: Address) -> bool:
        """May the account with this access key, which sent something before, send a request that needs this?"""
        if any(pattern.matches(address) for pattern in self._acl.trusted):
            return True
        account = self._acl.accounts.get(name or "")
        if account is None:
            return False
        if account.trusted is not None and account.trusted.matches(address):
            return True
        return self.refusal(account, code, needs, address) is None

    def refusal(self, account: Account | None, code: int, needs: Iterable[Need], _address: Address) -> str | None:
        """Why the account may not send a request with these needs; None if it may."""
        if account is None or (account.is_admin and not account.has_rules):
            return None
        needs = list(needs)
        if not account.is_admin and (not needs or any(_is_change(need) for need in needs)):
            return _text(f"Need admin permission for request code={code}, but accessKey={account.access_key} is not")
        for need in needs:
            if need.name is None or not need.rights & (PUB | SUB) or (need.name == TRACE_TOPIC and need.rights & PUB):
                continue
            if need.type is ResourceType.TOPIC:
                rights = account.rights_on_topic(need.name)
            elif need.type is ResourceType.GROUP:
                rights = account.rights_on_group(need.name)
            else:
                continue
            if not rights & need.rights:
                return _text(f"No default permission for {need.type.value.lower()}:{need.name}")
        return None


def _is_change(need: Need) -> bool:
    return bool(need.rights & _CHANGES) and not need.rights & SUB


def _text(text: str) -> str:
    """A refusal as RocketMQ 4 words it."""
    return f"org.apache.rocketmq.acl.common.AclException: {text}"


def _error(text: str) -> AccessError:
    return AccessError(_text(text), PlainGuard.refusal_code)
