"""The exception tree.

    KourouError
      ProtocolError             invalid bytes or values
        LocalProtocolError      ... and we were about to send them
        RemoteProtocolError     ... and the peer sent them
      RefusedError              the peer answered with a code other than success: a class per response code

Each class says whether the same request may succeed later (`retriable`). A response code without its own class
raises `RefusedError`, with code and remark.
"""

from typing import ClassVar, Final

from kourou.protocol.codes import ResponseCode


class KourouError(Exception):
    """The base of all errors that Kourou raises deliberately."""

    retriable: bool = False


class ProtocolError(KourouError):
    """Bytes or values that violate the protocol."""


class LocalProtocolError(ProtocolError):
    """We tried to send something that violates the protocol."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something that violates the protocol."""


class FrameError(RemoteProtocolError):
    """A frame that can't be separated from the stream: the connection must be closed."""


class HeaderError(RemoteProtocolError):
    """A request whose header fields are missing or have the wrong type: this request can't be served."""


class BodyError(RemoteProtocolError):
    """A body that does not decode: this request can't be served."""


class RefusedError(KourouError):
    """The peer answered with an error."""

    code: ClassVar[ResponseCode | None] = None
    by_code: ClassVar[dict[int, type["RefusedError"]]] = {}

    def __init_subclass__(cls, *, code: ResponseCode | None = None, retriable: bool | None = None) -> None:
        super().__init_subclass__()
        if retriable is not None:
            cls.retriable = retriable
        if code is not None:
            if code in RefusedError.by_code:
                raise TypeError(f"{code.name} already belongs to {RefusedError.by_code[code].__name__}")
            cls.code = code
            RefusedError.by_code[code] = cls

    def __init__(self, remark: str | None = None, *, response_code: int | None = None) -> None:
        self.remark = remark
        self.response_code = int(response_code if response_code is not None else self.code or -1)
        name = ResponseCode(self.response_code).name if self.response_code in RefusedError.by_code else "code"
        super().__init__(f"{name} ({self.response_code}): {remark or 'no remark'}")


def refused(code: int, remark: str | None = None) -> RefusedError:
    """The exception for an answer's code and remark. Unknown codes give `RefusedError`.

    Brokers report some permanent errors with the code of a temporary one, SYSTEM_ERROR. Their remarks identify them
    (`PERMANENT_REMARKS`); such an error is not `retriable`.
    """
    cls = RefusedError.by_code.get(code)
    error = cls(remark) if cls else RefusedError(remark, response_code=code)
    if error.retriable and code in _UNCLEAR and any(part in (remark or "") for part in PERMANENT_REMARKS):
        error.retriable = False
    return error


PERMANENT_REMARKS: Final = (
    "timer message is not enabled",  # a delay in milliseconds, on a broker without timers
    "not in this broker",  # a feature that our broker does not have yet
    "does not support consumer to filter message by",  # SQL92, on a broker without enablePropertyFilter
    "request queueId[",  # request queueId[7] is illegal
    "AclException",  # access control 1.0: unknown account, wrong signature, no permission
    "AuthenticationException",
    "AuthorizationException",
    "NumberFormatException",
    "the delay level is",
    "LMQ_CONSUME_QUEUE_NUM_EXCEEDED",
)
"""Parts of remarks of permanent errors: the same request will be refused again."""

_UNCLEAR: Final = frozenset({int(ResponseCode.SYSTEM_ERROR), int(ResponseCode.SERVICE_NOT_AVAILABLE)})


class StoredButUnsafeError(RefusedError):
    """The message is stored, but less durably than the flush or replication mode asks for."""


class NothingToPullError(RefusedError):
    """A pull without messages. Not a failure: pull again, perhaps from another broker."""


class SubscriptionError(RefusedError):
    """The consumer's subscription does not match the broker's."""


class TransactionError(RefusedError):
    """The state of a transaction, or a transaction that failed."""


class RelayError(RefusedError):
    """A broker relayed a request to another peer, and that failed."""


class ControllerError(RefusedError):
    """An error of the controllers that elect masters."""


class RpcTimeOutError(RelayError, code=ResponseCode.RPC_TIME_OUT, retriable=True):
    """A relayed request was not answered in time."""


class RpcSendToChannelFailedError(RelayError, code=ResponseCode.RPC_SEND_TO_CHANNEL_FAILED, retriable=True):
    """A relayed request could not be sent."""


class RpcAddrIsNullError(RelayError, code=ResponseCode.RPC_ADDR_IS_NULL):
    """A relayed request had no address."""


class RpcUnknownError(RelayError, code=ResponseCode.RPC_UNKNOWN):
    """A relayed request failed for an unknown reason."""


class PeerFailedError(RefusedError, code=ResponseCode.SYSTEM_ERROR, retriable=True):
    """The peer failed in a way that has no code; the remark has the reason."""


