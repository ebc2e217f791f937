"""The driver of a machine, with a machine that the test controls."""

import asyncio
from collections.abc import Callable

import pytest
from tests.waiting import eventually

from kourou.server.driver import AFTER_FAULT_MS, Driver, Tasks

TICK, TURN = "tick", "turn"


class Scripted:
    """A machine whose effects are what the script says of the events."""

    def __init__(self, script: Callable[[list[str]], list[str]]) -> None:
        self._script = script
        self.steps: list[list[str]] = []
        self.is_busy = False
        self.wake_ms = 1 << 50

    def step(self, events: list[str], now_ms: int) -> list[str]:
        self.steps.append(events)
        return self._script(events)


class World:
    """A driver, with what it performed and what failed."""

    def __init__(self, script: Callable[[list[str]], list[str]] = lambda events: events) -> None:
        self.machine = Scripted(script)
        self.performed: list[str] = []
        self.faults: list[str] = []
        self.then: dict[str, list[str]] = {}  # events that performing an effect causes
        loop = asyncio.get_running_loop()
        self.driver: Driver[str, str] = Driver(
            self.machine,
            self._perform,
            now_ms=lambda: round(loop.time() * 1000),
            tick=TICK,
            turn=TURN,
            on_fault=lambda what, _: self.faults.append(what),
        )

    def _perform(self, effect: str) -> None:
        if effect.startswith("bad"):
            raise ValueError(effect)
        self.performed.append(effect)
        if effect in self.then:
            self.driver.step(self.then[effect])


async def test_events_of_effects_wait_for_all_effects() -> None:
    world = World()
    world.then = {"a": ["c"]}
    world.driver.step(["a", "b"])
    assert world.machine.steps == [["a", "b"], ["c"]]
    assert world.performed == ["a", "b", "c"]


async def test_an_effect_that_fails_does_not_stop_the_next() -> None:
    world = World()
    world.driver.step(["bad", "good"])
    assert world.performed == ["good"]
    assert world.faults == ["the effect str"]


async def test_long_work_has_its_turns() -> None:
    world = World()
    world.machine.is_busy = True
    world.driver.step(["a"])
    assert world.machine.steps == [["a"]]
    await asyncio.sleep(0)
    assert world.machine.steps == [["a"], [TURN]]
    world.machine.is_busy = False
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert world.machine.steps == [["a"], [TURN], [TURN]]


async def test_the_timer_follows_the_earliest_time() -> None:
    world = World()
    loop = asyncio.get_running_loop()
    world.machine.wake_ms = round(loop.time() * 1000) + 60_000
    world.driver.step(["a"])
    world.machine.wake_ms = round(loop.time() * 1000) + 1

    def sleep_again(events: list[str]) -> list[str]:
        world.machine.wake_ms = 1 << 50
        return events

    world.machine._script = sleep_again
    world.driver.perform(["b"])
    await eventually(lambda: world.performed == ["a", "b", TICK])


async def test_a_machine_that_fails_is_not_called_without_a_pause() -> None:
    def fail(events: list[str]) -> list[str]:
        raise RuntimeError("a fault of the machine")

    world = World(fail)
    world.machine.wake_ms = 0
    began = asyncio.get_running_loop().time()
    world.driver.step([TICK])
    await eventually(lambda: len(world.machine.steps) >= 3)
    assert asyncio.get_running_loop().time() - began >= 2 * AFTER_FAULT_MS / 1000 - 0.01
    assert set(world.faults) == {"a step"}
    world.driver.close()


@pytest.mark.parametrize("ends", ["rest", "close"])
async def test_a_driver_at_rest_takes_events_and_has_no_timer(ends: str) -> None:
    world = World()
    world.machine.wake_ms = 0
    world.driver.step(["a"])
    getattr(world.driver, ends)()
    world.driver.step(["b"])
    await asyncio.sleep(0)
    assert world.performed == (["a", "b"] if ends == "rest" else ["a"])


async def test_tasks_that_do_not_end_are_cancelled() -> None:
    tasks = Tasks()
    ended: list[str] = []

    async def wait_for_ever() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cancelled")

    tasks.start(wait_for_ever())
    await asyncio.sleep(0)
    await tasks.finish(0.0)
    assert ended == ["cancelled"], "their connections are closed when it returns"


async def test_what_follows_from_a_task_is_finished_as_well() -> None:
    tasks = Tasks()
    done: list[str] = []

    async def second() -> None:
        await asyncio.sleep(0)
        done.append("second")

    async def first() -> None:
        await asyncio.sleep(0)
        tasks.start(second())

    tasks.start(first())
    await tasks.finish(5.0)
    assert done == ["second"]
