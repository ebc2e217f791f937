"""Access control of a controller: its requests are for the super users in its configuration only.

Brokers sign requests with `innerClientAuthenticationCredentials`, operators as `initAuthenticationUser`. These are the
only users, so a controller needs no file of users and no policies. With the credentials, it signs its notices to
brokers, whether it requires signatures or not.
"""

from dataclasses import dataclass

from kourou.access.directory import Directory
from kourou.access.gate import Gate, RefusalLog, add_configured
from kourou.access.guard import Guard
from kourou.access.users import User
from kourou.protocol.signing import Credentials


@dataclass(frozen=True)
class AccessSettings:
    """The access control in the configuration of a controller."""

    authenticates: bool = False
    first_user: User | None = None
    inner_user: User | None = None

    @property
    def inner_credentials(self) -> Credentials | None:
        user = self.inner_user
        return None if user is None else Credentials(user.name, user.password)

    def gate(self) -> Gate | None:
        """Checks requests; None: all requests are served. Raises AccessError."""
        if not self.authenticates:
            return None
        directory = Directory()
        add_configured(directory, (self.first_user, self.inner_user), None)
        return Gate(Guard(directory), RefusalLog())
