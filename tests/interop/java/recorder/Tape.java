import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The recording itself: one JSON line per recorded thing, {"name", "kind", "hex", "fields"}.
 *
 * Knows nothing of RocketMQ, so that the same tape serves every version of its classes.
 */
final class Tape {
    private final Writer out;

    Tape(Writer out) {
        this.out = out;
    }

    void write(String kind, String name, byte[] bytes, Map<String, ?> fields) throws Exception {
        out.write(json(fields("name", name, "kind", kind, "hex", hex(bytes), "fields", fields)));
        out.write('\n');
    }

    /** An ordered map out of name, value, name, value. */
    static Map<String, Object> fields(Object... pairs) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put((String) pairs[i], pairs[i + 1]);
        }
        return map;
    }

    static String hex(byte[] bytes) {
        if (bytes == null) {
            return "";
        }
        StringBuilder text = new StringBuilder(bytes.length * 2);
        for (byte b : bytes) {
            text.append(String.format("%02x", b));
        }
        return text.toString();
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    // Standard JSON out of maps, lists, strings, numbers, booleans and nulls.

    private static String json(Object value) {
        StringBuilder text = new StringBuilder();
        put(text, value);
        return text.toString();
    }

    private static void put(StringBuilder text, Object value) {
        if (value instanceof Map<?, ?> map) {
            text.append('{');
            String comma = "";
            for (Map.Entry<?, ?> entry : map.entrySet()) {
                text.append(comma);
                quote(text, String.valueOf(entry.getKey()));
                text.append(':');
                put(text, entry.getValue());
                comma = ",";
            }
            text.append('}');
        } else if (value instanceof Iterable<?> items) {
            text.append('[');
            String comma = "";
            for (Object item : items) {
                text.append(comma);
                put(text, item);
                comma = ",";
            }
            text.append(']');
        } else if (value == null || value instanceof Number || value instanceof Boolean || value instanceof Literal) {
            text.append(value);
        } else {
            quote(text, value.toString());
        }
    }

    private static void quote(StringBuilder text, String value) {
        text.append('"');
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c < ' ' || c == 0x7f) {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        text.append('"');
    }

    /** A number, true, false or null, kept as it was spelled. */
    private record Literal(String spelling) {
        @Override
        public String toString() {
            return spelling;
        }
    }

    /**
     * What a fastjson text says, in standard JSON. fastjson writes maps with keys that are no strings
     * ({0:"a"}, {{"queueId":1}:5}); such a map becomes {"#pairs":[[key,value],…]}.
     */
    static Object plain(byte[] fastjson) {
        Reader reader = new Reader(new String(fastjson, StandardCharsets.UTF_8));
        Object value = reader.value();
        if (reader.at != reader.text.length()) {
            throw new IllegalArgumentException("text after the value at " + reader.at + ": " + reader.text);
        }
        return value;
    }

    /** Reads what fastjson writes: no white space, any value as a key, no exponents needed but taken. */
    private static final class Reader {
        private final String text;
        private int at;

        Reader(String text) {
            this.text = text;
        }

        Object value() {
            char c = text.charAt(at);
            return c == '{' ? object() : c == '[' ? array() : c == '"' ? string() : literal();
        }

        private Object object() {
            List<List<Object>> pairs = new ArrayList<>();
            boolean strings = true;
            at++;
            while (text.charAt(at) != '}') {
                Object key = value();
                strings &= key instanceof String;
                expect(':');
                List<Object> pair = new ArrayList<>();
                pair.add(key);
                pair.add(value());
                pairs.add(pair);
                skipComma('}');
            }
            at++;
            if (!strings) {
                return fields("#pairs", pairs);
            }
            Map<String, Object> map = new LinkedHashMap<>();
            for (List<Object> pair : pairs) {
                map.put((String) pair.get(0), pair.get(1));
            }
            return map;
        }

        private List<Object> array() {
            List<Object> items = new ArrayList<>();
            at++;
            while (text.charAt(at) != ']') {
                items.add(value());
                skipComma(']');
            }
            at++;
            return items;
        }

        private String string() {
            StringBuilder value = new StringBuilder();
            for (at++; text.charAt(at) != '"'; at++) {
                char c = text.charAt(at);
                if (c != '\\') {
                    value.append(c);
                    continue;
                }
                c = text.charAt(++at);
                switch (c) {
                    case 'n' -> value.append('\n');
                    case 't' -> value.append('\t');
                    case 'r' -> value.append('\r');
                    case 'b' -> value.append('\b');
                    case 'f' -> value.append('\f');
                    case 'v' -> value.append('\u000b');
                    case 'x' -> value.append(code(2));
                    case 'u' -> value.append(code(4));
                    default -> {
                        if (c >= '0' && c <= '7') {
                            value.append((char) (c - '0')); // fastjson 1 writes control characters so
                        } else {
                            value.append(c);
                        }
                    }
                }
            }
            at++;
            return value.toString();
        }

        private char code(int digits) {
            char c = (char) Integer.parseInt(text.substring(at + 1, at + 1 + digits), 16);
            at += digits;
            return c;
        }

        private Literal literal() {
            int start = at;
            while (at < text.length() && ",:]}".indexOf(text.charAt(at)) < 0) {
                at++;
            }
            return new Literal(text.substring(start, at));
        }

        private void expect(char c) {
            if (text.charAt(at++) != c) {
                throw new IllegalArgumentException("no " + c + " at " + (at - 1) + ": " + text);
            }
        }

        private void skipComma(char end) {
            if (text.charAt(at) != end) {
                expect(',');
            }
        }
    }
}
