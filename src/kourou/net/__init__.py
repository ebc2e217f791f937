"""asyncio connections that carry frames: back-pressure, limits, TLS. Knows nothing of what the frames ask for."""
