from collections.abc import Sequence

import pyarrow as pa

from kourou.protocol.record import Scanner
from kourou.spark.selection import Selection

class CompiledRows:
    rows: int
    size: int
    skipped: int
    def __init__(
        self,
        columns: Sequence[str],
        *,
        selection: Selection = ...,
        broker: str | None = None,
        decompressing: bool = True,
        max_body: int = ...,
        verify: bool = False,
        on_damage: str = "fail",
        rows_max: int = ...,
        size_max: int = ...,
    ) -> None: ...
    def aim(self, broker: str | None, offset_from: int, offset_to: int) -> None: ...
    def fill(self, scanner: Scanner, stop_at: int) -> int: ...
    def damage(self, offset: int, size: int, reason: str) -> None: ...
    def finish(self) -> pa.RecordBatch: ...
