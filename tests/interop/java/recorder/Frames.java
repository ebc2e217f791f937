import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.util.Arrays;
import java.util.HashMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;
import org.apache.rocketmq.remoting.protocol.SerializeType;
import org.apache.rocketmq.remoting.protocol.header.PullMessageResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeaderV2;
import org.apache.rocketmq.remoting.protocol.header.SendMessageResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.GetRouteInfoRequestHeader;

/** Whole frames as they leave Netty's encoder, length first: the odd corners, in both header forms. */
final class Frames {
    private static final String CHINESE = "订单主题";
    private static final String EMOJI = "🚀 \"q\" \\ /";
    private static final String CONTROL = "a\u0001b\u0002\t\n\u0000";

    static void record(Tape tape) throws Exception {
        for (SerializeType type : SerializeType.values()) {
            corners(tape, type);
            messages(tape, type);
        }
        acl(tape);
    }

    /** Encodes as the Netty encoder does, and records what the real decoder reads back. */
    static void write(Tape tape, String name, RemotingCommand command, SerializeType type, CommandCustomHeader header)
        throws Exception {
        command.setSerializeTypeCurrentRPC(type);
        ByteBuf out = Unpooled.buffer();
        command.fastEncodeHeader(out);
        if (command.getBody() != null) {
            out.writeBytes(command.getBody());
        }
        byte[] bytes = new byte[out.readableBytes()];
        out.readBytes(bytes);
        RemotingCommand read = RemotingCommand.decode(Arrays.copyOfRange(bytes, 4, bytes.length));
        tape.write("frame", name + " " + type, bytes, Tape.fields(
            "type", type.name(), "header", header == null ? null : Headers.name(header.getClass()),
            "code", read.getCode(), "flag", read.getFlag(), "language", read.getLanguage(),
            "version", read.getVersion(), "opaque", read.getOpaque(), "remark", read.getRemark(),
            "ext", read.getExtFields(), "body", Tape.hex(read.getBody())));
    }

    private static void corners(Tape tape, SerializeType type) throws Exception {
        write(tape, "no header", request(RequestCode.GET_BROKER_CLUSTER_INFO, 1), type, null);

        RemotingCommand body = request(RequestCode.HEART_BEAT, Integer.MAX_VALUE);
        body.setBody(new byte[] {0, -1, 127, -128});
        write(tape, "body of four bytes", body, type, null);

        RemotingCommand empty = request(RequestCode.HEART_BEAT, 2);
        empty.setBody(new byte[0]);
        empty.setExtFields(new HashMap<>());
        write(tape, "empty body, empty fields", empty, type, null);

        RemotingCommand oneway = request(RequestCode.UPDATE_CONSUMER_OFFSET, Integer.MIN_VALUE);
        oneway.markOnewayRPC();
        write(tape, "one-way, smallest opaque", oneway, type, null);

        RemotingCommand answer = RemotingCommand.createResponseCommand(ResponseCode.TOPIC_NOT_EXIST,
            "No topic route info in name server for the topic: " + CHINESE);
        answer.setOpaque(-1);
        write(tape, "refusal, Chinese remark, opaque -1", answer, type, null);

        RemotingCommand emptyRemark = RemotingCommand.createResponseCommand(ResponseCode.SUCCESS, "");
        emptyRemark.setOpaque(3);
        write(tape, "empty remark", emptyRemark, type, null);

        RemotingCommand negative = RemotingCommand.createResponseCommand(-1006, "negative code");
        negative.setOpaque(4);
        write(tape, "negative code", negative, type, null);

        RemotingCommand unicode = request(RequestCode.SEND_MESSAGE, 5);
        unicode.addExtField("topic", CHINESE);
        unicode.addExtField("emoji", EMOJI);
        unicode.addExtField("control", CONTROL);
        unicode.addExtField("empty", "");
        unicode.addExtField("null", null);
        unicode.addExtField("ключ", "значение é");
        write(tape, "unicode, control, empty and null values", unicode, type, null);

        for (LanguageCode language : new LanguageCode[] {LanguageCode.GO, LanguageCode.PYTHON, LanguageCode.NODE_JS}) {
            RemotingCommand other = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, 6);
            other.setLanguage(language);
            other.setVersion(317);
            write(tape, "language " + language, other, type, null);
        }

