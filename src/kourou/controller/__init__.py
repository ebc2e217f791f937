"""The controller: it elects the masters of broker groups. A pure machine, over the Raft machine of `kourou.raft`.

    machine.py    requests in, answers and other effects out
    events.py     its events and effects
    groups.py     the replicated table: the replicas of each broker group, its master, its in-sync set
    decisions.py  how a request is answered and changes the table; codes and remarks are Apache's
    heartbeats.py the brokers that are alive, as one controller knows them
    member.py     a controller in its group: the log of changes, and the file that has all of it
    settings.py   the properties

Java: ControllerManager, DLedgerController, ReplicasInfoManager, DefaultElectPolicy.
"""
