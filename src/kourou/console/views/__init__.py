"""Converts facts to structs that are sent as JSON. Pure: times are arguments, and no requests are sent."""
