import pyarrow as pa

def is_taken(kind: pa.DataType) -> bool: ...

class Encoder:
    def __init__(
        self,
        body: pa.Array,
        tags: pa.Array | None,
        keys: pa.Array | None,
        unique_keys: pa.Array | None,
        prefix: bytes,
        number: int,
    ) -> None: ...
    def cut(self, size_max: int, rows_max: int) -> list[tuple[int, int, int]] | None: ...
    def encode(self, first: int, end: int, total: int) -> bytes: ...
