import java.util.Map;

/** The load of a benchmark by classic clients; each operation is a method of one of these classes. */
public final class Load {
    private static final Map<String, Lines.Operation> OPERATIONS = Map.of(
        "sync", Sends::sync,
        "async", Sends::async,
        "oneway", Sends::oneway,
        "consume", Reads::consume,
        "pull", Reads::pull,
        "pop", Pops::pop,
        "latency", Reads::latency,
        "routes", Routes::lookUp);

    private Load() {}

    public static void main(String[] arguments) throws Exception {
        Lines.answer(OPERATIONS);
    }
}
