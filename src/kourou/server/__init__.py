"""The processes: clocks, files and sockets around a machine.

files.py       small files that survive a crash
conf.py        configuration files and TLS settings
nameserver.py  runs the name server's machine
process.py     ready file, signals, the life of a process
"""
