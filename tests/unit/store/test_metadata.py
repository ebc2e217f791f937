"""The metadata files: as the real broker writes them, and whatever happens to them."""

import errno
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kourou.protocol.bodies import (
    CustomizedRetryPolicy,
    DataVersion,
    DelayOffsetSerializeWrapper,
    GroupRetryPolicy,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TransactionMetric,
    TransactionMetricsSerializeWrapper,
)
from kourou.protocol.errors import BodyError
from kourou.store import metadata
from kourou.store.disk import Disk, RealDisk
from kourou.store.errors import BadStoreError
from kourou.store.metadata import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    FILTERS,
    GROUPS,
    ORDERS,
    TOPICS,
    TRANSACTION_METRICS,
    ConsumerOffsets,
    Kind,
    MetadataFile,
)
from kourou.testing.disk import SimulatedDisk, crash_everywhere

APACHE = Path(__file__).parents[2] / "data" / "config-5.5.0"
"""The files of a broker 5.5.0 that had some topics, groups, consumers, filters and a static topic."""

CONFIG = Path("/store/config")
KINDS: list[Kind[Any]] = [value for value in vars(metadata).values() if isinstance(value, Kind)]


def disk_with(**files: bytes) -> SimulatedDisk:
    disk = SimulatedDisk(Random(1))
    for name, content in files.items():
        disk.install(CONFIG / name.replace("_json", ".json").replace("_bak", ".bak"), content)
    return disk


def topics(*names: str, counter: int = 0) -> TopicConfigSerializeWrapper:
    table = {name: TopicConfig(topic_name=name) for name in names}
    return TopicConfigSerializeWrapper(topic_config_table=table, data_version=DataVersion(counter=counter))


def text(value: TopicConfigSerializeWrapper) -> bytes:
    return MetadataFile(SimulatedDisk(Random(1)), CONFIG, TOPICS).encode(value)


# ── As the real broker writes them ──────────────────────────────────────────────────────────────────────────────────


def test_there_is_a_file_of_each_kind_to_compare_with() -> None:
    assert {kind.name for kind in KINDS} == {path.name for path in APACHE.iterdir()}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_file_of_the_real_broker_is_read_and_written_alike(kind: Kind[Any], tmp_path: Path) -> None:
    file = MetadataFile(RealDisk(tmp_path), APACHE, kind)
    value = file.load()
    assert value is not None
    assert file.encode(value).decode() == (APACHE / kind.name).read_text()
    assert file.problem is None


