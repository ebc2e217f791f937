"""Access control: which resources a request touches, and whether its sender has the rights.

    request ─▶ the table of requests says which fields name topics and groups, and which right is needed
            ─▶ Touch, one for each ─▶ Rules.verdict ─▶ the request is served, or refused with NO_PERMISSION

Every request is checked once, before the function of its code is called (serving.py). Requests that have the names in
their body are checked when the body is read (request_bodies.py). Without rules (`Access.rules` is None) every request
is allowed, and no touches are computed.

The fast lane does not compute touches either. The sends and pulls that were allowed on a connection are kept in its
`Grants`, for each user who signs on it. The lane verifies the signature and serves the requests that it finds there;
all others take the general path. `Grants` are discarded when users or policies change.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Final, Protocol

from kourou.access.errors import AccessError
from kourou.access.touches import Touch, names_in, touch, touches
from kourou.broker.events import Asked, Peer, Refused
from kourou.protocol import headers
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS, Header, Resource, Right
from kourou.turns import Slices

try:
    from kourou.broker._lane_signing import Signer

    IS_COMPILED = True
except ImportError:
    IS_COMPILED = False

GRANTS_MAX: Final = 4_096
"""The most sends and pulls that are kept for one connection; beyond that all are discarded and learned again."""

OF_ANOTHER_TOPIC: Final = "no permission to access the message that the request refers to"
"""Does not name the topic of the message, since a client that guesses log offsets must not learn topic names."""

NAMES_IN_SLICE: Final = 256
"""How many names in a body are checked before other requests have their turn: about a millisecond."""

SIGNERS_MAX: Final = 16
"""The most access keys that are kept for one connection."""

_SEND_HEADERS: Final = (headers.SendMessage, headers.SendMessageV2)
_LANE_HEADERS: Final = (*_SEND_HEADERS, headers.PullMessage)


class Rules(Protocol):
    """The rules of access control: which user has which rights."""

    refusal_code: int
    """The code of the answer to a request that is not allowed."""

    exempt_codes: frozenset[int]
    """Codes of requests that need no signature or policy, so that a grant can't be derived from them."""

    def secret_of(self, access_key: str) -> str | None:
        """The secret key of a user; None if the user does not exist or is disabled."""

    def authenticate(self, peer: Peer, command: Command, now_ms: int) -> None:
        """Raises AccessError if the sender of the request can't be authenticated."""

    def verdict(self, asked: Asked, touches: Sequence[Touch]) -> str | None:
        """None if the request is allowed; otherwise the reason why it is not.

        A request that names no resource has no touches: only a super user may send it.
        """

    def name_of(self, asked: Asked) -> str | None:
        """The sender of a request, as `may_still` takes it; None: unknown. Raises AccessError."""

    def may_still(self, name: str | None, peer: Peer, code: int, touches: Sequence[Touch]) -> bool:
        """May this sender of an earlier request on the connection send such a request now?"""


class Grants:
    """The sends and pulls that were allowed on a connection: without a signature, and for each access key."""

    __slots__ = ("epoch", "pulls", "sends", "signed", "signers")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch  # of the rules
        self.sends: set[str] = set()  # topics
        self.pulls: set[tuple[str, str]] = set()  # (topic, group)
        self.signed: dict[str, Grants] = {}
        self.signers: dict[bytes, Signer] = {}  # of the lane, by access key

    def of(self, access_key: str, secret: str) -> "Grants":
        """The grants of the owner of an access key."""
        found = self.signed.get(access_key)
        if found is None:
            if len(self.signed) >= SIGNERS_MAX:
                self.signed.clear()
                self.signers.clear()
            found = self.signed[access_key] = Grants(self.epoch)
            if IS_COMPILED:
                self.signers[access_key.encode()] = Signer(secret.encode(), found.sends, found.pulls)
        return found

    def add(self, header: Header | None) -> None:
        if len(self.sends) + len(self.pulls) >= GRANTS_MAX:
            self.sends.clear()
            self.pulls.clear()
        if isinstance(header, _SEND_HEADERS):
            self.sends.add(header.topic)
        elif isinstance(header, headers.PullMessage):
            self.pulls.add((header.topic, header.consumer_group))


