"""Real processes that are killed, and real file systems that fill up."""
