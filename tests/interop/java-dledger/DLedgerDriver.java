import io.openmessaging.storage.dledger.client.DLedgerClient;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.protocol.GetEntriesResponse;
import io.openmessaging.storage.dledger.protocol.LeadershipTransferResponse;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Stock's DLedgerClient over lines: "append TEXT", "get INDEX", "transfer FROM TO TERM",
 * "load THREADS SECONDS SIZE".
 */
public final class DLedgerDriver {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        DLedgerClient client = new DLedgerClient(args[0], args[1]);
        client.startup();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            out.println(run(client, words, args));
            out.flush();
        }
        System.exit(0);
    }

    private static String run(DLedgerClient client, String[] words, String[] args) throws Exception {
        switch (words[0]) {
            case "append": {
                AppendEntryResponse response = client.append(words[1].getBytes(StandardCharsets.UTF_8));
                return response.getCode() + " " + response.getIndex() + " " + response.getTerm() + " "
                    + response.getPos() + " " + response.getLeaderId();
            }
            case "get": {
                GetEntriesResponse response = client.get(Long.parseLong(words[1]));
                if (response.getEntries() == null || response.getEntries().isEmpty()) {
                    return response.getCode() + " ";
                }
                DLedgerEntry entry = response.getEntries().get(0);
                return response.getCode() + " " + new String(entry.getBody(), StandardCharsets.UTF_8);
            }
            case "transfer": {
                LeadershipTransferResponse response =
                    client.leadershipTransfer(words[1], words[2], Long.parseLong(words[3]));
                return response.getCode() + " " + response.getTerm();
            }
            case "load":
                return load(args, Integer.parseInt(words[1]), Double.parseDouble(words[2]),
                    Integer.parseInt(words[3]));
            default:
                return "what is " + words[0] + "?";
        }
    }

    private static String load(String[] args, int threads, double seconds, int size) throws Exception {
        Thread[] workers = new Thread[threads];
        long[] counts = new long[threads];
        long end = System.nanoTime() + (long) (seconds * 1e9);
        byte[] body = new byte[size];
        for (int i = 0; i < threads; i++) {
            int number = i;
            workers[i] = new Thread(() -> {
                DLedgerClient client = new DLedgerClient(args[0], args[1]);
                client.startup();
                while (System.nanoTime() < end) {
                    if (client.append(body).getCode() == 200) {
                        counts[number]++;
                    }
                }
                client.shutdown();
            });
            workers[i].start();
        }
        long total = 0;
        for (int i = 0; i < threads; i++) {
            workers[i].join();
            total += counts[i];
        }
        return "200 " + total;
    }
}