        RemotingCommand wide = request(RequestCode.POP_MESSAGE, 7);
        write(tape, "code beyond a short", wide, type, null);

        GetRouteInfoRequestHeader route = new GetRouteInfoRequestHeader();
        route.setTopic("TopicTest");
        route.setAcceptStandardJsonOnly(true);
        RemotingCommand extra = RemotingCommand.createRequestCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, route);
        extra.addExtField("ReqT", "1");
        extra.addExtField("__ZONE_NAME", "zone-1");
        extra.setOpaque(8);
        write(tape, "header and extra fields", extra, type, route);
    }

    private static void messages(Tape tape, SerializeType type) throws Exception {
        SendMessageRequestHeader known = new SendMessageRequestHeader();
        known.setProducerGroup("group-" + CHINESE);
        known.setTopic("TopicTest");
        known.setDefaultTopic("TBW102");
        known.setDefaultTopicQueueNums(4);
        known.setQueueId(3);
        known.setSysFlag(0);
        known.setBornTimestamp(1_700_000_000_000L);
        known.setFlag(0);
        known.setProperties("UNIQ_KEY\u00017F00000100002A9F0000000000000001\u0002WAIT\u0001true\u0002TAGS\u0001标签🚀\u0002");
        known.setReconsumeTimes(0);
        known.setUnitMode(false);
        known.setMaxReconsumeTimes(16);
        known.setBatch(false);
        known.setBrokerName("broker-a");
        SendMessageRequestHeaderV2 send = SendMessageRequestHeaderV2.createSendMessageRequestHeaderV2(known);
        RemotingCommand command = RemotingCommand.createRequestCommand(RequestCode.SEND_MESSAGE_V2, send);
        command.setOpaque(9);
        command.setBody(Tape.utf8("Hello RocketMQ " + EMOJI));
        write(tape, "a send", command, type, send);

        SendMessageResponseHeader sent = new SendMessageResponseHeader();
        sent.setMsgId("7F00000100002A9F00000000075BCD15");
        sent.setQueueId(3);
        sent.setQueueOffset(Long.MAX_VALUE);
        sent.setTransactionId("7F00000100002A9F0000000000000001");
        RemotingCommand answer = RemotingCommand.createResponseCommandWithHeader(ResponseCode.SUCCESS, sent);
        answer.addExtField("MSG_REGION", "DefaultRegion");
        answer.addExtField("TRACE_ON", "true");
        answer.setOpaque(9);
        write(tape, "a send answered", answer, type, sent);

        PullMessageResponseHeader pulled = new PullMessageResponseHeader();
        pulled.setSuggestWhichBrokerId(0L);
        pulled.setNextBeginOffset(Long.MIN_VALUE);
        pulled.setMinOffset(0L);
        pulled.setMaxOffset(4_294_967_296L);
        RemotingCommand found = RemotingCommand.createResponseCommandWithHeader(ResponseCode.PULL_NOT_FOUND, pulled);
        found.setRemark("OFFSET_OVERFLOW_ONE");
        found.setOpaque(10);
        write(tape, "a pull answered", found, type, pulled);
    }

    /** A signed request, as the client's ACL hook makes it. */
    private static void acl(Tape tape) throws Exception {
        QueryConsumerOffsetRequestHeader header = new QueryConsumerOffsetRequestHeader();
        header.setConsumerGroup("G");
        header.setTopic("T");
        header.setQueueId(0);
        RemotingCommand command = RemotingCommand.createRequestCommand(RequestCode.QUERY_CONSUMER_OFFSET, header);
        command.setOpaque(11);
        command.setBody(Tape.utf8("body"));
        SessionCredentials credentials = new SessionCredentials("rocketmq2", "12345678", "token-中");
        new AclClientRPCHook(credentials).doBeforeRequest("127.0.0.1:10911", command);
        write(tape, "signed, secret 12345678", command, SerializeType.JSON, header);
    }

    private static RemotingCommand request(int code, int opaque) {
        RemotingCommand command = RemotingCommand.createRequestCommand(code, null);
        command.setOpaque(opaque);
        return command;
    }
}
