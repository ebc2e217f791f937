"""mqadmin's commands about users and access rules, as docs/mqadmin.md lists them, against our broker and Apache's.

Both brokers have access control, and mqadmin signs its requests as a superuser (conf/tools.yml).
"""

from collections.abc import Callable, Iterator

import pytest

from .both import Both
from .clients import Kind
from .mqadmin import MqAdmin
from .scenarios import Driver
from .servers import ApacheStage, KourouRun
from .test_access_control import ROOT, SETTINGS
from .worlds import needed

pytestmark = pytest.mark.interop

ON_BROKER = ("-b", "BROKER")
FROM_TO = ("-f", "BROKER", "-t", "BROKER")
ALICE, OF_ALICE = ("-u", "alice"), ("-s", "User:alice")
RULE = ("-r", "Topic:orders,Group:billing", "-a", "PUB,SUB", "-d", "Allow", "-i", "127.0.0.1")

CASES = [
    (("createUser", *ON_BROKER, *ALICE, "-p", "secret-of-alice", "-t", "Normal"), "success"),
    (("createUser", *ON_BROKER, *ALICE, "-p", "secret-of-alice", "-t", "Normal"), "exist"),
    (("getUser", *ON_BROKER, *ALICE), "alice"),
    (("getUser", *ON_BROKER, "-u", "nobody"), ""),
    (("updateUser", *ON_BROKER, *ALICE, "-p", "another-secret"), "success"),
    (("updateUser", *ON_BROKER, *ALICE, "-s", "disable"), "success"),
    (("listUser", *ON_BROKER), "alice"),
    (("listUser", *ON_BROKER, "-f", "ali"), "alice"),
    (("copyUser", *FROM_TO, *ALICE), "success"),
    (("createAcl", *ON_BROKER, *OF_ALICE, *RULE), "success"),
    (("createAcl", *ON_BROKER, "-s", "User:nobody", *RULE), ""),
    (("createAcl", *ON_BROKER, *OF_ALICE, "-r", "Nonsense:x", "-a", "PUB", "-d", "Allow"), ""),
    (("getAcl", *ON_BROKER, *OF_ALICE), "Topic:orders"),
    (("updateAcl", *ON_BROKER, *OF_ALICE, "-r", "Topic:orders", "-a", "SUB", "-d", "Deny"), "success"),
    (("listAcl", *ON_BROKER), "User:alice"),
    (("listAcl", *ON_BROKER, *OF_ALICE, "-r", "Topic:orders"), "Deny"),
    (("copyAcl", *FROM_TO, *OF_ALICE), "success"),
    (("deleteAcl", *ON_BROKER, *OF_ALICE, "-r", "Topic:orders"), "success"),
    (("deleteAcl", *ON_BROKER, *OF_ALICE), "success"),
    (("getAcl", *ON_BROKER, *OF_ALICE), ""),
    (("deleteUser", *ON_BROKER, *ALICE), "success"),
    (("getUser", *ON_BROKER, *ALICE), ""),
]
COMMANDS = {arguments[0] for arguments, _ in CASES}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, driver_of: Callable[[Kind], Driver]) -> Iterator[Both]:
    """Both brokers with access control, and mqadmin as their superuser."""
    tools = tmp_path_factory.mktemp("tools")
    (tools / "conf").mkdir()
    (tools / "conf" / "tools.yml").write_text(f"accessKey: {ROOT.access_key}\nsecretKey: {ROOT.secret_key}\n")
    with needed():
        apache = ApacheStage(tmp_path_factory.mktemp("apache"), *SETTINGS)
        admin = MqAdmin(tools)
    ours = KourouRun(tmp_path_factory.mktemp("kourou"), *SETTINGS)
    yield Both(apache, ours, admin, driver_of(Kind.JAVA))
    admin.stop()
    apache.kill_all()
    ours.kill()


def test_commands_print_the_same(guarded: Both) -> None:
    """In this order: one uses what another has made."""
    for arguments, answers in CASES:
        assert answers in guarded.run(*arguments), arguments
