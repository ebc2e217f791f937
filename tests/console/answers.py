"""Answers of an API whose brokers and producers send what they want: one for every route that the pages ask.

No broker would register most of these names, so they can't be tested with one.
"""

import time
from collections.abc import Mapping
from typing import Any

SCRIPT = "<script>window.owned=1</script>"
IMAGE = '"><img src=x onerror="window.owned=1">'
LINK = "javascript:window.owned=1"
TERMINAL = "\x1b]0;owned\x07\x1b[2J\x1b[31mred"
TURNED = "safe‮gpj.exe"
TEMPLATE = "${window.owned=1}{{constructor.constructor('window.owned=1')()}}"
MARKUP = "<style>*{display:none}</style><svg/onload=window.owned=1><iframe srcdoc='<script>parent.owned=1</script>'>"
HOSTILE = (SCRIPT, IMAGE, LINK, TERMINAL, TURNED, TEMPLATE, MARKUP, "__proto__", "a/../b?c#d&e=f", "名字 ")
"""Names that would do something if a page took them for markup, code or an address."""

ADDRESS = "10.0.0.5:10911"
HUGE = "9223372036854775807"


def _history(*names: str) -> dict[str, Any]:
    now = int(time.time())
    times = list(range(now - 600, now, 5))
    return {"times": times, "series": {name: [index % 40 + 3 for index in range(len(times))] for name in names}}


def session(**changes: Any) -> dict[str, Any]:
    """A session that may do everything."""
    features = {name: {"on": True, "reason": ""} for name in ("acl", "trace", "raft", "timers")}
    return {
        "signed_in": True,
        "login": "token",
        "user": "anna",
        "role": "administer",
        "read_only": False,
        "version": "0.0",
        "name_servers": ["10.0.0.1:9876"],
        "refresh_ms": 2000,
        "features": features,
        **changes,
    }


def _broker(name: str) -> dict[str, Any]:
    return {
        "name": name, "id": 0, "cluster": name, "address": ADDRESS, "role": "master", "ok": False, "reason": name,
        "version": name, "in": 4100.5, "out": 4000.1, "put_p99_ms": 0.9, "flush_behind": "0", "dispatch_behind": "12",
        "disk_ratio": 0.93, "keeps_ms": 255600000, "kourou": True,
    }  # fmt: skip


def message(name: str, number: int = 0) -> dict[str, Any]:
    """A message in which every text is `name`."""
    kind = ("json", "text", "binary", "broken")[number % 4]
    text = {"json": f'{{"text":"{number}","deep":[1,{{}},[]]}}', "binary": "001bff3c7363726970743e"}.get(kind, name)
    now = int(time.time() * 1000)
    return {
        "id": f"{name} {number}", "offset_id": "C0A8000100002A9F0000000000000000", "topic": name, "broker": name,
        "queue": number, "offset": HUGE, "tag": name, "keys": [name, name + "2"], "stored_ms": now, "born_ms": now - 2,
        "born_host": name, "size": "412", "reconsume": 0,
        "body": {"kind": kind, "text": text, "truncated": number == 1, "size": "412"},
        "properties": {name: name}, "system": {"UNIQ_KEY": name},
        "origin": {"topic": name, "id": name}, "redriven": "1", "real_topic": name, "due_ms": now, "group": name,
        "checks": 1, "open": number % 2 == 0,
    }  # fmt: skip


def _messages(names: tuple[str, ...]) -> dict[str, Any]:
    found = [message(name, number) for number, name in enumerate(names)]
    return {"messages": found, "cursor": None, "scanned": "10", "of": HUGE, "stopped": "end"}


def _attempts(name: str) -> list[dict[str, Any]]:
    now = int(time.time() * 1000)
    common = {"level": 3, "cost_ms": 3, "host": name, "source": "trace", "offset_id": None}
    return [{"n": 1, "at_ms": now, "ok": False, **common}, {"n": 2, "at_ms": now, "ok": True, **common}]