def test_what_the_real_broker_wrote_is_understood(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    known = MetadataFile(disk, APACHE, TOPICS).load()
    assert known is not None
    assert known.topic_config_table["fifo"].attributes == {"message.type": "FIFO"}
    assert known.data_version.counter == 4
    groups = MetadataFile(disk, APACHE, GROUPS).load()
    assert groups is not None
    assert groups.forbidden_table == {"custom": {"orders": 4}}
    assert groups.subscription_group_table["custom"].group_retry_policy.customized_retry_policy == (
        CustomizedRetryPolicy(next=(10, 20, 30))
    )
    offsets = MetadataFile(disk, APACHE, CONSUMER_OFFSETS).load()
    assert offsets is not None
    assert offsets.offset_table["orders@tagged"] == {0: 11, 1: 10, 2: 11, 3: 11}
    assert offsets.pull_offset_table == offsets.offset_table
    delays = MetadataFile(disk, APACHE, DELAY_OFFSETS).load()
    assert delays is not None
    assert delays.offset_table == {1: 1, 2: 1, 3: 1}


def test_offsets_of_an_old_broker_are_read() -> None:
    """Release 4.9 has neither versions nor pull offsets, and fastjson 1 refers to a table that it has met before."""
    content = b'{"offsetTable":{"a@g":{0:1,1:2},"a@h":{"$ref":"$.offsetTable.a\\\\@g"}}}'
    offsets = MetadataFile(disk_with(consumerOffset_json=content), CONFIG, CONSUMER_OFFSETS).load()
    assert offsets == ConsumerOffsets(offset_table={"a@g": {0: 1, 1: 2}, "a@h": {0: 1, 1: 2}})


def test_quoted_numbers_are_keys_as_well() -> None:
    disk = disk_with(delayOffset_json=b'{"offsetTable":{"1":5,2:6}}')
    assert MetadataFile(disk, CONFIG, DELAY_OFFSETS).load() == DelayOffsetSerializeWrapper(offset_table={1: 5, 2: 6})


def test_names_are_escaped_and_numbers_are_whole() -> None:
    table = {'a"b@g,{"': {0: -1, 7: 2**63 - 1}, "é\n@g": {}, "t@a@b": {0: 0}, "none": {1: 1}, "@g": {0: 1}}
    file = MetadataFile(SimulatedDisk(Random(1)), CONFIG, CONSUMER_OFFSETS)
    offsets = ConsumerOffsets(offset_table=table, pull_offset_table={"x@g": {0: 3}})
    file.save(offsets)
    assert file.load() == offsets
    assert file.encode(offsets).decode().splitlines()[6:] == [
        '\t"groupTopicMap":{',
        '\t\t"g,{\\"":[',
        '\t\t\t"a\\"b"',
        "\t\t],",
        '\t\t"g":[',
        '\t\t\t"é\\n"',
        "\t\t]",
        "\t},",
        '\t"offsetTable":{',
        '\t\t"a\\"b@g,{\\"":{',
        "\t\t\t0:-1,",
        "\t\t\t7:9223372036854775807",
        "\t\t},",
        '\t\t"é\\n@g":{},',
        '\t\t"t@a@b":{',
        "\t\t\t0:0",
        "\t\t},",
        '\t\t"none":{',
        "\t\t\t1:1",
        "\t\t},",
        '\t\t"@g":{',
        "\t\t\t0:1",
        "\t\t}",
        "\t},",
        '\t"pullOffsetTable":{',
        '\t\t"x@g":{',
        "\t\t\t0:3",
        "\t\t}",
        "\t}",
        "}",
    ]


def test_an_offset_that_is_no_integer_is_not_written() -> None:
    file = MetadataFile(SimulatedDisk(Random(1)), CONFIG, CONSUMER_OFFSETS)
    with pytest.raises(AssertionError, match="only integers"):
        file.encode(ConsumerOffsets(offset_table={"t@g": {0: True}}))


def test_empty_tables_are_braces() -> None:
    file = MetadataFile(SimulatedDisk(Random(1)), CONFIG, CONSUMER_OFFSETS)
    assert file.encode(ConsumerOffsets()).decode().splitlines()[6:] == [
        '\t"groupTopicMap":{},',
        '\t"offsetTable":{},',
        '\t"pullOffsetTable":{}',
        "}",
    ]


def test_plain_values_keep_their_number_keys_and_lists() -> None:
    content = b"""{
\t"table":{
\t\t"t@g":{
\t\t\t0:{
\t\t\t\t"o":[1,2],
\t\t\t\t"oc":{
\t\t\t\t\t12:1
\t\t\t\t},
\t\t\t\t"names":[
\t\t\t\t\t"a",
\t\t\t\t\t"b"
\t\t\t\t]
\t\t\t}
\t\t}
\t}
}"""
    file = MetadataFile(disk_with(consumerOrderInfo_json=content), CONFIG, ORDERS)
    value = file.load()
    assert value == {"table": {"t@g": {0: {"o": [1, 2], "oc": {12: 1}, "names": ["a", "b"]}}}}
    assert file.encode(value) == content


def test_metrics_are_on_one_line() -> None:
    file = MetadataFile(SimulatedDisk(Random(1)), CONFIG, TRANSACTION_METRICS)
    value = TransactionMetricsSerializeWrapper(
        transaction_count={"T": TransactionMetric(count=2, time_stamp=5)},
        data_version=DataVersion(counter=1, timestamp=7),
    )
    assert file.encode(value) == (
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":7},'
        b'"transactionCount":{"T":{"count":2,"timeStamp":5}}}'
    )


def test_members_that_are_not_known_are_kept() -> None:
    content = b"""{
\t"aboutTopics":[
\t\t"new"
\t],
\t"dataVersion":{
\t\t"counter":1,
\t\t"epoch":7,
\t\t"stateVersion":0,
\t\t"timestamp":0
\t},
\t"topicConfigTable":{
\t\t"T":{
\t\t\t"attributes":{},
\t\t\t"order":false,
\t\t\t"perm":6,
\t\t\t"quota":{
\t\t\t\t"bytes":5
\t\t\t},
\t\t\t"readQueueNums":16,
\t\t\t"topicFilterType":"SINGLE_TAG",
\t\t\t"topicName":"T",
\t\t\t"topicSysFlag":0,
\t\t\t"writeQueueNums":16
\t\t}
\t}
}"""
    file = MetadataFile(disk_with(topics_json=content), CONFIG, TOPICS)
    value = file.load()
    assert value == topics("T", counter=1)
    assert file.encode(value) == content
    changed = topics("T", "U", counter=2)
    file.save(changed)
    again = MetadataFile(file._disk, CONFIG, TOPICS)
    assert again.load() == changed
    assert b'"quota":{' in again.encode(changed)
    assert again.encode(changed).count(b"quota") == 1
    assert b"quota" not in again.encode(topics("U"))


def test_a_body_that_changed_is_written_anew() -> None:
    """Texts of bodies that did not change are kept from one time to the next."""
    file = MetadataFile(SimulatedDisk(Random(1)), CONFIG, GROUPS)
    table = {name: SubscriptionGroupConfig(group_name=name) for name in ("a", "b", "c")}
    for step in (
        {"b": SubscriptionGroupConfig(group_name="b", retry_max_times=3)},
        {"c": SubscriptionGroupConfig(group_name="c", group_retry_policy=GroupRetryPolicy(type="EXPONENTIAL"))},
        {},
    ):
        table = {**table, **step}
        groups = SubscriptionGroupWrapper(subscription_group_table=dict(table))
        file.save(groups)
        assert MetadataFile(file._disk, CONFIG, GROUPS).load() == groups
    del table["a"]
    assert b'"a"' not in file.encode(SubscriptionGroupWrapper(subscription_group_table=table))


# ── What may happen to them ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_was_never_saved_is_none(kind: Kind[Any], tmp_path: Path) -> None:
    disk: Disk = RealDisk(tmp_path / "aside")
    assert MetadataFile(disk, tmp_path, kind).load() is None


def test_saving_keeps_the_content_before_as_backup() -> None:
    file = MetadataFile(SimulatedDisk(Random(1)), CONFIG, TOPICS)
    assert file.load() is None
    assert file.save(topics("A"))
    assert file.save(topics("A", "B"))
    assert not file.save(topics("A", "B"))
    assert file._disk.read(file.path) == text(topics("A", "B"))
    assert file._disk.read(file.backup) == text(topics("A"))


def test_what_is_there_already_is_not_written() -> None:
    disk = disk_with(topics_json=text(topics("A")))
    file = MetadataFile(disk, CONFIG, TOPICS)
    value = file.load()
    assert value is not None
    assert not file.save(value)
    assert disk.calls == 0


def test_a_failed_save_is_tried_again() -> None:
    disk = SimulatedDisk(Random(1))
    file = MetadataFile(disk, CONFIG, TOPICS)
    file.save(topics("A"))
    for late in (False, True):
        disk.fail("replace", errno.ENOSPC, late=late)
        with pytest.raises(OSError):
            file.save(topics("A", "B"))
    assert file.save(topics("A", "B"))
    assert all(MetadataFile(image, CONFIG, TOPICS).load() == topics("A", "B") for image in disk.crash_images(10))


TORN = [b"", b" \n", b"{", b"\0" * 100, b"\xff\xfe", b'{"topicConfigTable":{']
REFUSED = [b"[]", b"null", b'{"topicConfigTable":[]}', b'{"topicConfigTable":{"A":{"perm":"none"}}}']
BROKEN = [*TORN, *REFUSED]


@pytest.mark.parametrize("content", [None, *TORN])
def test_a_missing_or_torn_file_is_read_from_its_backup(
    content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    disk = disk_with(topics_json_bak=text(topics("A")))
    if content is not None:
        disk.install(CONFIG / "topics.json", content)
    file = MetadataFile(disk, CONFIG, TOPICS)
    assert file.load() == topics("A")
    assert file.problem is not None
    assert file.problem.startswith(f"{CONFIG}/topics.json is ")
    assert file.problem.endswith(": topics.json.bak is used instead, changes after it are lost")
    assert [record.levelname for record in caplog.records] == ["ERROR"]


@pytest.mark.parametrize("content", REFUSED)
def test_a_whole_file_that_is_refused_is_not_replaced_by_its_older_backup(content: bytes) -> None:
    disk = disk_with(topics_json=content, topics_json_bak=text(topics("A")))
    with pytest.raises(BadStoreError, match=r"The older topics\.json\.bak is not used in its place: repair the file"):
        MetadataFile(disk, CONFIG, TOPICS).load()
    assert disk.read(CONFIG / "topics.json") == content
    assert disk.read(CONFIG / "topics.json.bak") == text(topics("A"))


@pytest.mark.slow
def test_what_is_written_can_be_read_however_large_it_is() -> None:
    """More numbers as keys than a peer may send."""
    table = {f"wide@group-{number}": dict.fromkeys(range(65_536), number) for number in range(16)}
    offsets = ConsumerOffsets(offset_table=table)
    disk = SimulatedDisk(Random(1))
    MetadataFile(disk, CONFIG, CONSUMER_OFFSETS).save(offsets)
    with pytest.raises(BodyError, match="more than 1000000 numbers as keys"):
        ConsumerOffsets.decode(disk.read(CONFIG / "consumerOffset.json") or b"")
    assert MetadataFile(disk, CONFIG, CONSUMER_OFFSETS).load() == offsets


@pytest.mark.slow
def test_unknown_members_of_a_large_file_are_kept() -> None:
    names = ",".join(f'"topic-{number}":{{"new":1,"perm":6}}' for number in range(200_000))
    disk = disk_with(topics_json=f'{{"topicConfigTable":{{{names}}}}}'.encode())
    file = MetadataFile(disk, CONFIG, TOPICS)
    value = file.load()
    assert value is not None
    assert file.encode(value).count(b'"new":1') == 200_000


def test_a_large_table_is_encoded_in_slices() -> None:
    """And is what it is when it is encoded at once, though the table changes meanwhile."""
    many = {f"topic-{number}": TopicConfig(topic_name=f"topic-{number}") for number in range(5_000)}
    value = TopicConfigSerializeWrapper(topic_config_table=dict(many))
    file = MetadataFile(SimulatedDisk(Random(1)), CONFIG, TOPICS)
    whole = file.encode(value)
    slices = MetadataFile(SimulatedDisk(Random(1)), CONFIG, TOPICS).encode_slices(value)
    held = [next(slices)]
    value.topic_config_table.clear()
    content: list[bytes] = []

    def rest() -> Generator[int, None, None]:
        nonlocal content
        content = yield from slices

    held += rest()
    assert b"".join(content) == whole
    assert len(held) > 10 and held == sorted(held)
    assert max(after - before for before, after in pairwise(held)) < 100_000


def test_a_table_of_few_large_entries_is_encoded_in_slices() -> None:
    """Such as policies, of which one user may have thousands."""
    attributes = {f"attribute-{number}": "x" * 30 for number in range(500)}
    many = {f"topic-{number}": TopicConfig(topic_name=f"topic-{number}", attributes=attributes) for number in range(50)}
    value = TopicConfigSerializeWrapper(topic_config_table=many)
    slices = MetadataFile(SimulatedDisk(Random(1)), CONFIG, TOPICS).encode_slices(value)
    held = list(slices)
    assert max(after - before for before, after in pairwise(held)) < 100_000
    assert held[-1] > 1_000_000


@pytest.mark.parametrize("backup", [None, *BROKEN])
@pytest.mark.parametrize("content", BROKEN)
def test_without_a_good_file_there_is_an_error_and_never_an_empty_table(content: bytes, backup: bytes | None) -> None:
    disk = disk_with(topics_json=content)
    if backup is not None:
        disk.install(CONFIG / "topics.json.bak", backup)
    with pytest.raises(BadStoreError) as caught:
        MetadataFile(disk, CONFIG, TOPICS).load()
    said = str(caught.value)
    assert said.startswith(f"{CONFIG}/topics.json is ")
    assert "its backup topics.json.bak is " in said
    assert said.endswith("restore one of them from a copy, or move both away to start without topics")
    assert disk.read(CONFIG / "topics.json") == content


def test_a_broken_backup_alone_is_an_error() -> None:
    with pytest.raises(BadStoreError, match=r"consumerFilter\.json is missing, .* to start without filters"):
        MetadataFile(disk_with(consumerFilter_json_bak=b"[1]"), CONFIG, FILTERS).load()


def test_a_broken_file_does_not_become_the_backup() -> None:
    """Or a crash between backup and new content would leave nothing that can be read. It is kept under another name."""
    broken = b'{"topicConfigTable":{"A":{},}}'

    def start() -> SimulatedDisk:
        return disk_with(topics_json=broken, topics_json_bak=text(topics("A")))

    def run(disk: SimulatedDisk) -> None:
        disk.install(CONFIG / "topics.json", broken)
        disk.install(CONFIG / "topics.json.bak", text(topics("A")))
        file = MetadataFile(disk, CONFIG, TOPICS)
        file.load()
        file.save(topics("A", "B"))
        file.save(topics("A", "B", "C"))

    disk = start()
    run(disk)
    assert disk.read(CONFIG / "topics.json.broken") == broken
    assert disk.read(CONFIG / "topics.json.bak") == text(topics("A", "B"))
    found = [MetadataFile(image, CONFIG, TOPICS).load() for image in crash_everywhere(run, seed=3, images=3)]
    assert [known for known in found if known is None] == []
    assert {tuple(known.topic_config_table) for known in found if known} == {("A",), ("A", "B"), ("A", "B", "C")}


def test_a_file_that_can_not_be_read_now_is_not_broken() -> None:
    disk = disk_with(topics_json=text(topics("A", "B")), topics_json_bak=text(topics("A")))
    disk.fail("read")
    with pytest.raises(OSError):
        MetadataFile(disk, CONFIG, TOPICS).load()


def test_a_crash_anywhere_leaves_the_last_save_or_the_one_under_way() -> None:
    versions = [ConsumerOffsets(offset_table={"t@g": {0: number}}) for number in range(4)]

    def run(disk: SimulatedDisk) -> None:
        done.clear()
        file = MetadataFile(disk, CONFIG, CONSUMER_OFFSETS)
        file.load()
        for version in versions:
            file.save(version)
            done.append(version)

    done: list[ConsumerOffsets] = []
    for disk in crash_everywhere(run, seed=5, images=4):
        file = MetadataFile(disk, CONFIG, CONSUMER_OFFSETS)
        found = file.load()
        allowed: list[ConsumerOffsets | None] = [*versions[max(0, len(done) - 1) : len(done) + 1]]
        assert found in allowed or (not done and found is None)
        assert file.problem is None


def test_the_real_broker_s_crash_between_two_names_is_survived() -> None:
    """It renames the file to the backup before it writes the new one, which may be missing, empty or half then."""
    old, new = text(topics("A")), text(topics("A", "B"))
    for size in range(len(new)):
        disk = disk_with(topics_json_bak=old, topics_json=new[:size])
        assert MetadataFile(disk, CONFIG, TOPICS).load() == topics("A")


def test_a_large_table_survives_whole() -> None:
    table = {f"topic-{number % 100}@group-{number}": dict.fromkeys(range(8), number) for number in range(10_000)}
    offsets = ConsumerOffsets(offset_table=table, pull_offset_table=dict(list(table.items())[:5]))
    file = MetadataFile(SimulatedDisk(Random(1)), CONFIG, CONSUMER_OFFSETS)
    file.save(offsets)
    assert file.load() == offsets
    groups = file.encode(offsets).decode().partition('"offsetTable"')[0]
    assert groups.count('"group-') == 10_000
