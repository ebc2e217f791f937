"""Encodes and decodes the RocketMQ remoting protocol. Pure: no I/O, and no imports from other packages of Kourou."""
