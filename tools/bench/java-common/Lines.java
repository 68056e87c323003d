import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Operations that are driven over standard input: `operation key=value ...` a line, answered with one
 * line of JSON.
 */
final class Lines {
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

    private Lines() {}

    static void answer(Map<String, Operation> operations) throws Exception {
        // Standard output is for answers; what the client's libraries print goes to the log.
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = lines.readLine()) != null) {
            String[] words = line.trim().split(" ");
            try {
                answers.println(operations.get(words[0]).run(new Arguments(words)));
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
