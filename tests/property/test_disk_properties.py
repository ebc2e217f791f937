"""The simulated disk against the real one, and against a model of power failures; random metadata."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeVar

from hypothesis import example, given, settings, strategies as st
from tests.examples import examples

from kourou.protocol.bodies import TopicConfig, TopicConfigSerializeWrapper
from kourou.store.checkpoint import Checkpoint
from kourou.store.disk import Disk, File, RealDisk
from kourou.store.metadata import CONSUMER_OFFSETS, TOPICS, ConsumerOffsets, MetadataFile
from kourou.testing.disk import SimulatedDisk
from kourou.testing.disk_parts import SECTOR

SIZE = 6 * SECTOR + 100

T = TypeVar("T")

names = st.sampled_from(["a", "b", "b.bak", "deep/c"])
Step = tuple[str, str, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "create",
                "sparse",
                "write",
                "sync",
                "replace",
                "backup",
                "remove",
                "folder",
                "sync_folder",
                "truncate",
                "close",
            ]
        ),
        names,
        st.integers(0, SIZE - 1),
    ),
    max_size=25,
)


class Hands:
    """Does steps on a disk, of either kind."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self.disk = disk
        self.root = root
        self.open: dict[str, File] = {}

    def do(self, step: Step) -> str | None:
        """The error of a step that is refused."""
        try:
            getattr(self, "_" + step[0])(self.root / step[1], step[1], step[2])
        except OSError as error:
            return type(error).__name__
        return None

    def _create(self, path: Path, name: str, _: int) -> None:
        self.open[name] = self.disk.create(path, SIZE)

    def _sparse(self, path: Path, name: str, at: int) -> None:
        self.open[name] = self.disk.create(path, SIZE, reserve=False, content=memoryview(bytes([at % 256]) * at))
        self.open[name].reserve(0, SIZE)

    def _write(self, _path: Path, name: str, at: int) -> None:
        if name in self.open:
            piece = self.open[name].buffer[at : at + 700]
            piece[:] = bytes([at % 255 + 1]) * len(piece)

    def _sync(self, _path: Path, name: str, _: int) -> None:
        if name in self.open:
            self.open[name].sync()

    def _close(self, _path: Path, name: str, _: int) -> None:
        if name in self.open:
            self.open.pop(name).close()

    def _replace(self, path: Path, name: str, at: int) -> None:
        self.disk.replace(path, bytes([at % 256]) * at)
        self._close(path, name, at)

    def _backup(self, path: Path, name: str, at: int) -> None:
        self.disk.replace(path, bytes([at % 256]) * at, backup=True)
        self._close(path, name, at)  # the backup is the same file
        self._close(path, name + ".bak", at)

    def _remove(self, path: Path, name: str, at: int) -> None:
        self.disk.remove(path)
        self._close(path, name, at)

    def _folder(self, path: Path, name: str, at: int) -> None:
        if path.parent != self.root:
            self.disk.remove_folder(path.parent)
            self._close(path, name, at)

    def _sync_folder(self, path: Path, _name: str, _: int) -> None:
        self.disk.sync_folder(path.parent)

    def _truncate(self, path: Path, name: str, at: int) -> None:
        if not self.open:
            self.disk.truncate(path, at)

    def seen(self) -> object:
        return [
            (folder, self.disk.folders(self.root / folder), self._contents(self.root / folder))
            for folder in ("", "deep")
        ]

    def _contents(self, folder: Path) -> dict[str, bytes | None]:
        return {name: self.disk.read(folder / name) for name in sorted(self.disk.files(folder))}


@given(steps)
@example([("create", "b", 0), ("backup", "b", 0), ("truncate", "b.bak", 0)])
@settings(max_examples=examples(40), deadline=None)
def test_the_twin_does_what_the_real_disk_does(todo: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        real = Hands(RealDisk(Path(folder) / "aside"), root)
        twin = Hands(SimulatedDisk(Random(1)), root)
        for step in todo:
            assert real.do(step) == twin.do(step), step
            assert real.seen() == twin.seen(), step
        for file in real.open.values():
            file.close()


class Model:
    """The possible contents of a segment after a power failure: per sector, those at the last sync and since."""

    def __init__(self) -> None:
        self.safe = bytes(SIZE)
        self.since: list[bytes] = []

    def wrote(self, content: bytes) -> None:
        self.since.append(content)

    def synced(self, content: bytes) -> None:
        self.safe, self.since = content, []

    def allows(self, image: bytes) -> bool:
        """Each sector is one of those, or the beginning of one and the end of another."""
        if len(image) != SIZE:
            return False
        for at in range(0, SIZE, SECTOR):
            found = image[at : at + SECTOR]
            states = {content[at : at + SECTOR] for content in (self.safe, *self.since)}
            if found not in states and not any(_spliced(found, a, b) for a in states for b in states):
                return False
        return True


def _spliced(found: bytes, begin: bytes, end: bytes) -> bool:
    return any(found == begin[:cut] + end[cut:] for cut in range(1, len(found)))


@given(
    st.lists(st.one_of(st.integers(0, SIZE - 1), st.sampled_from(["sync", "write_back", "kill"])), max_size=12),
    st.integers(0, 2**32),
)
@settings(max_examples=examples(150), deadline=None)
def test_a_power_cut_leaves_what_it_may(todo: list[int | str], seed: int) -> None:
    disk = SimulatedDisk(Random(seed))
    file = disk.create(Path("/0"), SIZE)
    model = Model()
    for number, step in enumerate(todo, start=1):
        if step == "sync":
            file.sync()
            model.synced(bytes(file.buffer))
        elif step == "write_back":
            disk.write_back()
        elif step == "kill":
            disk = disk.kill()
            file = disk.open(Path("/0"))
        else:
            assert isinstance(step, int)
            piece = file.buffer[step : step + 700]
            piece[:] = bytes([number]) * len(piece)
            model.wrote(bytes(file.buffer))
    for image in disk.crash_images(4):
        found = image.read(Path("/0"))
        assert found is not None
        assert model.allows(found)
        # The contents after a crash are durable.
        assert image.crash().read(Path("/0")) == found


@given(st.binary(max_size=5000))
def test_no_bytes_hurt_a_checkpoint(content: bytes) -> None:
    checkpoint = Checkpoint.decode(content)
    if checkpoint.problem is None:
        assert checkpoint.encode()[:48] == content[:48]
    else:
        assert checkpoint.recovery_ms == 0


texts = st.text(st.characters(codec="utf-8"), max_size=12)
offset_tables = st.dictionaries(texts, st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-(2**63), 2**63 - 1)))


@given(offset_tables, offset_tables)
def test_offsets_come_back_as_they_were(consumed: dict[str, dict[int, int]], pulled: dict[str, dict[int, int]]) -> None:
    offsets = ConsumerOffsets(offset_table=consumed, pull_offset_table=pulled)
    _comes_back(lambda disk: MetadataFile(disk, Path("/c"), CONSUMER_OFFSETS), offsets)


@given(st.dictionaries(texts, st.builds(TopicConfig, topic_name=texts, attributes=st.dictionaries(texts, texts))))
def test_topics_come_back_as_they_were(table: dict[str, TopicConfig]) -> None:
    topics = TopicConfigSerializeWrapper(topic_config_table=table)
    _comes_back(lambda disk: MetadataFile(disk, Path("/c"), TOPICS), topics)


def _comes_back(file: Callable[[Disk], MetadataFile[T]], value: T) -> None:
    disk = SimulatedDisk(Random(1))
    file(disk).save(value)
    assert file(disk).load() == value
