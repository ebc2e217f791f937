import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Calendar;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.compression.Compressor;
import org.apache.rocketmq.common.compression.CompressorFactory;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.common.message.MessageId;
import org.apache.rocketmq.common.message.MessageVersion;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.store.MessageExtEncoder;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Messages: properties, batches, stored records, compression, ids, hashes and checksums. */
final class Messages {
    private static final long T = 1_700_000_000_000L;

    static void record(Tape tape) throws Exception {
        properties(tape);
        batches(tape);
        compression(tape);
        records(tape);
        ids(tape);
        numbers(tape);
        popHandles(tape);
    }

    // Properties: written ones must come out of an encoder again, "parse_only" ones are odd input.

    private static void properties(Tape tape) throws Exception {
        written(tape, "none", Map.of());
        written(tape, "two", ordered("KEYS", "k1 k2", "TAGS", "TagA"));
        written(tape, "unicode", ordered("键", "值", "emoji", "🚀", "é", "ñ"));
        written(tape, "empty value", ordered("a", "", "b", "1"));
        parsed(tape, "last separator missing", "a\u0001b\u0002c\u0001d");
        parsed(tape, "empty value, empty name, short pairs", "a\u0001b\u0002c\u0001\u0002\u0001x\u0002\u0002d\u0001e");
        parsed(tape, "separator in a value", "a\u0001b\u0001c\u0002d\u0001e\u0002");
        parsed(tape, "name twice", "a\u0001b\u0002a\u0001c\u0002");
        parsed(tape, "no separators", "abc");
        parsed(tape, "empty", "");
    }

    private static void written(Tape tape, String name, Map<String, String> properties) throws Exception {
        String text = MessageDecoder.messageProperties2String(properties);
        tape.write("properties", name, Tape.utf8(text), Tape.fields("written_from", properties,
            "properties", MessageDecoder.string2messageProperties(text), "parse_only", false));
    }

    private static void parsed(Tape tape, String name, String text) throws Exception {
        tape.write("properties", name, Tape.utf8(text), Tape.fields(
            "properties", MessageDecoder.string2messageProperties(text), "parse_only", true));
    }

