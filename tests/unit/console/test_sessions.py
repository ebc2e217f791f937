"""Signing in: one-time tokens, users with passwords, attempts, the end of a session."""

import asyncio
from pathlib import Path

import pytest
from tests.unit.console.conftest import CHANGE, MakePage

from kourou.console.errors import ConsoleError
from kourou.console.limits import ATTEMPTS_PER_MINUTE, SESSION_SECONDS, SESSIONS_MAX
from kourou.console.sessions import Role, Sessions, role_named
from kourou.console.users import Users, UsersError, add_user, hashed, matches


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_token_is_valid_once() -> None:
    sessions = Sessions(Clock())
    assert not sessions.use_token("")
    token = sessions.new_token()
    assert not sessions.use_token(token + "x") and not sessions.use_token("é")
    assert sessions.use_token(token)
    assert not sessions.use_token(token)


def test_a_session_ends_after_its_time() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    cookie = sessions.begin("anna", Role.SEE)
    clock.now += SESSION_SECONDS - 1
    viewer = sessions.viewer(cookie)
    assert viewer is not None and viewer.may(Role.SEE) and not viewer.may(Role.BODIES)
    clock.now += 2
    assert sessions.viewer(cookie) is None
    assert sessions.viewer(None) is None and sessions.viewer("x") is None


def test_there_is_a_limit_of_sessions() -> None:
    sessions = Sessions(Clock())
    first = sessions.begin("anna", Role.SEE)
    others = [sessions.begin("anna", Role.SEE) for _ in range(SESSIONS_MAX)]
    assert sessions.viewer(first) is None
    assert sessions.viewer(others[0]) is not None


def test_attempts_are_limited() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    for _ in range(ATTEMPTS_PER_MINUTE):
        sessions.check_attempts("user anna", "address 1")
        sessions.failed("user anna", "address 1")
    for name in ("user anna", "address 1"):
        with pytest.raises(ConsoleError, match="attempts"):
            sessions.check_attempts("other", name)
    sessions.check_attempts("user bob", "address 2")
    clock.now += 61
    sessions.check_attempts("user anna", "address 1")


def test_roles_have_names() -> None:
    assert role_named("operate") is Role.OPERATE
    with pytest.raises(ValueError, match="see, bodies, operate, administer"):
        role_named("root")


def test_the_file_of_users(tmp_path: Path) -> None:
    path = tmp_path / "users"
    add_user(path, "anna", Role.OPERATE, "correct horse")
    add_user(path, "bob", Role.SEE, "battery staple")
    add_user(path, "anna", Role.ADMINISTER, "another one")
    assert path.stat().st_mode & 0o777 == 0o600
    assert "another" not in path.read_text()
    users = Users.load(path)
    assert len(users) == 2
    anna = users.check("anna", "another one")
    assert anna is not None and anna.role is Role.ADMINISTER
    assert users.check("anna", "correct horse") is None
    assert users.check("nobody", "correct horse") is None
    assert users.check("bob", "x" * 5000) is None


@pytest.mark.parametrize(
    "line",
    ["anna", "anna:see", "anna:root:scrypt$2$8$1$AA==$AA==", "anna:see:plain", "anna:see:scrypt$99999999$8$1$A$A"],
)
def test_a_file_of_users_that_makes_no_sense(line: str) -> None:
    with pytest.raises(UsersError, match="users, line 1: name:role:scrypt"):
        Users.parse(line)


@pytest.mark.parametrize(("name", "password"), [("a:b", "long enough"), ("", "long enough"), ("anna", "short")])
def test_users_that_are_refused(tmp_path: Path, name: str, password: str) -> None:
    with pytest.raises(UsersError):
        add_user(tmp_path / "users", name, Role.SEE, password)


async def test_the_link_signs_in_once(make_page: MakePage) -> None:
    page = await make_page(role=None)
    used: list[bool] = []
    page.console.on_token_used = lambda: used.append(True)
    token = page.console.sessions.new_token()
    before = await page.get("/api/session")
    assert (before["signed_in"], before["login"], before["name_servers"]) == (False, "token", [])
    answer = await page.http.post(
        "/api/session", json={"token": token}, headers={"x-kourou": "1", "content-type": "application/json"}
    )
    assert answer.json()["role"] == "administer"
    cookie = answer.headers["set-cookie"].lower()
    for word in ("httponly", "samesite=strict", "path=/", "max-age=43200"):
        assert word in cookie
    assert (await page.get("/api/session"))["user"] == "admin"
    assert used == [True]
    again = await page.post("/api/session", {"token": token}, 401)
    assert again["code"] == "login_failed"
    await page.change("DELETE", "/api/session")
    assert not (await page.get("/api/session"))["signed_in"]


async def test_passwords_and_too_many_attempts(make_page: MakePage) -> None:
    users = Users.parse(f"anna:see:{hashed('correct horse')}")
    page = await make_page(role=None, users=users)
    assert (await page.get("/api/session"))["login"] == "password"
    assert (await page.post("/api/session", {"user": "anna", "password": "correct horse"}))["role"] == "see"
    await page.post("/api/session", {"token": "x"}, 401)
    for _ in range(ATTEMPTS_PER_MINUTE - 1):
        await page.post("/api/session", {"user": "anna", "password": "wrong"}, 401)
    refused = await page.post("/api/session", {"user": "anna", "password": "correct horse"}, 429)
    assert refused["code"] == "too_many_attempts"


async def test_many_attempts_at_once(make_page: MakePage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that wait for their turn see the failures of those before them."""
    checked: list[str] = []
    users = Users.parse(f"anna:see:{hashed('correct horse')}")
    monkeypatch.setattr(users, "check", lambda name, password: checked.append(password))
    page = await make_page(role=None, users=users)

    async def attempt(number: int) -> int:
        body = {"user": "anna", "password": str(number)}
        return (await page.http.post("/api/session", json=body, headers=CHANGE)).status_code

    statuses = await asyncio.gather(*(attempt(number) for number in range(60)))
    assert len(checked) == ATTEMPTS_PER_MINUTE
    assert sorted(statuses) == [401] * ATTEMPTS_PER_MINUTE + [429] * (60 - ATTEMPTS_PER_MINUTE)


async def test_a_proxy_does_not_lock_out_all(make_page: MakePage) -> None:
    """Behind a proxy, the address that it has added counts, and what a browser claims before that does not."""
    users = Users.parse(f"anna:see:{hashed('correct horse')}\nbob:see:{hashed('correct horse')}")
    page = await make_page(role=None, users=users, is_behind_proxy=True)

    async def attempt(user: str, password: str, forwarded: str | None) -> int:
        headers = {**CHANGE, **({} if forwarded is None else {"x-forwarded-for": forwarded})}
        body = {"user": user, "password": password}
        return (await page.http.post("/api/session", json=body, headers=headers)).status_code

    for number in range(ATTEMPTS_PER_MINUTE):
        assert await attempt(f"guess-{number}", "wrong", f"10.9.9.{number}, 10.0.0.7") == 401
    assert await attempt("guess", "wrong", "10.1.1.1, 10.0.0.7") == 429
    assert await attempt("anna", "correct horse", "10.0.0.8") == 200
    for number in range(ATTEMPTS_PER_MINUTE):  # a proxy that tells no address: by user alone
        assert await attempt("anna", f"wrong {number}", None) == 401
    assert await attempt("anna", "correct horse", None) == 429
    assert await attempt("bob", "correct horse", None) == 200


def test_a_hash_is_of_one_password() -> None:
    secret = hashed("correct horse")
    assert matches("correct horse", secret) and not matches("correct horsf", secret)
    assert hashed("correct horse") != secret
