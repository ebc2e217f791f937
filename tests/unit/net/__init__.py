"""Connections on real loopback sockets, on asyncio's own loop and on uvloop."""
