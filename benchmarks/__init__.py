"""Figures of Kourou, with Apache RocketMQ beside it in the same run.

codec.py       what a frame costs to decode and to encode, plain and compiled
records.py     what a stored record costs, plain and compiled
nameserver.py  our name server and Apache's under the same load
broker.py      our broker and Apache's under the load of Apache's Java client (java/BrokerLoad.java)

requests.py    the frames that brokers and clients send, made before the clock starts
load.py        the load: connections that ask, and what they saw
servers.py     starts both servers and reads the CPU time they used
report.py      the machine, the tables, and the bars that a figure must clear

`python -m benchmarks` runs all of them, from the top of the repository; docs/benchmarks.md explains the figures.
"""
