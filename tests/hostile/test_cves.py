"""Faults that others had, one test for each: cheap checks, and where the thorough ones are.

docs/security.md lists the same cases; a test here compares both lists.
"""

import ast
import re
import ssl
import tracemalloc
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from tests.hostile import test_cves as this_module

from kourou.access.addresses import parse_address
from kourou.access.directory import Directory
from kourou.access.errors import AccessError
from kourou.access.guard import Guard, Need
from kourou.access.plain_acl import migrate, parse
from kourou.access.plain_guard import PlainGuard
from kourou.access.policies import ResourceType
from kourou.broker import names
from kourou.broker.properties import (
    ACTED_ON,
    HIDDEN,
    HOT,
    Configuration,
    ProcessSettings,
    PropertyError,
    change,
    configure,
    to_properties,
)
from kourou.broker.settings import BrokerSettings
from kourou.broker.sql92.compiling import compile_expression
from kourou.broker.sql92.syntax import ExpressionError
from kourou.nameserver.settings import hot_properties
from kourou.net import tls as tls_module
from kourou.net.tls import TlsLayer, TlsSettings
from kourou.protocol import fastjson, frame
from kourou.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.compression import Compression, decompress, with_compression
from kourou.protocol.errors import BodyError, ProtocolError
from kourou.protocol.headers import REQUESTS
from kourou.protocol.headers.table import PUB, SUB
from kourou.protocol.signing import Credentials
from kourou.replication.secret import MAGIC, NONCE_SIZE, Greeting
from kourou.server import exposure
from kourou.store.settings import SMALL

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "kourou"
SERVERS = ("access", "broker", "nameserver", "net", "protocol", "raft", "replication", "server", "store")
ANYWHERE = parse_address("192.0.2.1")


def configuration(**properties: str) -> Configuration:
    return configure(Configuration(BrokerSettings(), SMALL, ProcessSettings(), {}), properties)


