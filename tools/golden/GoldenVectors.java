import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * Prints golden vectors of the stock jars on its class path as one JSON document: what was put in
 * (a tree of plain values, made by reflection and not by the codec under test) beside the bytes
 * that came out. Arguments: stock's version, the names of body classes joined by commas, the names
 * of header classes joined by commas. A class that the version does not have is left out.
 */
public final class GoldenVectors {
    private static final String[] PACKAGES = {
        "remoting.protocol", "remoting.protocol.body", "remoting.protocol.header",
        "remoting.protocol.header.namesrv", "remoting.protocol.heartbeat",
        "remoting.protocol.route", "remoting.protocol.subscription", "remoting.protocol.admin",
        "common", "common.message", "common.admin", "common.subscription",
        "common.protocol", "common.protocol.body", "common.protocol.header", "common.protocol.header.namesrv",
        "common.protocol.heartbeat", "common.protocol.route", "store.schedule", "broker.schedule",
    };

    private int counter;

    public static void main(String[] args) throws Exception {
        // Stock's logging prints its own state where it finds no configuration.
        PrintStream out = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        GoldenVectors vectors = new GoldenVectors();
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("stock", args[0]);
        document.put("codes", entry("RequestCode", codes("RequestCode"),
            "ResponseCode", codes("ResponseCode")));
        document.put("bodies", vectors.bodies(args[1].split(",")));
        document.put("registrations", vectors.registrations());
        document.put("dialect", vectors.dialect());
        document.put("headers", vectors.headers(args[2].split(",")));
        document.put("commands", vectors.commands());
        document.put("messages", vectors.messages());
        out.println(JSON.toJSONString(document, SerializerFeature.PrettyFormat,
            SerializerFeature.DisableCircularReferenceDetect,
            SerializerFeature.WriteMapNullValue));
    }

    private static Map<String, Object> codes(String name) throws Exception {
        Map<String, Object> codes = new TreeMap<>();
        for (Field field : find(name).getFields()) {
            codes.put(field.getName(), field.get(null));
        }
        return codes;
    }

    // Bodies

    private List<Object> bodies(String[] names) throws Exception {
        List<Object> cases = new ArrayList<>();
        for (String name : names) {
            Class<?> type = find(name);
            if (type == null) {
                continue;
            }
            counter = 0;
            Object body = filled(type);
            Map<String, Object> entry = entry("type", name);
            entry.put("value", tree(body));
            entry.put("text", JSON.toJSONString(body));
            entry.put("standard", JSON.toJSONString(body, SerializerFeature.BrowserCompatible,
                SerializerFeature.QuoteFieldNames, SerializerFeature.SkipTransientField,
                SerializerFeature.MapSortField));
            Object empty = filled(type);
            for (Field field : fields(type)) {
                if (!field.getType().isPrimitive()
                    && !Modifier.isFinal(field.getModifiers())
                    && !(AtomicLong.class == field.getType())) {
                    field.set(empty, null);
                }
            }
            entry.put("nulls", JSON.toJSONString(empty, SerializerFeature.WriteMapNullValue));
            cases.add(entry);
        }
        return cases;
    }

    private List<Object> registrations() throws Exception {
        Class<?> type = find("RegisterBrokerBody");
        List<Object> cases = new ArrayList<>();
        for (boolean compressed : new boolean[] {false, true}) {
            counter = 0;
            Object body = filled(type);
            byte[] data = (byte[]) type.getMethod("encode", boolean.class).invoke(body, compressed);
            Map<String, Object> entry = entry("compressed", compressed);
            entry.put("value", tree(body));
            entry.put("hex", hex(data));
            cases.add(entry);
        }
        return cases;
    }

