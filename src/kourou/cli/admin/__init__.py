"""`kourou admin`: the commands of `mqadmin`, by their names and flags, for our brokers and Apache's.

    commands.py                                    how a command is declared
    topics.py groups.py messages.py brokers.py     the commands, by what they are about

Each is a function over `kourou.client.admin` that returns its result; `commands.show_output` decides for all of them
how that is shown: as a table for people, as JSON with --json.
"""

from kourou.cli.admin import brokers, groups, messages, topics
from kourou.cli.admin.commands import app

__all__ = ["app", "brokers", "groups", "messages", "topics"]
