"""A broker under a controller, which elects the master of each broker group.

    identity.py    the id that the controller assigned to this broker, in Apache's files
    client.py      finds the leader of the controllers, registers, asks for the master, sends heartbeats
    in_sync.py     the in-sync set of a master, and how much of the log its members have

Java: ReplicasManager, AutoSwitchHAService.
"""
