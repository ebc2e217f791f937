import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

/**
 * Producers and consumers of the Java client (any version), told what to do line by line. A line is a verb and a query
 * string, "send ns=127.0.0.1:9876&topic=T&prefix=a"; the answer is "ok" and a query string for each thing found, or
 * "failed" and the reason. Each line names its name servers (ns), so one process serves all brokers of a test run.
 */
public final class ScenarioDriver {
    private final Senders senders = new Senders();
    private final Consumers consumers = new Consumers(senders);
    private final Pullers pullers = new Pullers();
    private final Payers payers = new Payers();

    public static void main(String[] args) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        ScenarioDriver driver = new ScenarioDriver();
        answers.println("ready");
        answers.flush();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(driver.answer(line));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String line) {
        String[] parts = line.split(" ", 2);
        try {
            List<Words> found = serve(parts[0], Words.parse(parts[1]));
            return "ok " + found.stream().map(Words::toString).collect(Collectors.joining(" "));
        } catch (Exception problem) {
            problem.printStackTrace();
            return "failed " + Words.encode(problem.toString());
        }
    }

    private List<Words> serve(String verb, Words words) throws Exception {
        return switch (verb) {
            case "send" -> senders.send(words);
            case "request" -> List.of(senders.request(words));
            case "transact" -> payers.transact(words);
            case "questions" -> payers.questions(words);
            case "consume" -> {
                consumers.consume(words);
                yield List.of();
            }
            case "received" -> consumers.received(words);
            case "held" -> consumers.held(words);
            case "delays" -> delays(words);
            case "pull" -> pullers.pull(words);
            case "places" -> List.of(pullers.places(words));
            case "keep" -> List.of(pullers.keep(words));
            case "kept" -> List.of(pullers.kept(words));
            case "lite" -> {
                pullers.lite(words);
                yield List.of();
            }
            case "poll" -> pullers.poll(words);
            case "seek" -> {
                pullers.seek(words);
                yield List.of();
            }
            case "commit" -> List.of(pullers.commit(words));
            case "close" -> {
                if (!consumers.close(words) && !pullers.close(words)) {
                    throw new IllegalArgumentException("nobody is called " + words.text("name"));
                }
                yield List.of();
            }
            default -> throw new IllegalArgumentException("no such verb: " + verb);
        };
    }

    /** delays: sends messages one after the other to an idle consumer; how long each took from send to listener. */
    private List<Words> delays(Words words) throws Exception {
        List<Words> found = new ArrayList<>();
        for (int i = 0; i < words.number("count", 1); i++) {
            long sent = System.nanoTime();
            senders.send(Words.parse(words.toString()).with("count", 1));
            if (consumers.received(new Words().with("name", words.text("name"))).isEmpty()) {
                throw new IllegalStateException("message " + i + " did not come");
            }
            found.add(new Words().with("us", (System.nanoTime() - sent) / 1000));
        }
        return found;
    }
}
