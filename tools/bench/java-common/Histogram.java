import java.util.concurrent.atomic.AtomicLongArray;

/** Microseconds, counted in buckets that are at most 1/64 of their value wide; for many threads. */
final class Histogram {
    private static final int SUB_BITS = 6;
    private final AtomicLongArray counts = new AtomicLongArray((64 - SUB_BITS) << SUB_BITS);

    void record(long nanos) {
        counts.incrementAndGet(index(Math.max(nanos / 1000, 0)));
    }

    private static int index(long value) {
        int shift = Math.max(63 - Long.numberOfLeadingZeros(value | 1) - SUB_BITS, 0);
        return (shift << SUB_BITS) + (int) (value >>> shift);
    }

    private static long highest(int index) {
        int shift = Math.max((index >> SUB_BITS) - 1, 0);
        return ((long) (index - (shift << SUB_BITS)) + 1 << shift) - 1;
    }

    boolean isEmpty() {
        return percentile(1) == 0;
    }

    /** The value that `share` of what was recorded does not exceed; 0 where nothing was. */
    long percentile(double share) {
        long total = 0;
        for (int i = 0; i < counts.length(); i++) {
            total += counts.get(i);
        }
        long wanted = (long) Math.ceil(total * share);
        long seen = 0;
        for (int i = 0; i < counts.length(); i++) {
            seen += counts.get(i);
            if (seen >= wanted && seen > 0) {
                return highest(i);
            }
        }
        return 0;
    }

    String json() {
        return String.format(
            "\"p50_us\": %d, \"p99_us\": %d, \"p999_us\": %d, \"max_us\": %d",
            percentile(0.5), percentile(0.99), percentile(0.999), percentile(1));
    }
}
