"""The benchmark of the codec measures the documented operations."""

from benchmarks import codec

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import encode


def test_every_kind_has_many_different_frames_that_go_both_ways() -> None:
    for kind, make in codec.KINDS.items():
        frames = [encode(make(n)) for n in range(codec.VARIANTS)]
        assert len(set(frames)) == codec.VARIANTS, kind
        for backend in codec._backends().values():
            codec._steps(frames, *backend)  # asserts that decoding and encoding give the same bytes


def test_the_send_is_as_large_as_the_java_clients() -> None:
    send = codec.KINDS[codec.SEND](3)
    assert send.code == RequestCode.SEND_MESSAGE_V2
    assert send.ext is not None
    assert list(send.ext) == list("abcdefghijklmn")
    assert 100 <= len(send.ext["i"]) <= 120 and send.ext["i"].count("\x01") == 5
    assert len(send.body) == 128


def test_steps_are_timed_per_frame() -> None:
    done = []
    costs = codec.measure({"work": lambda: done.append(sum(range(2000)))}, rounds=3, round_ns=100_000)
    assert len(costs["work"].rounds) == 3
    assert 0 < costs["work"].best <= costs["work"].usual
    assert len(done) >= 13
