"""The row schema: one for live topics, store files and archives.

A query may select some of the columns (`columns` option, or `.schema(...)`); the others then cost nothing.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kourou.spark.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final[dict[str, str]] = {
    "topic": "string",
    "queue_id": "int",
    "queue_offset": "bigint",
    "broker": "string",
    "msg_id": "string",  # the offset id: store host and commit-log offset
    "unique_key": "string",  # the id that the producer gave
    "tags": "string",
    "keys": "string",
    "properties": "map<string,string>",
    "body": "binary",
    "born_timestamp": "timestamp",
    "born_host": "string",
    "store_timestamp": "timestamp",
    "store_host": "string",
    "reconsume_times": "int",
    "flag": "int",
    "sys_flag": "int",
    "body_crc": "int",
    "store_size": "int",
    "commit_log_offset": "bigint",
    "prepared_tx_offset": "bigint",
}
"""Names and Spark types, in order."""

CORRUPT: Final = "corrupt"
"""Why a record of a store is invalid; null if it is valid. The column exists only if a scan reports damage."""

_ALL: Final = {**COLUMNS, CORRUPT: "string"}


def chosen(names: Sequence[str] | None, *, corrupt: bool = False) -> tuple[str, ...]:
    """The requested columns; all if none are given. Raises OptionError for an unknown column."""
    known = {**COLUMNS, CORRUPT: ""} if corrupt else COLUMNS
    if not names:
        return tuple(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        raise OptionError(f"no column {', '.join(unknown)}: there are {', '.join(known)}")
    if len(set(names)) != len(names):
        raise OptionError(f"a column is selected twice in {', '.join(names)}")
    return tuple(names)


def ddl(names: Iterable[str]) -> str:
    """The schema as Spark reads it."""
    return ", ".join(f"{name} {_ALL[name]}" for name in names)


def check_types(given: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The columns of a schema that a user gave, as names and Spark types. Raises OptionError for other types."""
    names = []
    for name, kind in given:
        wanted = _ALL.get(name)
        if wanted is None:
            raise OptionError(f"no column {name}: there are {', '.join(COLUMNS)}")
        if kind != wanted:
            raise OptionError(f"column {name} has type {wanted}, not {kind}")
        names.append(name)
    return tuple(names)


def arrow_schema(names: Iterable[str]) -> "pa.Schema":
    """The schema of Arrow, exactly as Spark expects it of batches."""
    import pyarrow as pa

    types: dict[str, pa.DataType] = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "map<string,string>": pa.map_(pa.string(), pa.string()),
    }
    return pa.schema([pa.field(name, types[_ALL[name]]) for name in names])
