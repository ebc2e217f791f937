from kourou.broker.access import Access
from kourou.broker.clients import Clients
from kourou.broker.events import Peer
from kourou.broker.groups import Groups
from kourou.broker.message_writer import MessageWriter
from kourou.broker.meters import Meters
from kourou.broker.offsets import Offsets
from kourou.broker.send import Send
from kourou.broker.settings import BrokerSettings
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.broker.transactions.service import Transactions
from kourou.store.store import Store

class FastLane:
    held_batches: int
    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        send: Send,
        writer: MessageWriter,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        offsets: Offsets,
        stats: Stats,
        access: Access,
        transactions: Transactions,
        *,
        answers_max: int,
    ) -> None: ...
    def serve(self, peer: Peer, data: bytes, now_ms: int) -> tuple[int, bytes, bytes, int, bool]: ...
    def dispatch(self) -> bool: ...
    def tables_may_change(self) -> None: ...
    def took(self, ms: int) -> None: ...
    def hand_over(self, meters: Meters) -> None: ...
