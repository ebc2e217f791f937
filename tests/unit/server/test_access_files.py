"""plain_acl.yml and the key of the users' file, as a broker's process reads them."""

import base64
from pathlib import Path

import pytest

from kourou.embedded import Embedded
from kourou.server.access_files import KEY_VARIABLE, users_key
from kourou.server.conf import ConfError

ACCOUNT = "accounts: [{accessKey: account, secretKey: 12345678}]"


async def test_a_broker_without_its_accounts_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfError, match="set plainAclFile"):
        async with Embedded(properties={"aclEnable": "true"}):
            pass
    missing = str(tmp_path / "plain_acl.yml")
    with pytest.raises(ConfError, match="does not exist"):
        async with Embedded(properties={"aclEnable": "true", "plainAclFile": missing}):
            pass


async def test_accounts_in_several_files(tmp_path: Path) -> None:
    (tmp_path / "acl").mkdir()
    (tmp_path / "acl" / "more.yaml").write_text(ACCOUNT.replace("account,", "another,"))
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNT)
    async with Embedded(properties={"aclEnable": "true", "plainAclFile": str(file)}) as embedded:
        assert embedded.address
    (tmp_path / "acl" / "more.yaml").write_text(ACCOUNT)
    with pytest.raises(ConfError, match=r"is also in .*plain_acl\.yml"):
        async with Embedded(properties={"aclEnable": "true", "plainAclFile": str(file)}):
            pass


def test_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert users_key("") is None
    file = tmp_path / "access.key"
    file.write_text(base64.b64encode(bytes(32)).decode())
    assert users_key(str(file)) == bytes(32)
    monkeypatch.setenv(KEY_VARIABLE, base64.b64encode(b"1" * 32).decode())
    assert users_key("") == b"1" * 32
    monkeypatch.setenv(KEY_VARIABLE, "short")
    with pytest.raises(ConfError, match=f"the environment variable {KEY_VARIABLE} is not 32 bytes"):
        users_key("")
    with pytest.raises(ConfError, match="can't be read"):
        users_key(str(tmp_path / "nowhere"))
