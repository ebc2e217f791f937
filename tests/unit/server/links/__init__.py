"""Connections between brokers."""