class Access:
    """Access control of one broker: off while there are no rules."""

    def __init__(self) -> None:
        self.rules: Rules | None = None
        self.epoch = 0
        """Grants of an earlier epoch are void."""

    def change(self, rules: Rules | None) -> None:
        """Use these rules from now on. Call it within a step, also if the contents of the same rules have changed."""
        self.rules = rules
        self.epoch += 1

    def check_topic(self, asked: Asked, topic: str, right: Right) -> None:
        """Raises Refused if the sender may not access the topic of a record, to which it refers by its offset."""
        if self.rules is not None and self.rules.verdict(asked, [touch(right, Resource.TOPIC, topic)]) is not None:
            raise Refused(self.rules.refusal_code, OF_ANOTHER_TOPIC)

    def name_of(self, asked: Asked) -> str | None:
        """The sender of an allowed request; None without rules, or if the request needs no signature."""
        return None if self.rules is None else self.rules.name_of(asked)

    def may_send(self, name: str | None, peer: Peer, topic: str) -> bool:
        """May this sender of an earlier request on the connection send to a topic now?"""
        wanted = [touch(Right.PUB, Resource.TOPIC, topic)]
        return self.rules is None or self.rules.may_still(name, peer, RequestCode.SEND_MESSAGE_V2, wanted)

    def check_header(self, asked: Asked, header: Header | None) -> None:
        """Raises Refused if the sender may not access the resources that the header names."""
        access = REQUESTS[asked.command.code].access
        if access is not None and access.in_body:
            return  # `check_body` follows
        self._check(asked, list(touches(asked.command.code, header)))
        if isinstance(header, _LANE_HEADERS):
            self._learn(asked, header)

    def refusal(self, asked: Asked, header: Header | None) -> Command | None:
        """The answer to a request that was allowed before and is not now; None: it still is."""
        if self.rules is None:
            return None
        try:
            self.rules.authenticate(asked.peer, asked.command, asked.now_ms)
            self.check_header(asked, header)
        except Refused as refused:
            return asked.command.answer(refused.code, refused.remark)
        except AccessError as error:
            return asked.command.answer(error.code, str(error))
        return None

    def _learn(self, asked: Asked, header: Header) -> None:
        """Remember that this request was allowed, so that the lane may serve others like it."""
        rules, key = self.rules, asked.access_key
        if rules is None or asked.command.code in rules.exempt_codes:
            return
        grants = self.grants_of(asked.peer)
        if key is None:
            grants.add(header)
        elif (secret := rules.secret_of(key)) is not None:
            grants.of(key, secret).add(header)

    def check_body(self, asked: Asked, body: object) -> Slices[None]:
        """Raises Refused if the sender may not access the resources that the body names."""
        access = REQUESTS[asked.command.code].access
        if self.rules is None or access is None or not access.in_body:
            return
        names = iter(dict.fromkeys(names_in(body)))
        some = list(islice(names, NAMES_IN_SLICE))
        while True:  # once without names, too: such a request needs a super user
            self._check(asked, [touch(access.rights, resource, name) for resource, name in some])
            some = list(islice(names, NAMES_IN_SLICE))
            if not some:
                return
            yield len(asked.command.body)

    def _check(self, asked: Asked, found: list[Touch]) -> None:
        if self.rules is not None:
            reason = self.rules.verdict(asked, found)
            if reason is not None:
                raise Refused(self.rules.refusal_code, reason)

    def grants_of(self, peer: Peer) -> Grants:
        """The grants of the connection under the current rules."""
        grants: Grants | None = peer.grants
        if grants is None or grants.epoch != self.epoch:
            grants = peer.grants = Grants(self.epoch)
        return grants
