"""Users and policies as administrators change them."""

from collections.abc import Callable

import pytest

from kourou.access.directory import Directory, Saved
from kourou.access.errors import AccessError
from kourou.access.policies import Acl
from kourou.access.users import UserStatus, UserType
from kourou.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo


@pytest.fixture
def directory() -> Directory:
    found = Directory()
    found.create_user(UserInfo(username="alice", password="secret"))
    return found


def rule(resource: str, decision: str = "Allow") -> AclInfo:
    return AclInfo(
        policies=[PolicyInfo(entries=[PolicyEntryInfo(resource=resource, actions=["Pub"], decision=decision)])]
    )


def acls(directory: Directory, subject: str = "", resource: str = "") -> list[Acl]:
    return [acl for acl in directory.acls(subject, resource) if acl is not None]


def refusal(change: Callable[[], object]) -> str:
    with pytest.raises(AccessError) as error:
        change()
    return str(error.value)


def test_users(directory: Directory) -> None:
    alice = directory.user("alice")
    assert alice is not None and (alice.type, alice.status) == (UserType.NORMAL, UserStatus.ENABLE)
    assert "secret" not in repr(alice)
    directory.update_user(UserInfo(username="alice", user_status="DISABLE"))
    alice = directory.user("alice")
    assert alice is not None and alice.status is UserStatus.DISABLE and alice.password == "secret"
    directory.create_user(UserInfo(username="root", password="p", user_type="super"))
    assert [user.name for user in directory.users()] == ["alice", "root"]
    assert [user.name for user in directory.users("oo")] == ["root"]
    assert directory.delete_user("root") and not directory.delete_user("root")


def test_changes_of_users_that_are_refused(directory: Directory) -> None:
    create = directory.create_user
    assert refusal(lambda: create(UserInfo(username="alice", password="x"))) == "The user is existed"
    assert refusal(lambda: create(UserInfo(username=" ", password="x"))) == "username can not be blank"
    assert refusal(lambda: create(UserInfo(username="b"))) == "password can not be blank"
    assert "control characters" in refusal(lambda: create(UserInfo(username="b\x1b[31m", password="x")))
    assert refusal(lambda: directory.update_user(UserInfo(username="b"))) == "The user is not exist"


