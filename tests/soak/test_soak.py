"""`make soak` notices failures of every kind, and its page has every proof."""

import re
from pathlib import Path

import pytest
from tests.soak import pretended
from tests.soak.__main__ import main
from tests.soak.page import as_json, rows_of, write_page
from tests.soak.proofs import PROJECT, PROOFS
from tests.soak.running import FAILURES_MAX, Result, Wanted, run

FOREVER = float("inf")


async def result_of(name: str, count: int | None, seconds: float = FOREVER, processes: int = 2) -> Result:
    wanted = Wanted(0, count, None, processes, pretended.__name__)
    return await run(pretended.PROOFS[name], wanted, seconds)


async def test_trials_are_shared_by_processes() -> None:
    result = await result_of("_fine", 5)
    assert (result.trials, result.counts, result.failures) == (5, {"seeds": 10}, {})


async def test_time_is_kept_and_one_trial_is_run_at_least() -> None:
    result = await result_of("_fine", None, seconds=0.0, processes=1)
    assert result.trials == 1


async def test_failures_are_told_by_seed() -> None:
    result = await result_of("_wrong", 5)
    assert (result.trials, sorted(result.failures)) == (5, [0, 3])
    assert "AssertionError: 3 is wrong" in result.failures[3]


async def test_a_proof_that_always_fails_ends() -> None:
    result = await result_of("_wrong", None, processes=1)
    assert len(result.failures) == FAILURES_MAX


async def test_a_process_that_dies_is_a_failure_and_the_next_trial_is_run() -> None:
    result = await result_of("_dies", 4, processes=1)
    assert (result.trials, result.failures) == (4, {1: "the process of the trial ended with -9"})


async def test_a_trial_that_hangs_is_a_failure() -> None:
    result = await result_of("_hangs", 2, processes=1)
    assert (result.trials, result.failures) == (2, {0: "the trial took longer than 2 s"})


async def test_what_this_machine_lacks_is_told() -> None:
    result = await result_of("_missing", 5)
    assert (result.trials, result.left_out) == (0, "there is no such thing here")


def test_a_trial_is_repeated_by_the_command_that_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "broker", "--seed", "14"]) == 0
    assert re.search(r"\| broker \| 1 \| 0 \|", capsys.readouterr().out)


def test_a_count_is_shared_out() -> None:
    wanted = Wanted(100, 1000)
    assert wanted.stop(PROOFS["store-crashes"]) == 1100
    assert wanted.stop(PROOFS["kills-sync"]) == 200
    assert wanted.stop(PROOFS["turns-broker"]) == 101


def test_a_page_keeps_the_rows_of_proofs_that_did_not_run(tmp_path: Path) -> None:
    page, (one, other, *_) = tmp_path / "evidence.md", PROOFS.values()
    write_page(page, [Result(one, trials=3, seconds=2.0), Result(other, left_out="too long")], "command 1")
    write_page(page, [Result(one, left_out="too long"), Result(other, 1_000, {7: "wrong"}, 9.4)], "command 2")
    rows = rows_of(page.read_text())
    assert rows.keys() == PROOFS.keys()
    assert rows[one.name][:4] == (one.name, "3", "0", "2")
    assert rows[other.name][:4] == (other.name, "1,000", "**1**", "9")
    assert "`command 2`" in page.read_text()
    assert f'"again": "{other.command(7)}"' in as_json([Result(other, 1, {7: "wrong"})], "x")


def test_the_page_has_every_proof() -> None:
    page = (PROJECT / "docs" / "evidence.md").read_text()
    told = set(re.findall(r"^\| ([a-z-]+) \|", page, re.M)) - {"proof", "---"}
    assert told == PROOFS.keys(), "python -m tests.soak --only NAME --count 100 --page docs/evidence.md"


@pytest.mark.parametrize("name", PROOFS)
def test_a_sample_is_among_the_tests(name: str) -> None:
    proof = PROOFS[name]
    assert (PROJECT / proof.sample).exists()
    assert proof.command(7).endswith("7") or " 7 " in proof.command(7)
