import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.expression.BooleanExpression;
import org.apache.rocketmq.filter.expression.MQFilterException;
import org.apache.rocketmq.filter.parser.SelectorParser;

/**
 * Says what stock makes of SQL92 expressions: a line in has an expression and properties in the
 * wire's form, each in base64; a line out is refused, true, false, null, or error where evaluating
 * throws.
 */
public class Sql92Vectors {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split(" ", -1);
            out.println(answer(decoded(fields[0]), decoded(fields[1])));
        }
        out.flush();
    }

    private static String decoded(String field) {
        return new String(Base64.getDecoder().decode(field), StandardCharsets.UTF_8);
    }

    private static String answer(String expression, String text) {
        BooleanExpression parsed;
        try {
            parsed = SelectorParser.parse(expression);
        } catch (MQFilterException refused) {
            return "refused";
        }
        Map<String, String> properties = MessageDecoder.string2messageProperties(text);
        try {
            return String.valueOf(parsed.evaluate(new MessageEvaluationContext(properties)));
        } catch (Throwable failed) {
            return "error";
        }
    }
}
