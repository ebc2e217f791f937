"""Hostile peers against a real name server process. Whatever they do: it still answers others, and its log is clean."""
