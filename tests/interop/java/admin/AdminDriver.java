import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * The real mqadmin, many commands in one JVM.
 *
 * Reads one command per line, a JSON array of arguments, and answers "done LENGTH" and LENGTH bytes of what the
 * command printed, errors included. A command that ends the JVM (wrong options do) is answered from the shutdown
 * hook with "exit LENGTH"; the caller then starts a new JVM.
 */
public final class AdminDriver {
    private static final PrintStream ANSWERS = System.out;
    private static final ByteArrayOutputStream PRINTED = new ByteArrayOutputStream();
    private static boolean running;

    public static void main(String[] args) throws Exception {
        PrintStream capture = new PrintStream(PRINTED, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            if (running) {
                answer("exit");
            }
        }));
        hurry(Thread.currentThread());
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            running = true;
            forgetCommands();
            MQAdminStartup.main0(JSON.parseArray(line, String.class).toArray(new String[0]), null);
            running = false;
            answer("done");
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(String how) {
        byte[] printed = PRINTED.toByteArray();
        PRINTED.reset();
        ANSWERS.print(how + " " + printed.length + "\n");
        ANSWERS.write(printed, 0, printed.length);
        ANSWERS.flush();
    }

    /**
     * Some commands repeat what they print until they are stopped: this stops them after the first time.
     *
     * A client that stops waits for a thread of its own which looks up only every three seconds, about one time in
     * four. Wakes that thread.
     */
    private static void hurry(Thread main) {
        Thread waker = new Thread(() -> {
            while (true) {
                LockSupport.parkNanos(50_000_000);
                StackTraceElement[] calls = main.getStackTrace();
                if (calls.length > 1 && calls[0].getMethodName().equals("sleep") && repeats(calls[1].getClassName())) {
                    main.interrupt();
                }
                for (StackTraceElement call : calls) {
                    if (call.getClassName().endsWith(".ServiceThread") && call.getMethodName().equals("shutdown")) {
                        wake("NettyEventExecutor");
                    }
                }
            }
        });
        waker.setDaemon(true);
        waker.start();
    }

    private static boolean repeats(String command) {
        return command.endsWith(".CLusterSendMsgRTCommand") || command.endsWith(".HAStatusSubCommand");
    }

    private static void wake(String name) {
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().equals(name)) {
                thread.interrupt();
            }
        }
    }

    /** Every run of main0 adds all commands to this list once more. */
    private static void forgetCommands() throws Exception {
        Field commands = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
        commands.setAccessible(true);
        ((List<?>) commands.get(null)).clear();
    }
}