def _journey(names: tuple[str, ...]) -> dict[str, Any]:
    now = int(time.time() * 1000)
    states = ("consumed", "not_yet", "retrying", "dead", "not_subscribed", "held", "unknown")
    groups = [
        {
            "group": name, "state": states[number % len(states)], "text": name,
            "attempts": _attempts(name)[: number % 3],
            "next": {"at_ms": now, "level": 4, "n": 3} if number % 2 else None, "left": 14,
            "dead": {"at_ms": now, "broker": name, "queue": 0, "offset": HUGE, "offset_id": name},
            "redriven": [{"at_ms": now, "id": name, "to": name}],
        }
        for number, name in enumerate(names)
    ]  # fmt: skip
    sent = {"by": names[0], "at_ms": now, "cost_ms": 1.9, "source": "log"}
    held = {"kind": "delayed", "due_ms": now}
    return {"message": message(names[0]), "trace": True, "sent": sent, "held": held, "groups": groups}


def answers(names: tuple[str, ...] = HOSTILE) -> Mapping[str, Any]:
    """The answer to a GET, by the first parts of its path: the longest prefix that is there is taken."""
    now = int(time.time() * 1000)
    first = names[0]
    brokers = [_broker(name) | {"address": f"10.0.0.{number}:10911"} for number, name in enumerate(names)]
    problems = [
        {"severity": "bad", "code": "group_behind", "args": {"group": name, "lag": HUGE, "ms": 41000}, "text": name,
         "link": LINK if number == 0 else "/groups/x", "action": "doctor"}
        for number, name in enumerate(names)
    ]  # fmt: skip
    problems.append({**problems[0], "code": first, "link": "//example.org/x"})
    figures = {name: {"messages": HUGE, "rate": 1.5, "last_ms": now, "groups": 1} for name in names}
    group_figures = {
        name: {"lag": HUGE, "lag_ms": 41000, "members": 2, "rate": 3, "in_flight": "1", "dead": "37", "topics": [name]}
        for name in names
    }
    setting = {"broker": first, "address": ADDRESS, "perm": "-", "order": True, "attributes": {first: first}}
    topic_queues = [
        {"broker": name, "queue": number, "min": "0", "end": HUGE, "messages": HUGE, "last_ms": now}
        for number, name in enumerate(names)
    ]
    group_queues = [
        {"topic": name, "broker": name, "queue": number, "committed": "-1", "end": HUGE, "lag": HUGE, "lag_ms": 1,
         "in_flight": "0", "member": name, "last_ms": now}
        for number, name in enumerate(names)
    ]  # fmt: skip
    job = {
        "id": "1", "kind": "redrive", "group": first, "user": first, "state": "running", "total": 30, "sent": 27,
        "is_least": True, "failed": 3, "skipped": 0, "started_ms": now, "ended_ms": None,
        "target": first, "rate": 100, "text": first,
        "failures": [{"broker": name, "queue": 0, "offset": "1", "id": name, "reason": name} for name in names],
        "results": [{"broker": name, "queue": 1, "offset": "1", "id": name, "ok": True, "to": name} for name in names],
    }  # fmt: skip
    return {
        "session": session(user=first),
        "overview": {
            "clusters": list(names), "topics": 41, "groups": 12, "brokers": brokers, "rates": {"in": 8200, "out": 8100},
            "disk_ratio": 0.61, "disk_full_in_s": 777600, "problems": problems, "checked": 3,
            "history": _history("in", "out", "disk"),
        },
        "topics": {"total": len(names), "topics": [
            {"name": name, "kind": "normal", "type": name, "queues": 8, "read_queues": 8, "perm": "r", "order": False,
             "brokers": [name]}
            for name in names
        ]},
        "topics/figures": {"figures": figures},
        "topics/": {
            "name": first, "kind": "normal", "type": first, "perm": "rw", "order": False, "attributes": {},
            "settings": [{**setting, "read_queues": 8, "write_queues": 8}], "queues": topic_queues, "messages": HUGE,
            "rate": 1, "groups": list(names), "keeps_ms": 1, "history": _history("in"),
        },
        "topics//messages": _messages(names),
        "messages/": {"message": message(first), "same": [message(name, 3) for name in names]},
        "journey/": _journey(names),
        "groups": {"total": len(names), "groups": [
            {"name": name, "consume_enable": True, "broadcast_enable": True, "orderly": False, "retry_max": 16,
             "retry_queues": 1, "brokers": [name]}
            for name in names
        ]},
        "groups/figures": {"figures": group_figures},
        "groups/": {
            "name": first, "kind": "push", "model": "clustering", "from_where": "last", "lag": HUGE, "lag_ms": 99999,
            "settings": [{"broker": first, "address": ADDRESS, "consume_enable": True, "broadcast_enable": True,
                          "orderly": False, "retry_max": 16, "retry_queues": 1, "attributes": {first: first}}],
            "members": [{"id": name, "address": name, "language": name, "version": name, "queues": 1,
                         "subscriptions": None} for name in names],
            "subscriptions": [{"topic": name, "expression": name, "type": name} for name in names],
            "queues": group_queues, "rate": 1, "in_flight": "1", "dead": "2", "retrying": "3",
            "retrying_is_least": True, "topics": list(names),
            "history": _history("lag", "lag_ms", "rate"),
        },
        "groups//doctor": {"at": now, "group": first, "findings": [
            {"code": name, "severity": ("good", "doubtful", "bad")[number % 3], "text": name, "args": {},
             "remedy": name, "evidence": [[name, name]]}
            for number, name in enumerate(names)
        ]},
        "groups//members/": {
            "id": first, "properties": {}, "subscriptions": [], "stacks": "\n".join(names),
            "queues": [{"topic": name, "broker": name, "queue": 0, "committed": "1", "cached": 1, "locked": False,
                        "last_pull_ms": now, "last_consume_ms": now} for name in names],
            "rates": [{"topic": name, "pull_ms": 1, "pull_rate": 1, "consume_ms": 1, "ok_rate": 1, "failed_rate": 1,
                       "failed": "1"} for name in names],
        },
        "dead": {"groups": [{"group": name, "count": "37", "last_ms": now, "readable": False} for name in names]},
        "dead/": {**_messages(names), "count": "37", "kinds": []},
        "jobs": {"jobs": [job]},
        "jobs/": job,
        "delayed": {
            "levels": [{"broker": name, "level": number, "delay": name, "waiting": "3", "next_ms": now}
                       for number, name in enumerate(names)],
            "timed": [{"broker": name, "count": "3", "topics": {name: "3"}, "supported": number % 2 == 0,
                       "reason": name} for number, name in enumerate(names)],
        },
        "delayed/messages": _messages(names),
        "delayed/timed": _messages(names),
        "half": _messages(names),
        "brokers": {"brokers": brokers},
        "brokers/": {
            "broker": brokers[0], "runtime": {name: name for name in names}, "history": _history("in", "out", "disk"),
            "config": [{"key": name, "value": name} for name in names],
            "replication": {"master": True, "end": HUGE, "in_sync": 1, "follows": None, "slaves": [
                {"address": name, "ack": "1", "behind": "1", "in_sync": False, "rate": "1"} for name in names]},
            "epochs": [{"epoch": 1, "start": "0", "end": HUGE}],
            "raft": {"on": True, "reason": first, "facts": {name: name for name in names}},
        },
        "clients": {"total": len(names), "clients": [
            {"id": name, "address": name, "language": name, "version": name, "role": "consumer", "groups": [name],
             "brokers": [name], "last_ms": now} for name in names]},
        "acl": {
            "on": True, "reason": "",
            "users": [{"broker": name, "name": name, "super": True, "enabled": False} for name in names],
            "rules": [{"broker": name, "subject": name, "type": name, "resource": name, "actions": [name],
                       "addresses": [name], "decision": name} for name in names],
        },
        "audit": {"entries": [
            {"at_ms": now, "user": name, "role": name, "address": name, "action": name, "what": name, "ok": False,
             "text": name, "cli": name} for name in names]},
        "search": {"hits": [{"kind": "topic", "name": name, "link": LINK} for name in names]},
        "filter": {"ok": True},
    }  # fmt: skip


def preview(name: str = SCRIPT) -> dict[str, Any]:
    """What every change answers to `preview`, all fields that some dialog shows."""
    queue = {"broker": name, "queue": 0, "committed": "5", "target": "1", "again": "4", "skipped": "0"}
    shown = {
        "messages": "3", "queues": [queue], "groups": [name], "again": "4", "skipped": "0", "members": 1, "count": "3",
        "before": "1", "to": {name: 3}, "without_target": "1", "missing": "2", "read": "9",
        "of": "9", "complete": True, "changes": [{"key": name, "from": name, "to": name}],
    }  # fmt: skip
    return {"preview": shown, "cli": f"kourou admin {name}", "confirm": name}