def test_the_number_of_users_is_limited(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_users_max", 2)
    directory.create_user(UserInfo(username="b", password="x"))
    assert "the limit" in refusal(lambda: directory.create_user(UserInfo(username="c", password="x")))


def test_the_number_of_entries_is_limited(directory: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "_entries_max", 2)
    directory.put_acl("User:alice", rule("Topic:a"))
    directory.put_acl("User:alice", rule("Topic:b"))
    directory.put_acl("User:alice", rule("Topic:b", "Deny"))
    assert "more than 2 entries" in refusal(lambda: directory.put_acl("User:alice", rule("Topic:c")))
    directory.delete_acl("User:alice", None, "Topic:a")
    directory.put_acl("User:alice", rule("Topic:c"))
    directory.delete_user("alice")
    directory.create_user(UserInfo(username="bob", password="x"))
    directory.put_acl("User:bob", rule("Topic:a"))
    directory.put_acl("User:bob", rule("Topic:b"))


def test_policies(directory: Directory) -> None:
    before = directory.generation
    directory.put_acl("user:alice", rule("Topic:a"))
    directory.put_acl("User:alice", rule("Topic:b"))
    assert directory.generation == before + 2
    grants = directory.grants("alice")
    assert grants is not None and directory.grants("alice") is grants
    directory.put_acl("User:alice", rule("Topic:a", "Deny"))
    assert directory.grants("alice") is not grants
    found = directory.acl("User:alice")
    assert found is not None and found.subject == "User:alice"
    assert [acl.subject for acl in acls(directory, "ali", "Topic:b")] == ["User:alice"]
    assert acls(directory, "", "Topic:x") == []
    directory.delete_acl("User:alice", None, "Topic:a")
    assert len(acls(directory)) == 1
    directory.delete_acl("User:alice", "Custom", "Topic:b")
    assert acls(directory) == [] and directory.grants("alice") is None
    assert refusal(lambda: directory.delete_acl("User:alice", None, None)) == "The acl is not exist."


def test_changes_of_policies_that_are_refused(directory: Directory) -> None:
    assert refusal(lambda: directory.put_acl("User:bob", rule("Topic:a"))) == "The subject of User:bob is not exist."
    assert refusal(lambda: directory.put_acl("bob", rule("Topic:a"))) == "The subject is null."
    assert refusal(lambda: directory.put_acl("User:alice", AclInfo())) == "The policies is empty."
    assert refusal(lambda: directory.acl("User:bob")) == "The subject is not exist."
    directory.put_acl("User:alice", rule("Topic:a"))
    assert "not valid" in refusal(lambda: directory.delete_acl("User:alice", None, "Queue:x"))


def test_a_user_takes_its_policies_along(directory: Directory) -> None:
    directory.put_acl("User:alice", rule("Topic:a"))
    directory.delete_user("alice")
    directory.create_user(UserInfo(username="alice", password="other"))
    assert acls(directory) == [] and directory.grants("alice") is None


def test_the_file_has_everything(directory: Directory) -> None:
    directory.put_acl("User:alice", rule("Topic:a*", "Deny"))
    directory.update_user(UserInfo(username="alice", user_type="Super"))
    again = Directory.load(Saved.decode(directory.save().encode()))
    assert again.users() == directory.users() and acls(again) == acls(directory)


def test_the_size_of_a_request_and_the_source_addresses_of_a_user_are_limited(directory: Directory) -> None:
    def rules(count: int, sources: list[str], first: int = 0) -> AclInfo:
        names = range(first, first + count)
        entries = [
            PolicyEntryInfo(resource=f"Topic:{name}", actions=["Pub"], decision="Allow", source_ips=sources)
            for name in names
        ]
        return AclInfo(policies=[PolicyInfo(entries=entries)])

    assert "1001 entries, the limit is 1000" in refusal(lambda: directory.put_acl("User:alice", rules(1001, [])))
    assert "1002 source addresses" in refusal(
        lambda: directory.put_acl("User:alice", rules(501, ["10.0.0.1", "10.0.0.2"]))
    )
    directory.put_acl("User:alice", rules(500, ["10.0.0.1", "10.0.0.2"]))
    more = rules(1, ["10.0.0.1"], first=500)
    assert "more than 1000 source addresses" in refusal(lambda: directory.put_acl("User:alice", more))
    directory.put_acl("User:alice", rules(1, ["10.0.0.9"]))  # replaces an entry with two


def test_what_is_saved_follows_all_changes(directory: Directory) -> None:
    """It is kept up to date at each change, not made from the users and policies."""
    directory.create_user(UserInfo(username="bob", password="p"))
    directory.put_acl("User:alice", rule("Topic:a"))
    directory.put_acl("User:bob", rule("Topic:b"))
    before = directory.save()
    directory.put_acl("User:alice", rule("Topic:c"))
    directory.update_user(UserInfo(username="alice", user_status="disable"))
    directory.delete_user("bob")
    saved = directory.save()
    assert list(before.users) == ["alice", "bob"] and list(before.acls) == ["User:alice", "User:bob"]
    assert list(saved.users) == ["alice"] and saved.users["alice"].user_status == "disable"
    assert list(saved.acls) == ["User:alice"]
    again = Directory.load(Saved.decode(saved.encode()))
    assert again.users() == directory.users() and acls(again) == acls(directory)
    directory.restore(before)
    assert directory.save() == before
    directory.delete_acl("User:alice", None, None)
    assert list(directory.save().acls) == ["User:bob"]
