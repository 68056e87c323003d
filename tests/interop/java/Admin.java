import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.util.TypeUtils;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** mqadmin as a user would type it, and topics made without its start-up time. */
final class Admin {
    private final Clients<DefaultMQAdminExt> admins = new Clients<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("mqadmin", this::mqadmin);
        operations.put("admin.start", this::start);
        operations.put("admin.stop", arguments -> {
            admins.remove(arguments).shutdown();
            return null;
        });
        operations.put("admin.createTopic", this::createTopic);
        operations.put("admin.call", this::call);
    }

    private Object start(JSONObject arguments) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(Clients.PATIENCE_MS);
        Clients.configure(admin, arguments);
        admin.start();
        admins.add(arguments, admin);
        return null;
    }

    private Object createTopic(JSONObject arguments) throws Exception {
        TopicConfig config = new TopicConfig(arguments.getString("topic"));
        config.setReadQueueNums(arguments.getIntValue("queues"));
        config.setWriteQueueNums(arguments.getIntValue("queues"));
        admins.get(arguments).createAndUpdateTopicConfig(arguments.getString("address"), config);
        return null;
    }

    /** Any method of DefaultMQAdminExt by its name and arguments; what it returns as JSON. */
    private Object call(JSONObject arguments) throws Exception {
        DefaultMQAdminExt admin = admins.get(arguments);
        String name = arguments.getString("method");
        JSONArray values = arguments.getJSONArray("args");
        for (Method method : DefaultMQAdminExt.class.getMethods()) {
            if (method.getName().equals(name) && method.getParameterCount() == values.size()) {
                Object[] converted = new Object[values.size()];
                for (int i = 0; i < converted.length; i++) {
                    converted[i] = TypeUtils.cast(
                        values.get(i), method.getGenericParameterTypes()[i], null);
                }
                try {
                    return plain(method.invoke(admin, converted));
                } catch (InvocationTargetException failed) {
                    throw (Exception) failed.getCause();
                }
            }
        }
        throw new IllegalArgumentException("no method " + name + " with " + values.size());
    }

    /** With text for keys, which may be queues there. */
    static Object plain(Object value) {
        if (value instanceof Map) {
            Map<String, Object> plain = new LinkedHashMap<>();
            ((Map<?, ?>) value).forEach((key, each) -> plain.put(String.valueOf(key), plain(each)));
            return plain;
        }
        if (value instanceof Collection) {
            List<Object> plain = new ArrayList<>();
            ((Collection<?>) value).forEach(each -> plain.add(plain(each)));
            return plain;
        }
        return JSON.toJSON(value);
    }

    /** What the command printed; mqadmin writes to System.out, so one runs at a time. */
    private synchronized Object mqadmin(JSONObject arguments) throws Exception {
        ByteArrayOutputStream captured = new ByteArrayOutputStream();
        PrintStream output = new PrintStream(captured, true, "UTF-8");
        PrintStream savedOut = System.out;
        PrintStream savedError = System.err;
        System.setOut(output);
        System.setErr(output);
        Thread hurry = hurry(Thread.currentThread());
        try {
            forgetCommands();
            MQAdminStartup.main0(arguments.getJSONArray("args").toArray(new String[0]), null);
        } finally {
            hurry.interrupt();
            System.setOut(savedOut);
            System.setErr(savedError);
        }
        return captured.toString("UTF-8");
    }

    /** mqadmin adds its commands to a list at each call, and some keep a client that has ended. */
    private static void forgetCommands() throws IllegalAccessException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()) && List.class == field.getType()) {
                field.setAccessible(true);
                ((List<?>) field.get(null)).clear();
            }
        }
    }

    /**
     * Ends the wait of up to 3 s for a client's thread of events, which looks only then whether it
     * is to stop: interrupted it looks at once. A tool that is stopping waits in shutdown.
     */
    private static Thread hurry(Thread tool) {
        Thread hurry = new Thread(() -> {
            try {
                while (true) {
                    Thread.sleep(20);
                    for (StackTraceElement frame : tool.getStackTrace()) {
                        if (frame.getMethodName().equals("shutdown")) {
                            interruptEvents();
                            break;
                        }
                    }
                }
            } catch (InterruptedException ended) {
                // The tool has ended.
            }
        });
        hurry.setDaemon(true);
        hurry.start();
        return hurry;
    }

    private static void interruptEvents() {
        for (Thread thread : Thread.getAllStackTraces().keySet()) {
            if (thread.getName().startsWith("NettyEventExecutor")) {
                thread.interrupt();
            }
        }
    }
}