    private static Map<String, String> ordered(String... pairs) {
        Map<String, String> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put(pairs[i], pairs[i + 1]);
        }
        return map;
    }

    // Batches: the body of SEND_BATCH_MESSAGE.

    private static void batches(Tape tape) throws Exception {
        Message first = new Message("TopicTest", Tape.utf8("abc"));
        MessageAccessor.setProperties(first, ordered("UNIQ_KEY", "7F0000011234ABCDEF0100000000ABCD", "TAGS", "标签"));
        Message second = new Message("TopicTest", new byte[] {9});
        second.setFlag(-7);
        MessageAccessor.setProperties(second, ordered());
        Message third = new Message("TopicTest", Tape.utf8("🚀".repeat(20)));
        MessageAccessor.setProperties(third, ordered("k", "v".repeat(100)));
        batch(tape, "one message", List.of(first));
        batch(tape, "three messages", List.of(first, second, third));
    }

    private static void batch(Tape tape, String name, List<Message> messages) throws Exception {
        byte[] bytes = MessageBatch.generateFromList(messages).encode();
        List<Object> read = new ArrayList<>();
        for (Message message : MessageDecoder.decodeMessages(ByteBuffer.wrap(bytes))) {
            read.add(Tape.fields("flag", message.getFlag(), "body", Tape.hex(message.getBody()),
                "properties", message.getProperties()));
        }
        tape.write("batch", name, bytes, Tape.fields("messages", read));
    }

    // Compression, by the three real compressors.

    private static void compression(Tape tape) throws Exception {
        byte[] text = Tape.utf8("Hello RocketMQ, 你好 🚀; ".repeat(40));
        byte[] noise = new byte[300];
        for (int i = 0; i < noise.length; i++) {
            noise[i] = (byte) ("noise" + i).hashCode();
        }
        for (CompressionType type : CompressionType.values()) {
            Compressor compressor = CompressorFactory.getCompressor(type);
            for (byte[] plain : List.of(text, noise, new byte[] {42})) {
                byte[] bytes = compressor.compress(plain, 5);
                if (!Arrays.equals(plain, compressor.decompress(bytes))) {
                    throw new IllegalStateException("not read back: " + type);
                }
                tape.write("compressed", type + " of " + plain.length + " bytes", bytes, Tape.fields("stable", false,
                    "type", type.name(), "sys_flag", type.getCompressionFlag(), "plain", Tape.hex(plain)));
            }
        }
    }

    // Stored records, as the commit log writes them.

    private static void records(Tape tape) throws Exception {
        stored(tape, "v1, the smallest", message("T", "x", 0), MessageVersion.MESSAGE_VERSION_V1, false);
        MessageExtBrokerInner plain = message("TopicTest", "hello", 0);
        plain.setQueueId(1);
        plain.setQueueOffset(5);
        plain.setFlag(-3);
        plain.setReconsumeTimes(2);
        plain.setPreparedTransactionOffset(77);
        put(plain, ordered("TAGS", "TagA", "KEYS", "k1 k2", "键", "值🚀"));
        stored(tape, "v1, all fields", plain, MessageVersion.MESSAGE_VERSION_V1, false);
        stored(tape, "v1, checksum in the properties", plain, MessageVersion.MESSAGE_VERSION_V1, true);
        MessageExtBrokerInner empty = message("TopicTest", "", 0);
        stored(tape, "v1, empty body", empty, MessageVersion.MESSAGE_VERSION_V1, false);
        MessageExtBrokerInner v6 = message("订单主题", "six", 0);
        v6.setBornHost(host("2001:db8::1", 50000));
        v6.setBornHostV6Flag();
        v6.setStoreHost(host("2001:db8::2", 10911));
        v6.setStoreHostAddressV6Flag();
        stored(tape, "v1, IPv6 hosts", v6, MessageVersion.MESSAGE_VERSION_V1, false);
        MessageExtBrokerInner mixed = message("TopicTest", "mixed", 0);
        mixed.setBornHost(host("2001:db8::1", 50000));
        mixed.setBornHostV6Flag();
        stored(tape, "v1, IPv6 born host, IPv4 store host", mixed, MessageVersion.MESSAGE_VERSION_V1, false);
        stored(tape, "v2, long topic", message("L".repeat(200), "long", 0), MessageVersion.MESSAGE_VERSION_V2, false);
        int prepared = MessageSysFlag.TRANSACTION_PREPARED_TYPE;
        stored(tape, "v2, prepared", message("T", "half", prepared), MessageVersion.MESSAGE_VERSION_V2, false);
        String text = "compress me, 压缩 ".repeat(20);
        for (CompressionType type : CompressionType.values()) {
            int flag = MessageSysFlag.COMPRESSED_FLAG | type.getCompressionFlag();
            stored(tape, "v1, " + type, message("TopicTest", text, flag), MessageVersion.MESSAGE_VERSION_V1, false);
        }
        int legacy = MessageSysFlag.COMPRESSED_FLAG;
        stored(tape, "v1, zlib of 4.x", message("TopicTest", text, legacy), MessageVersion.MESSAGE_VERSION_V1, false);
    }

    private static MessageExtBrokerInner message(String topic, String body, int sysFlag) throws Exception {
        MessageExtBrokerInner message = new MessageExtBrokerInner();
        message.setTopic(topic);
        message.setSysFlag(sysFlag);
        byte[] bytes = Tape.utf8(body);
        if ((sysFlag & MessageSysFlag.COMPRESSED_FLAG) != 0) {
            bytes = CompressorFactory.getCompressor(MessageSysFlag.getCompressionType(sysFlag)).compress(bytes, 5);
        }
        message.setBody(bytes);
        message.setBornTimestamp(T);
        message.setBornHost(host("127.0.0.1", 50000));
        message.setStoreTimestamp(T + 123);
        message.setStoreHost(host("127.0.0.1", 10911));
        put(message, ordered());
        return message;
    }

    private static void put(MessageExtBrokerInner message, Map<String, String> properties) {
        MessageAccessor.setProperties(message, properties);
        message.setPropertiesString(MessageDecoder.messageProperties2String(properties));
    }

    private static InetSocketAddress host(String ip, int port) throws Exception {
        return new InetSocketAddress(InetAddress.getByName(ip), port);
    }

    private static void stored(Tape tape, String name, MessageExtBrokerInner message, MessageVersion version,
        boolean checksum) throws Exception {
        long physicalOffset = 1_073_741_824L + 1024;
        message.setVersion(version);
        message.setBodyCRC(UtilAll.crc32(message.getBody()));
        MessageStoreConfig config = new MessageStoreConfig();
        config.setEnabledAppendPropCRC(checksum);
        MessageExtEncoder encoder = new MessageExtEncoder(config);
        if (encoder.encode(message) != null) {
            throw new IllegalStateException("refused: " + name);
        }
        ByteBuffer buffer = encoder.getEncoderBuffer();
        byte[] bytes = new byte[buffer.getInt(0)];
        buffer.get(bytes);
        // The append sets the offset, and the checksum of all that stands before it.
        ByteBuffer record = ByteBuffer.wrap(bytes);
        record.putLong(MessageDecoder.PHY_POS_POSITION, physicalOffset);
        if (checksum) {
            int reserved = org.apache.rocketmq.store.CommitLog.CRC32_RESERVED_LEN;
            int crc = UtilAll.crc32(bytes, 0, bytes.length - reserved);
            MessageDecoder.createCrc32(record.position(bytes.length - reserved), crc);
        }
        MessageExt raw = MessageDecoder.decode(ByteBuffer.wrap(bytes), true, false);
        MessageExt read = MessageDecoder.decode(ByteBuffer.wrap(bytes), true, true, false, false, true);
        boolean compressed = (raw.getSysFlag() & MessageSysFlag.COMPRESSED_FLAG) != 0;
        tape.write("record", name, bytes, Tape.fields("stable", !compressed,
            "magic", version.getMagicCode(), "size", compressed ? null : bytes.length, "topic", raw.getTopic(),
            "queue_id", raw.getQueueId(), "queue_offset", raw.getQueueOffset(), "physical_offset", raw.getCommitLogOffset(),
            "flag", raw.getFlag(), "sys_flag", raw.getSysFlag(), "body_crc", compressed ? null : raw.getBodyCRC(),
            "born_timestamp", raw.getBornTimestamp(), "born_host", text(raw.getBornHost()),
            "store_timestamp", raw.getStoreTimestamp(), "store_host", text(raw.getStoreHost()),
            "reconsume_times", raw.getReconsumeTimes(), "prepared_transaction_offset", raw.getPreparedTransactionOffset(),
            "plain_body", Tape.hex(read.getBody()), "properties", raw.getProperties(), "offset_id", raw.getMsgId()));
    }

    private static String text(java.net.SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        String ip = host.getAddress().getHostAddress();
        return (ip.contains(":") ? "[" + ip + "]" : ip) + ":" + host.getPort();
    }

    // Ids.

    private static void ids(Tape tape) throws Exception {
        offsetId(tape, "192.168.1.10", 10911, 123456789);
        offsetId(tape, "127.0.0.1", 65535, Long.MAX_VALUE);
        offsetId(tape, "2001:db8::1", 10911, 4_294_967_296L);
        uniqueId(tape, "C0A8010A12344F2A36F2000A1B2C00FF", 4);
        uniqueId(tape, "20010DB8000000000000000000000001FFFF7B1D7FDD05C9AA00FFFF", 16);
        checkClock();
    }

    /** An id tells its time to the millisecond; one of this very millisecond is taken for last month's. */
    private static void checkClock() {
        String made = MessageClientIDSetter.createUniqID();
        long now = System.currentTimeMillis();
        while (System.currentTimeMillis() == now) {
            Thread.onSpinWait();
        }
        long apart = Math.abs(MessageClientIDSetter.getNearlyTimeFromID(made).getTime() - now);
        if (apart > 60_000) {
            throw new IllegalStateException("an id made now tells of another time: " + apart);
        }
    }

    private static void offsetId(Tape tape, String ip, int port, long offset) throws Exception {
        String id = MessageDecoder.createMessageId(host(ip, port), offset);
        MessageId read = MessageDecoder.decodeMessageId(id);
        tape.write("offset_id", ip + " " + offset, UtilAll.string2bytes(id),
            Tape.fields("id", id, "host", text(read.getAddress()), "offset", read.getOffset()));
    }

    /** The time in an id counts from the start of a month in local time; which month, the reader must guess. */
    private static void uniqueId(Tape tape, String id, int ipBytes) throws Exception {
        byte[] bytes = UtilAll.string2bytes(id);
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        int millis = buffer.getInt(ipBytes + 6);
        Date told = MessageClientIDSetter.getNearlyTimeFromID(id);
        Calendar month = Calendar.getInstance();
        month.setTimeInMillis(told.getTime() - millis);
        if (month.get(Calendar.DAY_OF_MONTH) != 1 || month.get(Calendar.HOUR_OF_DAY) != 0) {
            throw new IllegalStateException("not counted from the start of a month: " + told);
        }
        tape.write("unique_id", id, bytes, Tape.fields("id", id, "ip", MessageClientIDSetter.getIPStrFromID(id),
            "pid", MessageClientIDSetter.getPidFromID(id), "loader_hash", buffer.getInt(ipBytes + 2),
            "ms_in_month", millis, "counter", buffer.getShort(ipBytes + 10) & 0xffff));
    }

    // Hashes and checksums.

    private static void numbers(Tape tape) throws Exception {
        for (String text : List.of("", "a", "TagA", "中文", "😀", "TopicTest#key1", "polygenelubricants", "é\u0000z")) {
            tape.write("string_hash", text, Tape.utf8(text),
                Tape.fields("text", text, "hash", text.hashCode(), "tags_code", MessageExtBrokerInner.tagsString2tagsCode(text)));
        }
        for (String text : List.of("", "hello", "RocketMQ", "abc", "你好🚀")) {
            tape.write("crc", text, Tape.utf8(text), Tape.fields("crc", UtilAll.crc32(Tape.utf8(text))));
        }
    }

    // The handle by which a popped message is acknowledged, and the offset lists of a pop answer.

    private static void popHandles(Tape tape) throws Exception {
        String handle = ExtraInfoUtil.buildExtraInfo(100, T, 60_000, 3, "TopicTest", "broker-a", 2, 105);
        tape.write("pop_handle", "normal", Tape.utf8(handle), handleFields(handle));
        String retry = ExtraInfoUtil.buildExtraInfo(7, T, 5000, 0, "%RETRY%group_TopicTest", "broker-a", 0, 8);
        tape.write("pop_handle", "retry topic", Tape.utf8(retry), handleFields(retry));

        StringBuilder starts = new StringBuilder();
        ExtraInfoUtil.buildStartOffsetInfo(starts, "TopicTest", 0, 100);
        ExtraInfoUtil.buildStartOffsetInfo(starts, "%RETRY%group_TopicTest", 0, 7);
        tape.write("pop_starts", "two", Tape.utf8(starts.toString()),
            Tape.fields("value", ExtraInfoUtil.parseStartOffsetInfo(starts.toString())));
        StringBuilder offsets = new StringBuilder();
        ExtraInfoUtil.buildMsgOffsetInfo(offsets, "TopicTest", 0, List.of(100L, 101L, 105L));
        ExtraInfoUtil.buildMsgOffsetInfo(offsets, "TopicTest", 3, List.of(9L));
        tape.write("pop_offsets", "two", Tape.utf8(offsets.toString()),
            Tape.fields("value", ExtraInfoUtil.parseMsgOffsetInfo(offsets.toString())));
    }

    private static Map<String, Object> handleFields(String handle) {
        String[] parts = ExtraInfoUtil.split(handle);
        return Tape.fields("start_offset", ExtraInfoUtil.getCkQueueOffset(parts), "pop_time", ExtraInfoUtil.getPopTime(parts),
            "invisible_time", ExtraInfoUtil.getInvisibleTime(parts), "revive_queue_id", ExtraInfoUtil.getReviveQid(parts),
            "topic_kind", ExtraInfoUtil.getRetry(parts), "broker_name", ExtraInfoUtil.getBrokerName(parts),
            "queue_id", ExtraInfoUtil.getQueueId(parts), "queue_offset", ExtraInfoUtil.getQueueOffset(parts));
    }
}