    /** One object twice, as a value and as a key: where fastjson writes a reference. */
    private List<Object> dialect() throws Exception {
        List<Object> cases = new ArrayList<>();
        MessageQueue queue = new MessageQueue("T", "b", 1);
        Map<String, Object> shared = new LinkedHashMap<>();
        shared.put("a.b", queue);
        shared.put("again", queue);
        shared.put("%RETRY%g", new TreeMap<>(Map.of(0L, "x", -5L, "y")));
        shared.put("map", shared.get("%RETRY%g"));
        shared.put("list", new ArrayList<>(Arrays.asList(queue, queue)));
        cases.add(entry("name", "shared values", "text", JSON.toJSONString(shared)));
        Map<MessageQueue, Long> offsets = new LinkedHashMap<>();
        offsets.put(new MessageQueue("T", "b", 2), 7L);
        Map<String, Object> keys = new LinkedHashMap<>();
        keys.put("first", offsets);
        keys.put("second", new LinkedHashMap<>(offsets));
        keys.put("third", offsets);
        cases.add(entry("name", "shared keys", "text", JSON.toJSONString(keys)));
        Map<String, Object> circle = new LinkedHashMap<>();
        circle.put("self", circle);
        cases.add(entry("name", "circle", "text", JSON.toJSONString(circle)));
        String text = "a/<b>(c)'\"\\\u0001\u007f\u0085\u00e9\u6f22\u2028\ud83d\ude00\n";
        cases.add(entry("name", "escapes", "text", JSON.toJSONString(Map.of("s", text))));
        cases.add(entry("name", "browser escapes", "text",
            JSON.toJSONString(Map.of("s", text), SerializerFeature.BrowserCompatible)));
        return cases;
    }

    // Headers and commands

    private List<Object> headers(String[] names) throws Exception {
        List<Object> cases = new ArrayList<>();
        for (String name : names) {
            Class<?> type = find(name);
            if (type == null) {
                continue;
            }
            counter = 0;
            CommandCustomHeader header = (CommandCustomHeader) filled(type);
            RemotingCommand command = RemotingCommand.createRequestCommand(1, header);
            command.makeCustomHeaderToNet();
            Map<String, Object> values = new LinkedHashMap<>();
            for (Field field : fields(type)) {
                values.put(field.getName(), tree(field.get(header)));
            }
            cases.add(entry("type", name, "value", values, "fields", command.getExtFields()));
        }
        return cases;
    }

    private List<Object> commands() throws Exception {
        List<Object> cases = new ArrayList<>();
        HashMap<String, String> fields = new HashMap<>();
        fields.put("a", "producer");
        fields.put("b", "topic-\u4e3b\u9898");
        fields.put("i", "KEYS\u0001k1 k2\u0002TAGS\u0001\ud83d\ude00\u0002");
        fields.put("empty", "");
        fields.put("quoted", "\"back\\slash\"\n\t");
        HashMap<String, String> answer = new HashMap<>();
        answer.put("msgId", "7F00000100002A9F0000000000000000");
        answer.put("queueId", "0");
        byte[] body = "body \u00e9".getBytes(StandardCharsets.UTF_8);
        for (SerializeType form : SerializeType.values()) {
            cases.add(command("request", form, 310, 7, 0, null, fields, body));
            cases.add(command("oneway", form, 15, 8, 2, null, fields, null));
            cases.add(command("response", form, 0, 9, 1, null, answer, null));
            cases.add(command("remark", form, 17, 10, 1,
                "no such topic: \u4e3b\u9898 \"x\"\n", null, body));
            cases.add(command("bare", form, 34, Integer.MAX_VALUE, 0, null, null, null));
        }
        return cases;
    }

    private Map<String, Object> command(String name, SerializeType form, int code, int opaque,
        int flag, String remark, HashMap<String, String> fields, byte[] body) {
        RemotingCommand command = RemotingCommand.createRequestCommand(code, null);
        command.setOpaque(opaque);
        command.setFlag(flag);
        command.setVersion(401);
        command.setLanguage(LanguageCode.GO);
        command.setRemark(remark);
        command.setExtFields(fields);
        command.setBody(body);
        command.setSerializeTypeCurrentRPC(form);
        ByteBuffer frame = command.encode();
        byte[] data = new byte[frame.remaining()];
        frame.get(data);
        Map<String, Object> entry = entry("name", name, "form", form.name(), "code", code);
        entry.put("opaque", opaque);
        entry.put("flag", flag);
        entry.put("version", 401);
        entry.put("language", "GO");
        entry.put("remark", remark);
        entry.put("fields", fields == null ? new HashMap<>() : fields);
        entry.put("body", body == null ? "" : hex(body));
        entry.put("hex", hex(data));
        return entry;
    }

    // Messages

