"""Brokers: the list, one of them, and changes of its settings."""

from typing import Any, Final

import msgspec

from kourou.console.calls import Call, Done, Preview, Way
from kourou.console.errors import ConsoleError
from kourou.console.facts import Look, now_ms
from kourou.console.routes.overview import broker_rows, if_known
from kourou.console.routes.topics import command
from kourou.console.sessions import Role
from kourou.console.state import Console
from kourou.console.views.brokers import (
    BrokerPage,
    BrokerView,
    ReplicationView,
    epochs_view,
    is_secret,
    raft_replication,
    raft_view,
    replication_view,
    settings_view,
)
from kourou.console.views.overview import Runtime, broker_row
from kourou.printable import printable
from kourou.protocol.errors import KourouError

SETTINGS_MAX: Final = 20
"""Settings that one request changes."""
VALUE_SIZE_MAX: Final = 4096


async def listing(call: Call) -> BrokerPage:
    _, _, rows = await broker_rows(call.look)
    return BrokerPage(rows)


async def broker(console: Console, look: Look, address: str) -> BrokerView:
    """One broker. Facts that it does not return are omitted; a broker that is down has a row with the reason."""
    member = await look.member(address)
    runtime: Runtime
    try:
        runtime = await look.runtime(member.address)
    except (KourouError, ConsoleError) as error:
        runtime = str(error)
    table = {} if isinstance(runtime, str) else runtime
    config = await if_known(look.config(member.address)) or {}
    replication = await if_known(look.replication(member.address))
    epochs = await if_known(look.epochs(member.address))
    raft = await if_known(look.raft(member.address)) if config.get("enableDLegerCommitLog") == "true" else None
    if raft is not None:
        shown: ReplicationView | None = raft_replication(raft)
    else:
        shown = None if replication is None else replication_view(replication)
    return BrokerView(
        broker=broker_row(member, runtime, now_ms()),
        runtime={printable(name): printable(value) for name, value in sorted(table.items())},
        config=settings_view(config),
        replication=shown,
        epochs=[] if epochs is None else epochs_view(epochs),
        raft=raft_view(table, config, raft),
        history=console.rings.history(f"broker:{member.address}", ("in", "out", "disk")),
    )


async def show(call: Call) -> BrokerView:
    return await broker(call.console, call.look, call.path["broker"])


class ChangedSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    settings: dict[str, str]
    preview: bool = False
    confirm: str | None = None


def _check(settings: dict[str, str], config: dict[str, str]) -> None:
    """Raises ConsoleError."""
    if not 1 <= len(settings) <= SETTINGS_MAX:
        raise ConsoleError("bad_request", f"1 to {SETTINGS_MAX} settings are changed at a time")
    for key, value in settings.items():
        if key not in config:
            raise ConsoleError("bad_request", f"the broker has no setting {printable(key[:100])}")
        if is_secret(key):
            raise ConsoleError("bad_request", f"{key} is a secret", "change it in the broker's file")
        if len(value) > VALUE_SIZE_MAX or "\n" in value or "\r" in value:
            remedy = f"at most {VALUE_SIZE_MAX} characters, without line ends"
            raise ConsoleError("bad_request", f"the value of {key} is not valid", remedy)


async def change_config(call: Call) -> Any:
    given = call.read(ChangedSettings)
    member = await call.look.member(call.path["broker"])
    config = await call.look.config(member.address)
    _check(given.settings, config)
    lines = [
        command("updateBrokerConfig", "-b", member.address, "-k", key, "-v", value)
        for key, value in given.settings.items()
    ]
    cli = "; ".join(lines)
    changes = [
        {"key": key, "from": printable(config[key]), "to": printable(value)} for key, value in given.settings.items()
    ]
    if given.preview:
        return Preview({"changes": changes}, cli, member.name)
    call.confirm(given.confirm, member.name)
    await call.look.mq.admin.brokers.set_config(given.settings, broker=member.address)
    call.console.facts.forget("config", "runtime")
    call.note("change settings", f"{member.name} {member.address}", cli=cli)
    return Done({"changes": changes}, cli)


WAYS: Final = (
    Way("GET", "/api/brokers", listing),
    Way("GET", "/api/brokers/{broker}", show),
    Way("PATCH", "/api/brokers/{broker}/config", change_config, Role.ADMINISTER),
)
