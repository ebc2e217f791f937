"""Settings: Apache's names, types, and which of them a request may change."""

from dataclasses import fields

import pytest

from kourou.nameserver.settings import (
    GuardedSettingError,
    SettingError,
    Settings,
    hot_properties,
    other_properties,
    unknown_keys,
    unused_keys,
)

UNSAFE = {"path", "home", "address", "port", "black", "controller", "cluster"}
"""What a request must never change has one of these words in its name."""


def test_defaults_are_apaches() -> None:
    settings = Settings()
    assert settings.listen_port == 9876
    assert settings.to_properties()["scanNotActiveBrokerInterval"] == "5000"
    assert settings.to_properties()["returnOrderTopicConfigToBroker"] == "true"
    assert "rocketmqHome" not in settings.to_properties()


def test_a_file_is_read_and_written_alike() -> None:
    properties = Settings(order_message_enable=True, listen_port=1234, rocketmq_home="/opt/mq").to_properties()
    assert Settings().with_properties(properties).to_properties() == properties


def test_values_may_have_blanks_around_them() -> None:
    assert Settings().with_properties({"listenPort": " 80 ", "clusterTest": " TRUE "}).listen_port == 80


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listenPort", "http"),
        ("listenPort", ""),
        ("listenPort", "1e3"),
        ("listenPort", "-1"),
        ("listenPort", str(2**31)),
        ("enableTopicList", "1"),
        ("enableTopicList", ""),
    ],
)
def test_a_value_of_the_wrong_type_is_named(key: str, value: str) -> None:
    with pytest.raises(SettingError, match=f"{key}={value}"):
        Settings().with_properties({key: value})


def test_a_request_changes_all_or_nothing() -> None:
    settings = Settings()
    assert settings.with_request({"orderMessageEnable": "true"}).order_message_enable
    with pytest.raises(GuardedSettingError):
        settings.with_request({"orderMessageEnable": "true", "kvConfigPath": "/x"})
    with pytest.raises(SettingError, match="noSuchKey is not a setting"):
        settings.with_request({"orderMessageEnable": "true", "noSuchKey": "1"})


@pytest.mark.parametrize("name", [setting.name for setting in fields(Settings)])
def test_no_request_changes_where_things_are(name: str) -> None:
    unsafe = not UNSAFE.isdisjoint(name.split("_"))
    head, *rest = name.split("_")
    key = head + "".join(word.capitalize() for word in rest)
    value = Settings().to_properties().get(key, "x")
    if unsafe:
        with pytest.raises(GuardedSettingError):
            Settings().with_request({key: value})
    assert not (unsafe and key in hot_properties({key: value}))


def test_the_black_list_guards_more() -> None:
    with pytest.raises(GuardedSettingError, match="Can not update config in black list"):
        Settings(config_black_list="a;enableTopicList").with_request({"enableTopicList": "true"})


def test_keys_are_told_apart() -> None:
    properties = {
        "listenPort": "1",
        "enableTopicList": "false",
        "serverWorkerThreads": "9",
        "serverSelectorThreads": "3",
        "what": "ever",
        "tls.server.mode": "disabled",
    }
    assert hot_properties(properties).keys() == {"enableTopicList", "serverWorkerThreads", "serverSelectorThreads"}
    assert other_properties(properties).keys() == {"what", "tls.server.mode"}
    assert unknown_keys(properties) == ["what"]
    assert unused_keys(properties) == ["serverWorkerThreads"]