def sources(*packages: str) -> Iterator[Path]:
    for package in packages:
        yield from sorted((SOURCE / package).rglob("*.py"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> set[str]:
    """The modules that are imported, with those around them."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found | {name.partition(".")[0] for name in found}


def calls(path: Path, wanted: set[str]) -> set[str]:
    """The functions among these that are called."""
    last = {name.rpartition(".")[2] for name in wanted}
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in last:
                found.add(ast.unparse(node.func))
    return found & wanted


def guard() -> tuple[Directory, Guard]:
    """Access control with a super user, and a user without any policy."""
    directory = Directory()
    directory.create_user(UserInfo(username="root", password="12345678", user_type="Super"))
    directory.create_user(UserInfo(username="billing", password="87654321"))
    return directory, Guard(directory)


def signed(command: Command, name: str, secret: str) -> Command:
    Credentials(name, secret).sign(command)
    return command


# ── RocketMQ ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_cve_2023_33246_settings_of_a_broker_reach_no_shell() -> None:
    """More: tests/unit/broker/test_admin_config.py, tests/hostile/bystander.py (hostile_settings)."""
    attack = {"filterServerNums": "1", "rocketmqHome": "-c $@|sh . echo touch /tmp/owned;"}
    for key, value in attack.items():
        with pytest.raises(PropertyError):
            change(configuration(), {key: value})
    for path in sources(*(package for package in SERVERS if package != "server")):
        assert not imports(path) & {"subprocess", "pty", "shlex"}, path
        assert not calls(path, {"os.system", "os.popen", "os.execv", "os.spawnv"}), path


def test_cve_2023_37582_settings_of_a_name_server_reach_no_path() -> None:
    """More: tests/scenarios/nameserver/settings.txt."""
    attack = {
        "configStorePath": "/tmp/owned",
        "kvConfigPath": "/tmp/owned",
        "rocketmqHome": "/tmp",
        "orderMessageEnable": "true",
    }
    assert hot_properties(attack).keys() <= {"orderMessageEnable"}


@pytest.mark.parametrize("name", ["../../x", "..", "a/b", "a\\b", "a\0b", "/etc/x", "a\nb", "\x1b[2J"])
def test_cve_2019_17572_names_are_not_paths(name: str) -> None:
    """More: tests/unit/broker, tests/hostile/test_broker_requests.py."""
    assert names.topic_fault(name) is not None
    assert names.group_fault(name) is not None


def test_cve_2024_23321_secrets_are_masked_and_addresses_do_not_help() -> None:
    """More: tests/unit/access, tests/interop/test_mqadmin_access.py."""
    shown = to_properties(
        configuration(
            initAuthenticationUser='{"username":"root","password":"top secret"}',
            innerClientAuthenticationCredentials='{"accessKey":"inner","secretKey":"top secret"}',
            authenticationEnabled="true",
        )
    )
    assert "top secret" not in str(shown)
    assert shown["innerClientAuthenticationCredentials"] == HIDDEN
    directory, access = guard()
    entry = PolicyEntryInfo(resource="*", actions=["All"], source_ips=["192.0.2.1"], decision="Allow")
    directory.put_acl("User:billing", AclInfo(policies=[PolicyInfo(policy_type="Custom", entries=[entry])]))
    with pytest.raises(AccessError, match="username cannot be null"):
        access.authenticate(Command(RequestCode.AUTH_LIST_USER), ANYWHERE)
    with pytest.raises(AccessError, match="check signature failed"):
        access.authenticate(signed(Command(RequestCode.AUTH_LIST_USER), "billing", "wrong"), ANYWHERE)


def test_rocketmq_11178_authorization_without_authentication() -> None:
    with pytest.raises(PropertyError, match="access keys would not be verified"):
        configuration(authorizationEnabled="true")


def test_rocketmq_7542_what_is_open_says_so() -> None:
    """More: tests/unit/server/test_exposure.py."""
    assert exposure.of_broker(BrokerSettings(), ProcessSettings(), "0.0.0.0", None, None)
    assert not exposure.of_broker(BrokerSettings(), ProcessSettings(), "127.0.0.1", None, None)


def test_rocketmq_3015_strangers_on_the_ha_port() -> None:
    """More: tests/hostile/test_ha_port.py, tests/unit/server/links/test_proving.py."""
    listener = Greeting(b"a secret", "HA", bytes(NONCE_SIZE), is_caller=False)
    with pytest.raises(ProtocolError, match="did not prove"):
        listener.receive((2**62).to_bytes(8))
    listener = Greeting(b"a secret", "HA", bytes(NONCE_SIZE), is_caller=False)
    listener.receive(MAGIC + bytes(NONCE_SIZE))
    with pytest.raises(ProtocolError, match="a different secret"):
        listener.receive(bytes(32))


# ── ActiveMQ ────────────────────────────────────────────────────────────────────────────────────────────────────────

EXECUTES = {"eval", "exec", "compile", "__import__", "yaml.load", "yaml.unsafe_load", "importlib.import_module"}
UNPICKLERS = re.compile(r"^\s*(import|from) (pickle|marshal|shelve|dill|cloudpickle)\b", re.M)
PICKLED = {SOURCE / "spark" / "pipelines" / "tasks.py"}  # results of our own tasks, within a job of Spark


def test_cve_2023_46604_no_bytes_become_code() -> None:
    for path in sources("."):
        assert path in PICKLED or not UNPICKLERS.search(path.read_text()), path
    for path in sources(*SERVERS):
        assert not calls(path, EXECUTES), path


@pytest.mark.parametrize("announced", [2**31 - 1, frame.FRAME_SIZE_MAX - 1, 2**24])
def test_cve_2025_27533_a_length_reserves_no_memory(announced: int) -> None:
    """More: tests/hostile/test_frames.py, tests/hostile/test_broker_footprint.py."""
    tracemalloc.start()
    try:
        decoder = frame.Decoder()
        decoder.feed(announced.to_bytes(4) + b"\0\0\0\x10" + b"{")
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


test_cve_2026_50734_a_length_reserves_no_memory = test_cve_2025_27533_a_length_reserves_no_memory
test_cve_2026_53917_a_length_reserves_no_memory = test_cve_2025_27533_a_length_reserves_no_memory
test_cve_2022_34917_a_length_reserves_no_memory = test_cve_2025_27533_a_length_reserves_no_memory


@pytest.mark.parametrize("kind", Compression)
def test_cve_2022_34917_a_small_body_does_not_become_a_large_one(kind: Compression) -> None:
    pack = {Compression.ZLIB: zlib.compress, Compression.LZ4: lz4.frame.compress, Compression.ZSTD: zstandard.compress}
    packed = pack[kind](bytes(64 * 1024 * 1024))
    tracemalloc.start()
    try:
        with pytest.raises(BodyError, match="do not decompress into"):
            decompress(packed, with_compression(0, kind), 1024 * 1024)
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_cve_2026_39304_records_without_text_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of changes of keys is one of records without text. More: tests/unit/net/test_tls.py."""
    monkeypatch.setattr(tls_module, "WITHOUT_TEXT_MAX", 1_000)
    client = TlsLayer(TlsSettings().client_context, server_side=False)
    server = TlsLayer(TlsSettings().server_context, server_side=True)
    data = client.start()
    while data:
        _, data = server.receive(data)
        _, data = client.receive(data)
    record = client.send(bytes(8_000))
    with pytest.raises(ssl.SSLError, match="records without plain text"):
        server.receive(record[:4_000])


def test_cve_2022_41678_no_management_beside_the_protocol() -> None:
    """No port takes uploads or runs methods. More: tests/unit/server/test_metrics.py."""
    for path in sources(*SERVERS):
        assert not imports(path) & {"xmlrpc", "code", "codeop", "pdb", "rpyc", "Pyro5", "ftplib"}, path


test_cve_2024_32114_no_management_beside_the_protocol = test_cve_2022_41678_no_management_beside_the_protocol
test_cve_2016_3088_no_management_beside_the_protocol = test_cve_2022_41678_no_management_beside_the_protocol


# ── Kafka ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_cve_2023_25194_no_peer_gives_an_address_a_path_or_a_class() -> None:
    """Properties that a request may change are switches and numbers within a range."""
    for key in HOT:
        assert key in ACTED_ON
        assert not re.search(r"(?i)path|dir$|home|addr|host|proxy|url|class|provider|credential|auth|tls", key), key
    refused = ["namesrvAddr", "storePathRootDir", "haMasterAddress", "plainAclFile", "usersKeyFile", "haSecretFile"]
    for key in [*refused, "tls.server.keyPath", "authenticationProvider", "metricsGrpcExporterTarget"]:
        with pytest.raises(PropertyError):
            change(configuration(), {key: "ldap://192.0.2.1/x"})


test_cve_2025_27817_no_peer_gives_a_url = test_cve_2023_25194_no_peer_gives_an_address_a_path_or_a_class
test_cve_2025_27818_no_peer_gives_a_class = test_cve_2023_25194_no_peer_gives_an_address_a_path_or_a_class
test_cve_2025_27819_no_peer_gives_a_class = test_cve_2023_25194_no_peer_gives_an_address_a_path_or_a_class
test_cve_2024_31141_no_peer_gives_a_file = test_cve_2023_25194_no_peer_gives_an_address_a_path_or_a_class


@pytest.mark.parametrize("default", ["DENY", "PUB", "SUB", "PUB|SUB"])
@pytest.mark.parametrize("own", ["DENY", "PUB", "SUB", "PUB|SUB"])
def test_cve_2024_27309_a_migration_loses_no_denial(default: str, own: str) -> None:
    """More: tests/unit/access/test_files.py."""
    text = (
        "accounts:\n- accessKey: billing\n  secretKey: '12345678'\n"
        f"  defaultTopicPerm: {default}\n  defaultGroupPerm: {default}\n  topicPerms:\n  - orders={own}\n"
    )
    acl = parse([("plain_acl.yml", text)])
    account = acl.accounts["billing"]
    info, policies = migrate(account)
    directory = Directory()
    directory.create_user(info)
    directory.put_acl("User:billing", policies)
    user = directory.user("billing")
    for kind, name in ((ResourceType.TOPIC, "orders"), (ResourceType.TOPIC, "others"), (ResourceType.GROUP, "g")):
        for right in (PUB, SUB):
            needs = [Need(kind, name, right)]
            before = PlainGuard(acl).refusal(account, 10, needs, ANYWHERE)
            after = Guard(directory).refusal(user, 10, needs, ANYWHERE)
            assert (before is None) >= (after is None), (name, right)


# ── Pulsar, RabbitMQ, NATS ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("signature", [None, "", "none", "AAAA", "\0"])
def test_cve_2021_22160_there_is_one_algorithm(signature: str | None) -> None:
    _, access = guard()
    ext = {"AccessKey": "root", "alg": "none", "topic": "T"}
    if signature is not None:
        ext["Signature"] = signature
    with pytest.raises(AccessError, match="check signature failed"):
        access.authenticate(Command(10, ext=ext), ANYWHERE)


def test_cve_2023_51437_signatures_are_compared_in_constant_time() -> None:
    for module in ("protocol/signing.py", "replication/secret.py"):
        assert calls(SOURCE / module, {"hmac.compare_digest"}), module


def test_cve_2022_31008_secrets_can_not_be_guessed() -> None:
    """Secrets are made by the system's generator, never by the one for simulations."""
    for path in sources("access"):
        assert "random" not in imports(path), path
    for module in ("server/ha_gate.py", "server/access_files.py", "replication/secret.py", "protocol/signing.py"):
        assert "random" not in imports(SOURCE / module), module


def test_cve_2025_30215_every_request_needs_a_right() -> None:
    """Whatever the table of requests says about a code: a user without policies may send none of them."""
    directory, access = guard()
    user = directory.user("billing")
    for code, info in REQUESTS.items():
        rights = PUB if info.access is None else info.access.rights
        for needs in ([], [Need(ResourceType.TOPIC, "orders", rights)], [Need(ResourceType.CLUSTER, None, rights)]):
            assert access.refusal(user, code, needs, ANYWHERE) is not None, code


# ── Libraries ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_cve_2023_44487_no_http_2_in_the_servers() -> None:
    for path in sources(*SERVERS):
        assert not imports(path) & {"h2", "hpack", "hyper", "grpc", "nghttp2", "google"}, path


test_cve_2025_8671_no_http_2_in_the_servers = test_cve_2023_44487_no_http_2_in_the_servers
test_cve_2023_33953_no_grpc_in_the_servers = test_cve_2023_44487_no_http_2_in_the_servers


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"{{", b'[{"a":'])
def test_cve_2025_4565_deep_bodies_are_refused(opening: bytes) -> None:
    """More: tests/hostile/test_bodies.py."""
    with pytest.raises(BodyError):
        fastjson.loads(opening * 20_000)


def test_redos_in_a_filter() -> None:
    """Time grows with the text, and there is a limit. More: tests/property/test_sql92_properties.py."""
    text = "a" * 10_000
    expression = compile_expression("x CONTAINS 'aaaaaaaaaaaaaaaaaaaaaaab'")
    assert not expression.matches({"x": text})
    with pytest.raises(ExpressionError):
        compile_expression(" AND ".join(["x CONTAINS 'a'"] * 1_000))


# ── The list ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_case_of_the_page_has_a_test() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    listed = set(re.findall(r"CVE-(\d{4}-\d+)", page))
    tested = {
        f"{year}-{number}" for year, number in re.findall(r"test_cve_(\d{4})_(\d+)_", " ".join(vars(this_module)))
    }
    assert listed == tested
    assert len(listed) >= 25
