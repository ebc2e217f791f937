"""The requests of producers and consumers, by code. Those of operators are in `admin/table.py`."""

from kourou.broker.members import Members
from kourou.broker.pull import Pull
from kourou.broker.queries import Queries
from kourou.broker.replies import Replies
from kourou.broker.retry import Retry
from kourou.broker.send import Send
from kourou.broker.serving import Serve
from kourou.broker.transactions.service import Transactions
from kourou.protocol.codes import RequestCode


def client_requests(
    send: Send,
    retry: Retry,
    replies: Replies,
    transactions: Transactions,
    pull: Pull,
    members: Members,
    queries: Queries,
) -> dict[int, Serve]:
    """The function of each code."""
    return {
        RequestCode.SEND_MESSAGE: send.send,
        RequestCode.SEND_MESSAGE_V2: send.send,
        RequestCode.SEND_BATCH_MESSAGE: send.send,
        RequestCode.CONSUMER_SEND_MSG_BACK: retry.send_back,
        RequestCode.SEND_REPLY_MESSAGE: replies.reply,
        RequestCode.SEND_REPLY_MESSAGE_V2: replies.reply,
        RequestCode.END_TRANSACTION: transactions.end,
        RequestCode.RESUME_CHECK_HALF_MESSAGE: transactions.resume,
        RequestCode.PULL_MESSAGE: pull.pull,
        RequestCode.LITE_PULL_MESSAGE: pull.pull,
        RequestCode.HEART_BEAT: members.heartbeat,
        RequestCode.UNREGISTER_CLIENT: members.unregister,
        RequestCode.CHECK_CLIENT_CONFIG: members.check_config,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP: members.list_consumers,
        RequestCode.UPDATE_CONSUMER_OFFSET: members.update_offset,
        RequestCode.QUERY_CONSUMER_OFFSET: members.query_offset,
        RequestCode.LOCK_BATCH_MQ: members.lock,
        RequestCode.UNLOCK_BATCH_MQ: members.unlock,
        RequestCode.VIEW_MESSAGE_BY_ID: queries.view,
        RequestCode.QUERY_MESSAGE: queries.query,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: queries.search_offset,
        RequestCode.GET_MAX_OFFSET: queries.max_offset,
        RequestCode.GET_MIN_OFFSET: queries.min_offset,
        RequestCode.GET_EARLIEST_MSG_STORETIME: queries.earliest_time,
    }
