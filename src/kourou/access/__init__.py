"""Access control: users, their policies, signatures, and the decision about each request.

    users.py        a user: name, password, kind, status
    policies.py     what a user may do: entries for topics, groups and the cluster
    decisions.py    policies prepared for quick decisions
    touches.py      the resources that a request touches, by the table of requests
    guard.py        authenticates the sender of a request, and decides whether it is allowed
    plain_guard.py  the same with the accounts of plain_acl.yml
    gate.py         the interface for servers; logs refusals
    user_requests.py  requests of administrators about users and policies
    addresses.py    the addresses that an entry applies to
    directory.py    all users and policies of a broker, and the changes that administrators make
    sealing.py      the form of the users' file on disk
    plain_acl.py    plain_acl.yml, the access control of RocketMQ 4

The package has only values in memory: files, sockets and clocks belong to its callers.
"""