class SystemBusyError(RefusedError, code=ResponseCode.SYSTEM_BUSY, retriable=True):
    """The peer is overloaded; try again, or use another broker."""


class RequestCodeNotSupportedError(RefusedError, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED):
    """The peer does not support this request code."""


class TransactionFailedError(TransactionError, code=ResponseCode.TRANSACTION_FAILED):
    """The transaction failed."""


class FlushDiskTimeoutError(StoredButUnsafeError, code=ResponseCode.FLUSH_DISK_TIMEOUT, retriable=True):
    """Stored, but not on disk within the time allowed."""


class SlaveNotAvailableError(StoredButUnsafeError, code=ResponseCode.SLAVE_NOT_AVAILABLE, retriable=True):
    """Stored, but no slave was connected to replicate it."""


class FlushSlaveTimeoutError(StoredButUnsafeError, code=ResponseCode.FLUSH_SLAVE_TIMEOUT, retriable=True):
    """Stored, but not replicated within the time allowed."""


class MessageIllegalError(RefusedError, code=ResponseCode.MESSAGE_ILLEGAL):
    """The message violates a limit: body, topic, properties or timer."""


class ServiceNotAvailableError(RefusedError, code=ResponseCode.SERVICE_NOT_AVAILABLE, retriable=True):
    """The store does not accept writes now."""


class VersionNotSupportedError(RefusedError, code=ResponseCode.VERSION_NOT_SUPPORTED):
    """The peer is too old for this request."""


class NoPermissionError(RefusedError, code=ResponseCode.NO_PERMISSION):
    """Not permitted by access rules, or by the permissions of the broker, topic or group."""


class TopicNotExistError(RefusedError, code=ResponseCode.TOPIC_NOT_EXIST, retriable=True):
    """No broker serves this topic."""


class TopicExistAlreadyError(RefusedError, code=ResponseCode.TOPIC_EXIST_ALREADY):
    """The topic already exists."""


class PullNotFoundError(NothingToPullError, code=ResponseCode.PULL_NOT_FOUND, retriable=True):
    """No new message at this offset yet."""


class PullRetryImmediatelyError(NothingToPullError, code=ResponseCode.PULL_RETRY_IMMEDIATELY, retriable=True):
    """Nothing matched in the scanned range; pull again from the next offset."""


class PullOffsetMovedError(NothingToPullError, code=ResponseCode.PULL_OFFSET_MOVED):
    """The offset is outside the queue; the answer has the offset to continue from."""


class QueryNotFoundError(RefusedError, code=ResponseCode.QUERY_NOT_FOUND):
    """Nothing is stored for this key, offset or name."""


class SubscriptionParseFailedError(SubscriptionError, code=ResponseCode.SUBSCRIPTION_PARSE_FAILED):
    """The filter expression can't be parsed."""


class SubscriptionNotExistError(SubscriptionError, code=ResponseCode.SUBSCRIPTION_NOT_EXIST):
    """The group has not subscribed to this topic."""


class SubscriptionNotLatestError(SubscriptionError, code=ResponseCode.SUBSCRIPTION_NOT_LATEST):
    """The broker's subscription is older than the request's."""


class SubscriptionGroupNotExistError(SubscriptionError, code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST):
    """The consumer group does not exist."""


class FilterDataNotExistError(SubscriptionError, code=ResponseCode.FILTER_DATA_NOT_EXIST):
    """The filter of this group is not registered."""


class FilterDataNotLatestError(SubscriptionError, code=ResponseCode.FILTER_DATA_NOT_LATEST):
    """The registered filter is older than the request's."""


class InvalidParameterError(RefusedError, code=ResponseCode.INVALID_PARAMETER):
    """A field of the request has an invalid value."""


class TransactionShouldCommitError(TransactionError, code=ResponseCode.TRANSACTION_SHOULD_COMMIT):
    """The transaction is to be committed."""


class TransactionShouldRollbackError(TransactionError, code=ResponseCode.TRANSACTION_SHOULD_ROLLBACK):
    """The transaction is to be rolled back."""


class TransactionStateUnknowError(TransactionError, code=ResponseCode.TRANSACTION_STATE_UNKNOW):
    """The transaction state is unknown."""


class TransactionStateGroupWrongError(TransactionError, code=ResponseCode.TRANSACTION_STATE_GROUP_WRONG):
    """The transaction belongs to another producer group."""


class NoBuyerIdError(RefusedError, code=ResponseCode.NO_BUYER_ID):
    """The message has no buyer id."""


class NotInCurrentUnitError(RefusedError, code=ResponseCode.NOT_IN_CURRENT_UNIT):
    """The request belongs to another unit."""


class ConsumerNotOnlineError(RefusedError, code=ResponseCode.CONSUMER_NOT_ONLINE):
    """No consumer of the group is connected."""


