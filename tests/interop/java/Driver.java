import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Stock clients under the tests' command: one JSON object a line on standard input
 * ({"id": 1, "op": "send", ...}), one a line on standard output ({"id": 1, "result": ...} or
 * {"id": 1, "error": "...", "trace": "..."}). Operations run at the same time; answers come in
 * the order in which they end. The source compiles against clients of 4.9 and of 5.3.
 */
public final class Driver {
    interface Operation {
        Object run(JSONObject arguments) throws Exception;
    }

    private final Map<String, Operation> operations = new HashMap<>();
    private final ExecutorService workers = Executors.newCachedThreadPool();
    private final PrintStream answers;

    private Driver(PrintStream answers) {
        this.answers = answers;
        new Producers().register(operations);
        new PushConsumers().register(operations);
        new PullConsumers().register(operations);
        new Admin().register(operations);
        new Transactions().register(operations);
        new Requests().register(operations);
        registerOfNewer("Pops");
        registerOfNewer("Dashboards");
    }

    /** These classes are compiled for clients of 5.x only. */
    private void registerOfNewer(String name) {
        try {
            Class<?> kind = Class.forName(name);
            kind.getDeclaredMethod("register", Map.class)
                .invoke(kind.getDeclaredConstructor().newInstance(), operations);
        } catch (ReflectiveOperationException none) {
            System.err.println("no " + name + ": " + none);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        // What the clients print must not mix with the answers.
        System.setOut(System.err);
        Driver driver = new Driver(answers);
        BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JSONObject request = JSON.parseObject(line);
            driver.workers.execute(() -> driver.answer(request));
        }
        // Clients that a test left behind hold no data worth a slow shutdown.
        Runtime.getRuntime().halt(0);
    }

    private void answer(JSONObject request) {
        JSONObject response = new JSONObject();
        response.put("id", request.get("id"));
        try {
            Operation operation = operations.get(request.getString("op"));
            if (operation == null) {
                throw new IllegalArgumentException("no operation " + request.getString("op"));
            }
            response.put("result", operation.run(request));
        } catch (Throwable error) {
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            response.put("error", error.getClass().getSimpleName() + ": " + error.getMessage());
            response.put("trace", trace.toString());
        }
        String line = JSON.toJSONString(
            response, SerializerFeature.WriteMapNullValue, SerializerFeature.DisableCircularReferenceDetect);
        synchronized (answers) {
            answers.println(line);
            answers.flush();
        }
    }
}
