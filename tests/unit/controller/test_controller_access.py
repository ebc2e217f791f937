"""A controller with access control: every request that it knows, and what it tells brokers."""

import msgspec
import pytest
from tests.unit.controller.controllers import Controllers
from tests.unit.controller.test_controller import beat, master, three_replicas

from kourou.access.users import User, UserType
from kourou.controller.access import AccessSettings
from kourou.controller.machine import SETTLE_MS
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS, Direction
from kourou.protocol.signing import Credentials
from kourou.server.access_files import controller_access
from kourou.server.conf import ConfError

ROOT, BROKER = Credentials("root", "secret-of-root"), Credentials("inner", "secret-of-inner")
ACCESS = AccessSettings(
    authenticates=True,
    first_user=User(name="root", password=ROOT.secret_key, type=UserType.SUPER),
    inner_user=User(name="inner", password=BROKER.secret_key, type=UserType.SUPER),
)
TO_CONTROLLERS = [
    *sorted(int(info.code) for info in REQUESTS.values() if info.direction is Direction.TO_CONTROLLER),
    int(RequestCode.BROKER_HEARTBEAT),
    99_999,
]


@pytest.fixture
def controllers() -> Controllers:
    """A group with a master and two slaves."""
    made = Controllers(access=ACCESS)
    made.signs_as = BROKER
    return three_replicas(controllers=made)


def _request_to(code: int) -> Command:
    ext = {"brokerName": "broker-a", "clusterName": "DefaultCluster"}
    header = REQUESTS[code].header if code in REQUESTS else None
    for info in msgspec.structs.fields(header) if header is not None else ():
        text = str(info.type)
        ext.setdefault(info.encode_name, "2" if "int" in text else "false" if "bool" in text else "x")
    return Command(code, ext=ext, body=b"[]" if code == RequestCode.CONTROLLER_GET_SYNC_STATE_DATA else b"{}")


@pytest.mark.parametrize("code", TO_CONTROLLERS)
def test_every_request_without_a_valid_signature_is_refused(controllers: Controllers, code: int) -> None:
    before, found = master(controllers), controllers.machine(0).member.table
    for by, remark in (
        (None, "username cannot be null."),
        (Credentials("inner", "guess"), "check signature failed."),
        (Credentials("bob", "x"), "User:bob is not found."),
    ):
        controllers.signs_as = by
        answer = controllers.ask(_request_to(code))
        assert answer is not None
        assert (answer.code, answer.remark, answer.body) == (16, remark, b"")
    controllers.signs_as = BROKER
    assert (master(controllers), controllers.machine(0).member.table) == (before, found)


@pytest.mark.parametrize("by", [ROOT, BROKER], ids=["operator", "broker"])
def test_requests_of_its_super_users_are_served(controllers: Controllers, by: Credentials) -> None:
    controllers.signs_as = by
    for code in TO_CONTROLLERS:
        answer = controllers.ask(_request_to(code))
        assert answer is not None
        assert answer.code != 16, (code, answer.remark)


def test_a_certificate_names_the_sender(controllers: Controllers) -> None:
    machine = controllers.machine(0)
    command = Command(RequestCode.CONTROLLER_GET_METADATA_INFO)
    assert machine._gate is not None

    class Sender:
        address = "10.0.0.9:5"
        user: str | None = "root"

    machine._gate.authenticate(Sender(), command, 0)


@pytest.mark.parametrize("authenticates", [True, False])
def test_what_brokers_are_told_is_signed(authenticates: bool) -> None:
    made = Controllers(access=AccessSettings(authenticates, ACCESS.first_user, ACCESS.inner_user))
    made.signs_as = BROKER
    controllers = three_replicas(controllers=made)
    controllers.pass_time(SETTLE_MS)
    for number in (1, 2, 3):
        beat(controllers, number, 10)
    controllers.told.clear()
    controllers.gone("broker-a-1")
    assert controllers.told
    assert all(BROKER.have_signed(one.command) for one in controllers.told)


def test_properties() -> None:
    inner = '{"accessKey":"inner","secretKey":"secret-of-inner"}'
    access = controller_access({"authenticationEnabled": "true", "innerClientAuthenticationCredentials": inner})
    assert access.authenticates
    assert access.inner_credentials == BROKER
    assert controller_access({}).gate() is None
    assert not controller_access({"innerClientAuthenticationCredentials": inner}).authenticates


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"authenticationEnabled": "true"}, "needs innerClientAuthenticationCredentials"),
        ({"authenticationEnabled": "yes"}, "authenticationEnabled=yes: true or false is expected"),
        ({"authorizationEnabled": "true"}, "authorizationEnabled=true without authenticationEnabled=true"),
        ({"initAuthenticationUser": '{"username":"root","secret":"s3cret"}'}, "initAuthenticationUser: "),
    ],
)
def test_properties_that_protect_less_than_they_say(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfError) as error:
        controller_access(properties)
    assert problem in str(error.value)
    assert "s3cret" not in str(error.value)