    private Map<String, Object> messages() throws Exception {
        Map<String, Object> result = new LinkedHashMap<>();
        List<Object> hashes = new ArrayList<>();
        for (String text : new String[] {"", "TagA", "a||b", "\u4e3b\u9898", "\ud83d\ude00",
            "polygenelubricants"}) {
            byte[] data = text.getBytes(StandardCharsets.UTF_8);
            hashes.add(entry("text", text, "hashCode", text.hashCode(), "crc32",
                UtilAll.crc32(data)));
        }
        result.put("hashes", hashes);
        List<Message> batch = new ArrayList<>();
        List<Object> singles = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Message message = new Message("T", "Tag" + i, "key" + i,
                i == 1 ? new byte[0] : ("body \u00e9 " + i).getBytes(StandardCharsets.UTF_8));
            message.setFlag(i);
            batch.add(message);
            singles.add(entry("flag", i, "body", hex(message.getBody()), "properties",
                MessageDecoder.messageProperties2String(message.getProperties())));
        }
        result.put("batch", entry("messages", singles, "hex",
            hex(MessageDecoder.encodeMessages(batch))));
        result.put("stored", Arrays.asList(
            stored("127.0.0.1", "10.1.2.3", 0), stored("::1", "2001:db8::7", 16 | 32)));
        List<Object> ids = new ArrayList<>();
        for (String host : new String[] {"10.1.2.3", "255.255.255.255", "2001:db8::7"}) {
            ids.add(entry("host", InetAddress.getByName(host).getHostAddress(), "port", 10911,
                "offset", 123456789012345L, "id", MessageDecoder.createMessageId(
                    new InetSocketAddress(host, 10911), 123456789012345L)));
        }
        result.put("ids", ids);
        return result;
    }

    private Map<String, Object> stored(String born, String store, int sysFlag) throws Exception {
        MessageExt message = new MessageExt();
        message.setTopic("topic");
        message.setBody("stored body".getBytes(StandardCharsets.UTF_8));
        message.setFlag(3);
        message.setSysFlag(sysFlag);
        message.setQueueId(2);
        message.setQueueOffset(77);
        message.setCommitLogOffset(123456);
        message.setBornTimestamp(1700000000001L);
        message.setStoreTimestamp(1700000000002L);
        message.setBornHost(new InetSocketAddress(born, 5001));
        message.setStoreHost(new InetSocketAddress(store, 10911));
        message.setReconsumeTimes(4);
        message.setPreparedTransactionOffset(99);
        message.setBodyCRC(UtilAll.crc32(message.getBody()));
        message.putUserProperty("user", "\u00e9");
        message.setTags("TagA");
        byte[] data = MessageDecoder.encode(message, false);
        Map<String, Object> entry = entry("topic", message.getTopic(), "body",
            hex(message.getBody()), "flag", message.getFlag());
        entry.put("sysFlag", sysFlag);
        entry.put("queueId", message.getQueueId());
        entry.put("queueOffset", message.getQueueOffset());
        entry.put("commitLogOffset", message.getCommitLogOffset());
        entry.put("bornTimestamp", message.getBornTimestamp());
        entry.put("storeTimestamp", message.getStoreTimestamp());
        entry.put("bornHost", InetAddress.getByName(born).getHostAddress());
        entry.put("bornPort", 5001);
        entry.put("storeHost", InetAddress.getByName(store).getHostAddress());
        entry.put("storePort", 10911);
        entry.put("reconsumeTimes", message.getReconsumeTimes());
        entry.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        entry.put("bodyCrc", message.getBodyCRC());
        entry.put("properties", MessageDecoder.messageProperties2String(message.getProperties()));
        entry.put("hex", hex(data));
        return entry;
    }

    // Filling objects with values, and plain trees of them

    private Object filled(Class<?> type) throws Exception {
        Constructor<?> chosen = null;
        for (Constructor<?> constructor : type.getDeclaredConstructors()) {
            boolean copies = Arrays.asList(constructor.getParameterTypes()).contains(type);
            if (!copies && (chosen == null
                || constructor.getParameterCount() < chosen.getParameterCount())) {
                chosen = constructor;
            }
        }
        chosen.setAccessible(true);
        Object[] arguments = new Object[chosen.getParameterCount()];
        for (int i = 0; i < arguments.length; i++) {
            arguments[i] = value(chosen.getGenericParameterTypes()[i], "argument");
        }
        Object object = chosen.newInstance(arguments);
        for (Field field : fields(type)) {
            if (Modifier.isFinal(field.getModifiers()) && field.get(object) instanceof Collection) {
                continue;
            }
            field.set(object, value(field.getGenericType(), field.getName()));
        }
        return object;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private Object value(Type generic, String name) throws Exception {
        Class<?> type = generic instanceof ParameterizedType
            ? (Class<?>) ((ParameterizedType) generic).getRawType() : (Class<?>) generic;
        Type[] arguments = generic instanceof ParameterizedType
            ? ((ParameterizedType) generic).getActualTypeArguments() : new Type[0];
        counter++;
        if (type == String.class) {
            return name + "-\u00e9" + counter;
        } else if (type == int.class || type == Integer.class) {
            return counter;
        } else if (type == long.class || type == Long.class) {
            return 1700000000000L + counter;
        } else if (type == boolean.class || type == Boolean.class) {
            return true;
        } else if (type == double.class) {
            return counter + 0.5;
        } else if (type == AtomicLong.class) {
            return new AtomicLong(counter);
        } else if (type.isEnum()) {
            return type.getEnumConstants()[type.getEnumConstants().length - 1];
        } else if (type == Properties.class) {
            Properties properties = new Properties();
            properties.setProperty("key", "value-" + counter);
            return properties;
        } else if (type.isArray()) {
            Object array = Array.newInstance(type.getComponentType(), 2);
            Array.set(array, 0, value(type.getComponentType(), name));
            Array.set(array, 1, value(type.getComponentType(), name));
            return array;
        } else if (Collection.class.isAssignableFrom(type)) {
            Collection collection = type == List.class ? new ArrayList()
                : type == HashSet.class ? new HashSet()
                : type == TreeSet.class ? new TreeSet() : new LinkedHashSet();
            collection.add(value(arguments[0], name));
            collection.add(value(arguments[0], name));
            return collection;
        } else if (Map.class.isAssignableFrom(type)) {
            Map map = type == HashMap.class ? new HashMap() : type == TreeMap.class ? new TreeMap()
                : type == Map.class ? new LinkedHashMap() : new ConcurrentHashMap();
            map.put(value(arguments[0], name), value(arguments[1], name));
            map.put(value(arguments[0], name), value(arguments[1], name));
            return map;
        }
        return filled(type);
    }

    private static Object tree(Object value) throws Exception {
        if (value == null || value instanceof String || value instanceof Number
            || value instanceof Boolean) {
            return value instanceof AtomicLong ? ((AtomicLong) value).get() : value;
        } else if (value instanceof Enum) {
            return value.toString();
        } else if (value.getClass().isArray()) {
            List<Object> items = new ArrayList<>();
            for (int i = 0; i < Array.getLength(value); i++) {
                items.add(Array.get(value, i));
            }
            return items;
        } else if (value instanceof Collection) {
            List<Object> items = new ArrayList<>();
            for (Object item : (Collection<?>) value) {
                items.add(tree(item));
            }
            return items;
        } else if (value instanceof Map) {
            List<Object> members = new ArrayList<>();
            for (Map.Entry<?, ?> member : ((Map<?, ?>) value).entrySet()) {
                members.add(Arrays.asList(tree(member.getKey()), tree(member.getValue())));
            }
            return entry("map", members);
        }
        Map<String, Object> fields = new LinkedHashMap<>();
        for (Field field : fields(value.getClass())) {
            fields.put(field.getName(), tree(field.get(value)));
        }
        return fields;
    }

    /** The fields that travel: those with a getter, and all of a header. */
    private static List<Field> fields(Class<?> type) {
        List<Field> fields = new ArrayList<>();
        for (Class<?> at = type; at != Object.class; at = at.getSuperclass()) {
            for (Field field : at.getDeclaredFields()) {
                String tail = field.getName().substring(0, 1).toUpperCase()
                    + field.getName().substring(1);
                boolean travels = CommandCustomHeader.class.isAssignableFrom(type)
                    || has(type, "get" + tail) || has(type, "is" + tail)
                    || has(type, field.getName());
                boolean hidden = field.getName().equals("filterClassSource");
                if (!Modifier.isStatic(field.getModifiers()) && travels && !hidden) {
                    field.setAccessible(true);
                    fields.add(field);
                }
            }
        }
        return fields;
    }

    private static boolean has(Class<?> type, String getter) {
        for (Method method : type.getMethods()) {
            if (method.getName().equals(getter) && method.getParameterCount() == 0) {
                return true;
            }
        }
        return false;
    }

    private static Class<?> find(String name) {
        for (String place : PACKAGES) {
            try {
                return Class.forName("org.apache.rocketmq." + place + "." + name);
            } catch (ClassNotFoundException next) {
                continue;
            }
        }
        return null;
    }

    private static Map<String, Object> entry(Object... members) {
        Map<String, Object> entry = new LinkedHashMap<>();
        for (int i = 0; i < members.length; i += 2) {
            entry.put((String) members[i], members[i + 1]);
        }
        return entry;
    }

    private static String hex(byte[] data) {
        StringBuilder text = new StringBuilder();
        for (byte item : data) {
            text.append(String.format("%02x", item));
        }
        return text.toString();
    }
}
