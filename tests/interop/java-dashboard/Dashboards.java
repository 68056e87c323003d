import com.alibaba.fastjson.JSONObject;
import java.util.Map;

/** The requests of stock's dashboard, by the handle of the dashboard that a test started. */
public final class Dashboards {
    private final Clients<Dashboard> dashboards = new Clients<>();

    void register(Map<String, Driver.Operation> operations) {
        operations.put("dashboard.start", this::start);
        operations.put("dashboard.stop", arguments -> {
            dashboards.remove(arguments).stop();
            return null;
        });
        operations.put("dashboard.answer", arguments -> dashboards.get(arguments).answer(
            arguments.getString("request"), arguments.getJSONObject("parameters")));
    }

    private Object start(JSONObject arguments) throws Exception {
        dashboards.add(arguments, new Dashboard(arguments));
        return null;
    }
}
