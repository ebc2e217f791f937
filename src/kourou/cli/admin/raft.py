"""Raft groups of Kourou's brokers: their state, their leader, their members. mqadmin has no such commands."""

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import Done, Output, Rows, app, command
from kourou.cli.running import CommandError

if TYPE_CHECKING:
    from kourou.client import Client

raft_app = typer.Typer(
    name="raft",
    help="See and change a Raft group of Kourou's brokers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(raft_app)

Broker = Annotated[str, typer.Option("--brokerAddr", "-b", help="Any broker of the group, host:port.")]
MemberId = Annotated[str, typer.Option("--member", "-m", help="Id of the member, such as n3.")]


@command("status", raft_app)
async def status(mq: "Client", broker: Broker) -> Output:
    """Show the members of a group, and how much of the log each of them has."""
    from kourou.protocol.errors import KourouError

    try:
        _, found = await mq.admin.raft.leader(broker)
    except KourouError:
        found = await mq.admin.raft.status(broker)
    rows: list[list[object]] = [
        [
            one.id,
            one.address,
            "leader" if one.id == found.leader else "voter" if one.voter else "learner",
            one.connected,
            one.log_end,
            None if one.log_end is None else max(found.log_end - one.log_end, 0),
            one.durable,
            one.silent_millis,
        ]
        for one in found.members
    ]
    columns = ["#Member", "#Address", "#Role", "#Connected", "#Log End", "#Behind", "#On Disk", "#Silent Millis"]
    summary = {
        "Group": found.group,
        "Leader": found.leader or "none",
        "Term": found.term,
        "Committed": found.commit,
        "LogEnd": found.log_end,
        "SeenBy": found.id,
    }
    if found.broken:
        summary["Broken"] = found.broken
    return Rows(columns, rows, summary)


@command("transfer", raft_app)
async def transfer(mq: "Client", broker: Broker, member: MemberId) -> Output:
    """Make another member the leader. No message is lost; sends wait for a moment."""
    await mq.admin.raft.transfer(broker, member)
    return Done(f"{member} leads the group")


@command("add", raft_app)
async def add(
    mq: "Client",
    broker: Broker,
    member: MemberId,
    address: Annotated[str, typer.Option("--address", "-a", help="Its address in the group (dLegerPeers).")],
    learner: Annotated[bool, typer.Option("--learner", help="It copies the log and does not vote.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, metavar="SECONDS", help="How long it may take to copy the log.")
    ] = 600.0,
) -> Output:
    """Add a member that is running with an empty store. It votes as soon as it has the log."""
    try:
        await mq.admin.raft.add(broker, member, address, learner=learner, timeout=timeout)
    except TimeoutError:
        raise CommandError(
            f"{member} does not have the log after {timeout:g} s. It is a learner; kourou admin raft status shows its "
            "progress: repeat the command later, or remove the member"
        ) from None
    return Done(f"{member} at {address} is a {'learner' if learner else 'voter'} of the group")


@command("remove", raft_app)
async def remove(mq: "Client", broker: Broker, member: MemberId) -> Output:
    """Remove a member. Stop its broker afterwards."""
    await mq.admin.raft.remove(broker, member)
    return Done(f"{member} is no longer a member of the group: stop its broker")
