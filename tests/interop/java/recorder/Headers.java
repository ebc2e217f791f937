import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.file.FileSystem;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.rocketmq.common.BoundaryType;
import org.apache.rocketmq.common.action.RocketMQAction;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.annotation.CFNotNull;
import org.apache.rocketmq.remoting.protocol.FastCodesHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * Every header class of the remoting jar: its fields as a schema, and frames with the fields filled in.
 *
 * Each class is sent as JSON with every field set; the classes with an encoder of their own (FastCodesHeader), whose
 * field order differs, and those of the name server also in the binary form, once full and once with only the
 * required fields.
 */
final class Headers {
    private static final String PACKAGE = "org/apache/rocketmq/remoting/protocol/header";

    static void record(Tape tape) throws Exception {
        List<Class<? extends CommandCustomHeader>> classes = classes();
        for (Class<? extends CommandCustomHeader> type : classes) {
            tape.write("header_schema", name(type), null, schema(type));
        }
        int opaque = 0;
        for (Class<? extends CommandCustomHeader> type : classes) {
            boolean binary = FastCodesHeader.class.isAssignableFrom(type) || type.getName().contains(".namesrv.");
            CommandCustomHeader full = filled(type, false);
            Frames.write(tape, name(type) + " full", command(type, full, ++opaque), SerializeType.JSON, full);
            if (binary) {
                full = filled(type, false);
                Frames.write(tape, name(type) + " full", command(type, full, ++opaque), SerializeType.ROCKETMQ, full);
                CommandCustomHeader bare = filled(type, true);
                Frames.write(tape, name(type) + " bare", command(type, bare, ++opaque), SerializeType.ROCKETMQ, bare);
            }
        }
    }

    private static RemotingCommand command(Class<?> type, CommandCustomHeader header, int opaque) {
        Integer code = code(type);
        RemotingCommand command = isResponse(type)
            ? RemotingCommand.createResponseCommandWithHeader(0, header)
            : RemotingCommand.createRequestCommand(code == null ? 0 : code, header);
        command.setOpaque(opaque);
        return command;
    }

    static String name(Class<?> type) {
        return type.getSimpleName();
    }

    private static boolean isResponse(Class<?> type) {
        return type.getSimpleName().endsWith("ResponseHeader");
    }

    /** The request code that a header class names itself; response headers, and a few others, name none. */
    static Integer code(Class<?> type) {
        RocketMQAction action = type.getAnnotation(RocketMQAction.class);
        return action == null ? null : action.value();
    }

    private static Map<String, Object> schema(Class<?> type) {
        Map<String, Object> types = new TreeMap<>();
        List<String> required = new ArrayList<>();
        List<String> primitive = new ArrayList<>();
        for (Field field : fields(type)) {
            types.put(field.getName(), wireType(field));
            if (field.isAnnotationPresent(CFNotNull.class)) {
                required.add(field.getName());
            }
            if (field.getType().isPrimitive()) {
                primitive.add(field.getName()); // always written; zero or false when missing
            }
        }
        return Tape.fields("code", code(type), "response", isResponse(type), "types", types,
            "required", required, "primitive", primitive);
    }

    private static String wireType(Field field) {
        Class<?> type = field.getType();
        return type == Integer.class || type == int.class ? "int"
            : type == Long.class || type == long.class ? "long"
            : type == Boolean.class || type == boolean.class ? "bool"
            : type == String.class ? "str"
            : type.getSimpleName();
    }

    private static List<Field> fields(Class<?> type) {
        List<Field> fields = new ArrayList<>();
        for (Class<?> c = type; c != Object.class; c = c.getSuperclass()) {
            for (Field field : c.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    field.setAccessible(true);
                    fields.add(field);
                }
            }
        }
        fields.sort((a, b) -> a.getName().compareTo(b.getName()));
        return fields;
    }

    private static CommandCustomHeader filled(Class<? extends CommandCustomHeader> type, boolean requiredOnly)
        throws Exception {
        CommandCustomHeader header = type.getDeclaredConstructor().newInstance();
        int n = 0;
        for (Field field : fields(type)) {
            n++;
            boolean optional = !field.getType().isPrimitive() && !field.isAnnotationPresent(CFNotNull.class);
            if (requiredOnly && optional) {
                field.set(header, null);
                continue;
            }
            switch (wireType(field)) {
                case "int" -> field.set(header, n % 5 == 4 ? -n : n);
                case "long" -> field.set(header, n % 5 == 3 ? -n : 5_000_000_000L + n);
                case "bool" -> field.set(header, n % 2 == 0);
                case "str" -> field.set(header, field.getName() + n);
                case "BoundaryType" -> field.set(header, BoundaryType.UPPER);
                default -> throw new IllegalStateException("no value for " + field);
            }
        }
        return header;
    }

    private static List<Class<? extends CommandCustomHeader>> classes() throws Exception {
        Path jar = Path.of(RemotingCommand.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        List<String> names = new ArrayList<>();
        try (FileSystem files = FileSystems.newFileSystem(jar); Stream<Path> tree = Files.walk(files.getPath(PACKAGE))) {
            tree.map(Path::toString).filter(p -> p.endsWith(".class") && !p.contains("$")).forEach(names::add);
        }
        List<Class<? extends CommandCustomHeader>> classes = new ArrayList<>();
        for (String name : names) {
            Class<?> type = Class.forName(name.substring(0, name.length() - 6).replace('/', '.'));
            if (CommandCustomHeader.class.isAssignableFrom(type) && !Modifier.isAbstract(type.getModifiers())) {
                classes.add(type.asSubclass(CommandCustomHeader.class));
            }
        }
        classes.sort((a, b) -> a.getSimpleName().compareTo(b.getSimpleName()));
        return classes;
    }
}
