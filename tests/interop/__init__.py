"""Our name server among the real parts of Apache RocketMQ. README.md tells what runs here."""
