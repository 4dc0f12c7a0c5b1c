import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/** Runs the main methods of Kafka's own tools one after the other: a JSON line names one, a line has what it printed. */
public class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** A tool may take its own end for an error, and end again: the first counts. */
    private static Integer ended;

    private static class Ended extends RuntimeException {
        Ended(int status) {
            super(null, null, false, false);
            if (ended == null) ended = status;
        }
    }

    public static void main(String[] none) throws Exception {
        var answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        var asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.setExitProcedure((status, message) -> { throw new Ended(status); });
        Exit.setHaltProcedure((status, message) -> { throw new Ended(status); });
        Exit.setShutdownHookAdder((name, hook) -> {});
        for (String line; (line = asked.readLine()) != null; ) answers.println(JSON.writeValueAsString(run(JSON.readTree(line))));
    }

    private static ObjectNode run(JsonNode wanted) throws Exception {
        var out = new ByteArrayOutputStream();
        var err = new ByteArrayOutputStream();
        var input = System.in;
        PrintStream before = System.out, errors = System.err;
        System.setIn(new ByteArrayInputStream(wanted.get("input").asText().getBytes(StandardCharsets.UTF_8)));
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        ended = null;
        try {
            List<String> arguments = new ArrayList<>();
            wanted.get("arguments").forEach(one -> arguments.add(one.asText()));
            Class<?> tool = Class.forName(wanted.get("main").asText());
            forget(tool);
            tool.getMethod("main", String[].class).invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException raised) {
            if (!(raised.getCause() instanceof Ended)) {
                if (ended == null) ended = -1;
                raised.getCause().printStackTrace();
            }
        } finally {
            System.setIn(input);
            System.setOut(before);
            System.setErr(errors);
        }
        return JSON.createObjectNode()
                .put("out", out.toString(StandardCharsets.UTF_8))
                .put("err", err.toString(StandardCharsets.UTF_8))
                .put("status", ended == null ? 0 : ended);
    }

    /** The console consumers count in a static field, for a process is theirs. */
    private static void forget(Class<?> tool) throws Exception {
        for (var field : tool.getDeclaredFields())
            if (field.getName().equals("messageCount")) {
                field.setAccessible(true);
                field.setInt(null, 0);
            }
    }
}
