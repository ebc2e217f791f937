import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** What is said to the driver and what it answers: names and values, written as a query string. */
final class Words {
    private final Map<String, String> values = new LinkedHashMap<>();

    static Words parse(String query) {
        Words words = new Words();
        for (String pair : query.split("&")) {
            int split = pair.indexOf('=');
            if (split > 0) {
                words.with(decode(pair.substring(0, split)), decode(pair.substring(split + 1)));
            }
        }
        return words;
    }

    Words with(String name, Object value) {
        values.put(name, value == null ? "" : value.toString());
        return this;
    }

    Map<String, String> all() {
        return values;
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    String text(String name) {
        if (!has(name)) {
            throw new IllegalArgumentException(name + " is missing");
        }
        return values.get(name);
    }

    String text(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return has(name) ? Integer.parseInt(text(name)) : otherwise;
    }

    @Override
    public String toString() {
        StringBuilder query = new StringBuilder();
        values.forEach((name, value) ->
            query.append(query.length() == 0 ? "" : "&").append(encode(name)).append('=').append(encode(value)));
        return query.toString();
    }

    static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8);
    }

    private static String decode(String text) {
        return URLDecoder.decode(text, StandardCharsets.UTF_8);
    }
}
