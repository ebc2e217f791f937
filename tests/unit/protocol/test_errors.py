"""The exception tree and the way from a response code to its class."""

import pytest

from kourou.protocol import errors
from kourou.protocol.codes import ResponseCode
from kourou.protocol.errors import (
    FlushDiskTimeoutError,
    FrameError,
    KourouError,
    LocalProtocolError,
    NothingToPullError,
    ProtocolError,
    RefusedError,
    RemoteProtocolError,
    StoredButUnsafeError,
    SystemBusyError,
    TopicNotExistError,
    refused,
)


@pytest.mark.parametrize("code", [code for code in ResponseCode if code is not ResponseCode.SUCCESS])
def test_every_code_has_its_class(code: ResponseCode) -> None:
    error = refused(code, "why")
    assert type(error) is RefusedError.by_code[code] is not RefusedError
    assert (error.code, error.response_code, error.remark) == (code, code, "why")
    assert str(error) == f"{code.name} ({int(code)}): why"
    assert type(error).__doc__


def test_success_is_not_an_error() -> None:
    assert ResponseCode.SUCCESS not in RefusedError.by_code


def test_an_unknown_code_still_raises() -> None:
    error = refused(4711, "odd")
    assert type(error) is RefusedError
    assert (error.code, error.response_code) == (None, 4711)
    assert str(error) == "code (4711): odd"
    assert str(refused(4711)) == "code (4711): no remark"
    assert refused(-1).response_code == -1


def test_a_code_belongs_to_one_class() -> None:
    with pytest.raises(TypeError, match="SYSTEM_BUSY already belongs to SystemBusyError"):

        class Another(RefusedError, code=ResponseCode.SYSTEM_BUSY):
            pass

    assert RefusedError.by_code[ResponseCode.SYSTEM_BUSY] is SystemBusyError


def test_families() -> None:
    assert issubclass(FlushDiskTimeoutError, StoredButUnsafeError)
    assert isinstance(refused(19), NothingToPullError)
    assert issubclass(FrameError, RemoteProtocolError)
    assert issubclass(LocalProtocolError, ProtocolError)
    assert not issubclass(ProtocolError, RefusedError)
    for name, cls in vars(errors).items():
        if isinstance(cls, type) and issubclass(cls, Exception):
            assert issubclass(cls, KourouError), name


def test_what_may_be_tried_again() -> None:
    assert TopicNotExistError.retriable and SystemBusyError.retriable
    assert not refused(16).retriable
    assert not refused(4711).retriable
    assert not FrameError.retriable
