import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;

/**
 * Prints what the stock jars on the class path make of messages, as JSON: hash codes of tags,
 * message ids, the body of a batch, compressed bodies.
 *
 *   java -cp 'DIR_OF_STOCK_JARS/*' tools/java/CaptureMessage.java > tests/unit/message/goldens/VERSION.json
 */
public class CaptureMessage {
    public static void main(String[] arguments) throws Exception {
        // Stock's logging prints its own state where it finds no configuration.
        PrintStream out = System.out;
        System.setOut(System.err);
        List<String> entries = new ArrayList<>();
        List<String> codes = new ArrayList<>();
        for (String tag : new String[] {"", "TagA", "polygenelubricants", "héllo", "标签", "\ud83d\ude00"}) {
            codes.add(quote(tag) + ": " + tag.hashCode());
        }
        entries.add("\"hash_codes\": {" + String.join(", ", codes) + "}");

        List<String> ids = new ArrayList<>();
        for (String host : new String[] {"127.0.0.1", "10.20.30.40", "2001:db8::7"}) {
            String id = MessageDecoder.createMessageId(new InetSocketAddress(host, 10911), 1234567890123L);
            ids.add("[" + quote(host) + ", 10911, 1234567890123, " + quote(id) + "]");
        }
        entries.add("\"offset_ids\": [" + String.join(", ", ids) + "]");

        String unique = MessageClientIDSetter.createUniqID();
        entries.add("\"unique_id\": " + quote(unique));
        entries.add("\"unique_id_near_ms\": " + MessageClientIDSetter.getNearlyTimeFromID(unique).getTime());
        entries.add("\"unique_id_process\": " + MessageClientIDSetter.getPidFromID(unique));

        List<Message> batch = new ArrayList<>();
        batch.add(message("first", 0, Map.of("TAGS", "a")));
        batch.add(message("zweite, größer", 7, Map.of("KEYS", "k1 k2")));
        batch.add(message("3", -1, Map.of()));
        entries.add("\"batch\": " + quote(hex(MessageDecoder.encodeMessages(batch))));

        StringBuilder text = new StringBuilder();
        for (int i = 0; i < 500; i++) {
            text.append("line ").append(i % 17).append(" of a body\n");
        }
        byte[] body = text.toString().getBytes(StandardCharsets.UTF_8);
        entries.add("\"body\": " + quote(text.toString().replace("\n", "\\n")));
        for (Map.Entry<String, byte[]> packed : compressed(body).entrySet()) {
            entries.add(quote(packed.getKey()) + ": " + quote(hex(packed.getValue())));
        }
        out.println("{\n  " + String.join(",\n  ", entries) + "\n}");
    }

    /** Only 5.x has more than zlib. */
    private static Map<String, byte[]> compressed(byte[] body) throws Exception {
        Map<String, byte[]> result = new LinkedHashMap<>();
        try {
            Class<?> types = Class.forName("org.apache.rocketmq.common.compression.CompressionType");
            Class<?> factory = Class.forName("org.apache.rocketmq.common.compression.CompressorFactory");
            for (Object type : types.getEnumConstants()) {
                Object compressor = factory.getMethod("getCompressor", types).invoke(null, type);
                result.put(type.toString(), (byte[]) compressor.getClass()
                    .getMethod("compress", byte[].class, int.class).invoke(compressor, body, 5));
            }
        } catch (ClassNotFoundException old) {
            result.put("ZLIB", UtilAll.compress(body, 5));
        }
        return result;
    }

    private static Message message(String body, int flag, Map<String, String> properties) {
        Message message = new Message("T", body.getBytes(StandardCharsets.UTF_8));
        message.setFlag(flag);
        MessageAccessor.setProperties(message, properties);
        return message;
    }

    private static String hex(byte[] data) {
        return HexFormat.of().formatHex(data);
    }

    private static String quote(String text) {
        return '"' + text + '"';
    }
}
