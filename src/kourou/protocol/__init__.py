"""Bytes <-> values of the RocketMQ remoting protocol; pure, imports nothing of ours."""
