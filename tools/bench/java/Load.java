import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * The load of a benchmark, driven over standard input: `operation key=value ...` a line, answered
 * with one line of JSON. Each operation is a public static method of `Sends`, `Reads` or `Routes`.
 */
public final class Load {
    interface Operation {
        String run(Arguments arguments) throws Exception;
    }

    /** The `key=value` words of a line. */
    static final class Arguments {
        private final Map<String, String> values = new HashMap<>();

        Arguments(String[] words) {
            for (int i = 1; i < words.length; i++) {
                int at = words[i].indexOf('=');
                values.put(words[i].substring(0, at), words[i].substring(at + 1));
            }
        }

        String text(String key) {
            String value = values.get(key);
            if (value == null) {
                throw new IllegalArgumentException("missing " + key);
            }
            return value;
        }

        String text(String key, String otherwise) {
            return values.getOrDefault(key, otherwise);
        }

        int number(String key, int otherwise) {
            return Integer.parseInt(text(key, Integer.toString(otherwise)));
        }
    }

    private static final Map<String, Operation> OPERATIONS = Map.of(
        "sync", Sends::sync,
        "async", Sends::async,
        "oneway", Sends::oneway,
        "consume", Reads::consume,
        "pull", Reads::pull,
        "pop", Pops::pop,
        "latency", Reads::latency,
        "routes", Routes::lookUp);

    public static void main(String[] arguments) throws Exception {
        // Standard output is for answers; what the client's libraries print goes to the log.
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = lines.readLine()) != null) {
            String[] words = line.trim().split(" ");
            try {
                answers.println(OPERATIONS.get(words[0]).run(new Arguments(words)));
            } catch (Throwable error) {
                error.printStackTrace();
                answers.println(
                    "{\"error\": \"" + error.toString().replaceAll("[^ -!#-\\[\\]-~]", " ") + "\"}");
            }
            answers.flush();
        }
        System.exit(0);
    }
}
