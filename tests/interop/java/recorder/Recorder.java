import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Records what the real RocketMQ 5.5.0 classes make of known values: run with the file to write.
 *
 * The same values give the same file in every run, but for the bytes of compressed things, which depend on
 * the compression library and are marked "stable":false.
 */
public final class Recorder {
    public static void main(String[] args) throws Exception {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        try (Writer out = Files.newBufferedWriter(Path.of(args[0]), StandardCharsets.UTF_8)) {
            Tape tape = new Tape(out);
            Constants.record(tape);
            Headers.record(tape);
            Frames.record(tape);
            Bodies.record(tape);
            Messages.record(tape);
        }
    }
}
