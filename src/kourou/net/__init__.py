"""asyncio connections that carry frames: back-pressure, limits, TLS. Does not know the meaning of the frames."""
