"""The state that all requests of one console share."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from kourou._version import __version__
from kourou.client import Client, ClientSettings, Credentials, TlsSettings
from kourou.client.pacing import Pacing
from kourou.console.audit import Audit
from kourou.console.exporting import Collector, Exporting
from kourou.console.facts import Facts
from kourou.console.guard import Rules
from kourou.console.jobs import Jobs
from kourou.console.limits import (
    BACKGROUND_PER_SECOND,
    BODY_SIZE_MAX,
    REQUESTS_PER_SECOND,
    SCANS_MAX,
    UNDER_WAY_MAX,
    WAITING_MAX,
)
from kourou.console.rings import Rates, Rings
from kourou.console.sessions import Sessions, Viewer
from kourou.console.users import Users
from kourou.console.views.overview import GroupState
from kourou.console.views.session import Feature
from kourou.console.watching import Watching

if TYPE_CHECKING:
    from kourou.console.accounts import Accounts

STATE_SECONDS: Final = 600.0
"""How long the state of a group is shown, in addition to the time for two checks of all groups."""


class Access(msgspec.Struct, frozen=True):
    """The cluster, and the credentials for it."""

    name_servers: Sequence[str]
    credentials: Credentials | None = None
    tls: TlsSettings | None = None
    namespace: str | None = None


def open_client(access: Access) -> Client:
    """A client that keeps to the console's budget."""
    return Client(
        ClientSettings(
            name_servers=tuple(access.name_servers),
            credentials=access.credentials,
            tls=access.tls,
            namespace=access.namespace,
            producer_group="KOUROU_CONSOLE",
            max_body=BODY_SIZE_MAX,
            pacing=Pacing(UNDER_WAY_MAX, REQUESTS_PER_SECOND, waiting_max=WAITING_MAX),
        )
    )


class Console:
    """The console of one cluster."""

    def __init__(
        self,
        mq: Client,
        rules: Rules,
        *,
        users: Users | None = None,
        read_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
        on_token_used: Callable[[], None] | None = None,
        cookie: str = "kourou_console",
        collector: Collector | None = None,
        trace_url: str | None = None,
    ) -> None:
        self.mq = mq
        self.rules = rules
        self.users = users
        self.read_only = read_only
        self.clock = clock
        self.sessions = Sessions(clock)
        self.facts = Facts(mq, clock)
        self.rings = Rings()
        self.rates = Rates()
        self.audit = Audit()
        self.version = __version__
        self.on_token_used = on_token_used
        """Called when the one-time token was used, so that the process creates and prints another one."""
        self.cookie = cookie
        self.collector = collector
        """Where metrics of the brokers are sent; None: nowhere."""
        self.accounts: Accounts | None = None
        """Set if users sign in with their RocketMQ keys. This console then only has their sessions."""
        self.trace_url = trace_url
        """The page of a trace in another tool, with `{trace_id}` for its id."""
        self.password_gate = asyncio.Semaphore(1)
        self.jobs = Jobs()
        self.streams = 0
        """How many streams of events are open."""
        self.scan_gate = asyncio.Semaphore(SCANS_MAX)
        self.closing = asyncio.Event()
        self.group_states: dict[str, GroupState] = {}
        self.slaves_behind: dict[str, int] = {}
        self.raft_missing: dict[str, list[str]] = {}
        """Members that the leader of a Raft group, whose address this is, does not hear."""
        self.known_features: dict[str, Feature] = {}
        self.looked_at = float("-inf")
        self.overview_at = float("-inf")

    @property
    def login(self) -> str:
        """How users sign in: token, password, or key."""
        if self.accounts is not None:
            return "key"
        return "token" if self.users is None else "password"

    def share(self, parent: "Console") -> None:
        """Take the sessions of another console, its limit of searches, its end, and what was redriven."""
        self.jobs = Jobs(parent.jobs.redriven)
        self.sessions, self.scan_gate, self.closing = parent.sessions, parent.scan_gate, parent.closing

    def of(self, viewer: Viewer | None) -> "Console":
        """The console with which a viewer works. Raises ConsoleError."""
        if self.accounts is None or viewer is None:
            return self
        return self.accounts.console_of(self, viewer)

    @property
    def name_servers(self) -> list[str]:
        return list(self.mq.session.name_servers.addresses)

    # ── Background work ───────────────────────────────────────────────────────────────────────────────────────────

    def features(self) -> dict[str, Feature]:
        """The features of the brokers, as far as they are known."""
        return self.known_features

    def fresh_states(self) -> list[GroupState]:
        """The recent states of groups. Old ones, from before the overview was last displayed, are omitted."""
        since = self.clock() - STATE_SECONDS - 2 * len(self.group_states) / BACKGROUND_PER_SECOND
        return [state for state in self.group_states.values() if state.at >= since]

    def note_look(self) -> None:
        """The console is in use."""
        self.looked_at = self.clock()

    def overview_looked(self) -> None:
        """The overview is displayed."""
        self.overview_at = self.clock()

    async def watch(self) -> None:
        """Collects figures until it is cancelled, and sends metrics if they are wanted."""
        exporting = () if self.collector is None else (Exporting(self, self.collector).run(),)
        work = Watching(self).run() if self.accounts is None else self.accounts.watch(self)
        await asyncio.gather(work, *exporting)

    async def close(self) -> None:
        if self.accounts is not None:
            await self.accounts.close()
        await self.jobs.close()
        await self.mq.close()