class ConsumeMsgTimeoutError(RefusedError, code=ResponseCode.CONSUME_MSG_TIMEOUT):
    """The consumer did not answer in time."""


class NoMessageError(NothingToPullError, code=ResponseCode.NO_MESSAGE):
    """There is no message."""


class PollingFullError(RefusedError, code=ResponseCode.POLLING_FULL, retriable=True):
    """Too many requests are already waiting for messages."""


class PollingTimeoutError(NothingToPullError, code=ResponseCode.POLLING_TIMEOUT, retriable=True):
    """No message arrived while the request waited."""


class BrokerNotExistError(RefusedError, code=ResponseCode.BROKER_NOT_EXIST):
    """No broker with this name is known."""


class BrokerDispatchNotCompleteError(RefusedError, code=ResponseCode.BROKER_DISPATCH_NOT_COMPLETE, retriable=True):
    """The broker is still building its queues after a start or a change of role."""


class BroadcastConsumptionError(RefusedError, code=ResponseCode.BROADCAST_CONSUMPTION):
    """The group consumes by broadcasting, which this request does not allow."""


class FlowControlError(RefusedError, code=ResponseCode.FLOW_CONTROL, retriable=True):
    """The caller's quota is used up for now."""


class NotLeaderForQueueError(RefusedError, code=ResponseCode.NOT_LEADER_FOR_QUEUE, retriable=True):
    """Another broker leads this queue."""


class IllegalOperationError(RefusedError, code=ResponseCode.ILLEGAL_OPERATION):
    """The request conflicts with the state of its target."""


class GoAwayError(RefusedError, code=ResponseCode.GO_AWAY, retriable=True):
    """The peer is about to stop: connect to another one."""


class ControllerFencedMasterEpochError(ControllerError, code=ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH):
    """Controller: fenced master epoch."""


class ControllerFencedSyncStateSetEpochError(ControllerError, code=ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH):
    """Controller: fenced sync state set epoch."""


class ControllerInvalidMasterError(ControllerError, code=ResponseCode.CONTROLLER_INVALID_MASTER):
    """Controller: invalid master."""


class ControllerInvalidReplicasError(ControllerError, code=ResponseCode.CONTROLLER_INVALID_REPLICAS):
    """Controller: invalid replicas."""


class ControllerMasterNotAvailableError(
    ControllerError, code=ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, retriable=True
):
    """Controller: master not available."""


class ControllerInvalidRequestError(ControllerError, code=ResponseCode.CONTROLLER_INVALID_REQUEST):
    """Controller: invalid request."""


class ControllerBrokerNotAliveError(ControllerError, code=ResponseCode.CONTROLLER_BROKER_NOT_ALIVE):
    """Controller: broker not alive."""


class ControllerNotLeaderError(ControllerError, code=ResponseCode.CONTROLLER_NOT_LEADER, retriable=True):
    """Controller: not leader."""


class ControllerBrokerMetadataNotExistError(ControllerError, code=ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST):
    """Controller: broker metadata not exist."""


class ControllerInvalidCleanBrokerMetadataError(
    ControllerError, code=ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
):
    """Controller: invalid clean broker metadata."""


class ControllerBrokerNeedToBeRegisteredError(
    ControllerError, code=ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
):
    """Controller: broker need to be registered."""


class ControllerMasterStillExistError(ControllerError, code=ResponseCode.CONTROLLER_MASTER_STILL_EXIST):
    """Controller: master still exist."""


class ControllerElectMasterFailedError(ControllerError, code=ResponseCode.CONTROLLER_ELECT_MASTER_FAILED):
    """Controller: elect master failed."""


class ControllerAlterSyncStateSetFailedError(ControllerError, code=ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED):
    """Controller: alter sync state set failed."""


class ControllerBrokerIdInvalidError(ControllerError, code=ResponseCode.CONTROLLER_BROKER_ID_INVALID):
    """Controller: broker id invalid."""


class ControllerJraftInternalError(ControllerError, code=ResponseCode.CONTROLLER_JRAFT_INTERNAL_ERROR):
    """Controller: jraft internal error."""


class ControllerBrokerLiveInfoNotExistsError(ControllerError, code=ResponseCode.CONTROLLER_BROKER_LIVE_INFO_NOT_EXISTS):
    """Controller: broker live info not exists."""


class LmqQuotaExceededError(RefusedError, code=ResponseCode.LMQ_QUOTA_EXCEEDED):
    """Too many lite queues."""


class LiteSubscriptionQuotaExceededError(RefusedError, code=ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED):
    """Too many lite subscriptions."""


class UserNotExistError(RefusedError, code=ResponseCode.USER_NOT_EXIST):
    """The user does not exist."""


class PolicyNotExistError(RefusedError, code=ResponseCode.POLICY_NOT_EXIST):
    """The access policy does not exist."""
