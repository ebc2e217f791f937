import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.constant.PermName;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.common.sysflag.PullSysFlag;
import org.apache.rocketmq.common.sysflag.TopicSysFlag;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/** The tables of numbers and names: request and response codes, languages, versions, flags, properties. */
final class Constants {
    static void record(Tape tape) throws Exception {
        table(tape, "RequestCode", of(RequestCode.class, Integer.class));
        table(tape, "ResponseCode", of(ResponseCode.class, Integer.class));
        table(tape, "MessageSysFlag", of(MessageSysFlag.class, Integer.class));
        table(tape, "PullSysFlag", of(PullSysFlag.class, Integer.class));
        table(tape, "TopicSysFlag", of(TopicSysFlag.class, Integer.class));
        table(tape, "PermName", of(PermName.class, Integer.class));
        table(tape, "MessageConst", of(MessageConst.class, String.class));
        Map<String, Object> languages = new LinkedHashMap<>();
        for (LanguageCode language : LanguageCode.values()) {
            languages.put(language.name(), language.getCode());
        }
        table(tape, "LanguageCode", languages);
        Map<String, Object> versions = new LinkedHashMap<>();
        for (MQVersion.Version version : MQVersion.Version.values()) {
            if (version.ordinal() <= MQVersion.CURRENT_VERSION && !version.name().endsWith("SNAPSHOT")) {
                versions.put(version.name(), version.ordinal());
            }
        }
        table(tape, "MQVersion", versions);
    }

    private static void table(Tape tape, String name, Map<String, ?> values) throws Exception {
        tape.write("constants", name, null, values);
    }

    /** The constants of one type, the private ones too: flags are not always public. */
    private static Map<String, Object> of(Class<?> owner, Class<?> type) throws Exception {
        Map<String, Object> values = new TreeMap<>();
        for (Class<?> c = owner; c != null; c = c.getSuperclass()) {
            for (Field field : c.getDeclaredFields()) {
                if (Modifier.isStatic(field.getModifiers()) && Modifier.isFinal(field.getModifiers())) {
                    field.setAccessible(true);
                    Object value = field.get(null);
                    if (type.isInstance(value)) {
                        values.put(field.getName(), value);
                    }
                }
            }
        }
        return values;
    }
}
