"""Users of RocketMQ's access control who sign in with their access key.

Each account has a console of its own: its client signs requests with the user's key, so brokers decide what the user
may see and change, and no answer, job or audit entry is shared with other accounts. A console that is not used
is closed, and opened again by the next request.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from kourou.client import Client, Credentials
from kourou.client.admin.requests import AdminRequests
from kourou.console.errors import ConsoleError
from kourou.console.limits import ACCOUNT_IDLE_SECONDS, ACCOUNTS_MAX
from kourou.console.state import Access, Console, open_client
from kourou.net.errors import TransportError
from kourou.protocol.codes import RequestCode
from kourou.protocol.errors import RefusedError
from kourou.protocol.headers import UnregisterClient

if TYPE_CHECKING:
    from kourou.console.sessions import Viewer

LOOK_SECONDS: Final = 30.0


class _Account:
    """An access key, and its console while it is used."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.console: Console | None = None
        self.watching: asyncio.Task[None] | None = None

    async def close(self) -> None:
        console, watching = self.console, self.watching
        self.console = self.watching = None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if console is not None:
            await console.close()


class Accounts:
    """The accounts that are signed in."""

    def __init__(self, access: Access, make: Callable[[Access], Console], *, background: bool = True) -> None:
        """`access`: the name servers. `make` opens the console of an account."""
        self._access = access
        self._make = make
        self._background = background
        self._accounts: dict[str, _Account] = {}

    def __len__(self) -> int:
        return len(self._accounts)

    async def sign_in(self, parent: Console, user: str, key: str) -> str | None:
        """The id of the account; None if brokers refuse the key. Raises ConsoleError, TransportError."""
        access = msgspec.structs.replace(self._access, credentials=Credentials(user, key))
        if not await is_accepted(access):
            return None
        if await is_accepted(msgspec.structs.replace(access, credentials=Credentials(user, secrets.token_hex(16)))):
            raise ConsoleError(
                "conflict",
                "the brokers accept any key: access control is off",
                "set authenticationEnabled=true at the brokers, or start the console without --accounts",
            )
        name = account_id(user, key)
        if name not in self._accounts:
            await self._end_unused(parent)
            if len(self._accounts) >= ACCOUNTS_MAX:
                raise ConsoleError("busy", f"{ACCOUNTS_MAX} accounts are signed in", "wait until one signs out")
            self._accounts[name] = _Account(access)
        return name

    def console_of(self, parent: Console, viewer: "Viewer") -> Console:
        """The console of a signed-in account. Raises ConsoleError."""
        account = self._accounts.get(viewer.account)
        if account is None:
            raise ConsoleError("not_signed_in", "the session is over", "sign in again")
        if account.console is None:
            account.console = self._make(account.access)
            account.console.share(parent)
            if self._background:
                account.watching = asyncio.create_task(account.console.watch())
        return account.console

    async def watch(self, parent: Console) -> None:
        """Closes the consoles that are not used, until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.tidy(parent)

    async def tidy(self, parent: Console) -> None:
        """Closes the consoles that are not used, and forgets the accounts without a session."""
        await self._end_unused(parent)
        for account in list(self._accounts.values()):
            console = account.console
            if console is None or console.streams or console.jobs.is_busy:
                continue
            if parent.clock() - console.looked_at > ACCOUNT_IDLE_SECONDS:
                await account.close()

    async def _end_unused(self, parent: Console) -> None:
        """Forgets the accounts without a session, unless they still redrive."""
        used = parent.sessions.accounts()
        for name in [name for name in self._accounts if name not in used]:
            console = self._accounts[name].console
            if console is None or not console.jobs.is_busy:
                await self._accounts.pop(name).close()

    async def close(self) -> None:
        while self._accounts:
            await self._accounts.popitem()[1].close()


def account_id(user: str, key: str) -> str:
    """Of the user and the key: after a change of the key, sessions with the old one end."""
    return f"{user} {hashlib.sha256(key.encode()).hexdigest()}"


async def is_accepted(access: Access) -> bool:
    """Whether the brokers accept requests with this key, whatever rights it has. Raises TransportError.

    A client without groups leaves: the request changes nothing, and needs no right but a valid signature.
    """
    client: Client = open_client(access)
    try:
        requests = AdminRequests(client.session)
        silent: TransportError | None = None
        for address in await requests.masters():
            header = UnregisterClient(client_id=f"console@{secrets.token_hex(8)}")
            try:
                await requests.broker(address, RequestCode.UNREGISTER_CLIENT, header)
            except RefusedError:
                return False
            except TransportError as error:
                silent = error
                continue
            return True
        if silent is not None:
            raise silent
        raise ConsoleError("unreachable", "no broker is registered", "start a broker, or check the name servers")
    except RefusedError:
        return False  # the name server refuses the key
    finally:
        with suppress(TransportError):
            await client.close()
