import java.io.BufferedReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Properties;
import java.util.zip.CRC32;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.DirectTasks;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * Feeds files of changes to Kafka Streams' foreign-key join and tells how long each phase took.
 *
 * <p>Arguments: inner|left, a folder for the state, a limit in seconds per phase, then phases as name=file,file. A line
 * of a file is side (l or r), key and value, with tabs between; no value is a delete. The foreign key of a left row is
 * its value up to the first bar.
 */
public final class Feed {
    private static final class Result {
        /** Checksum + 1 of the current row of every key; 0 where there is none. */
        long[] rows = new long[1 << 20];
        final CRC32 crc = new CRC32();

        void take(byte[] key, byte[] value) {
            int id = Math.toIntExact(Long.parseLong(new String(key, StandardCharsets.US_ASCII)));
            if (id >= rows.length) {
                rows = Arrays.copyOf(rows, Math.max(id + 1, rows.length * 2));
            }
            if (value == null) {
                rows[id] = 0;
                return;
            }
            crc.reset();
            crc.update(key);
            crc.update('|');
            crc.update(value);
            rows[id] = crc.getValue() + 1;
        }
    }

    private static Topology topology(boolean left, Properties config) {
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> orders = builder.table("left", Materialized.as("left-store"));
        KTable<String, String> customers = builder.table("right", Materialized.as("right-store"));
        KTable<String, String> joined = left
            ? orders.leftJoin(customers, Feed::foreignKey, Feed::join)
            : orders.join(customers, Feed::foreignKey, Feed::join);
        joined.toStream().to("out");
        return builder.build(config);
    }

    private static String foreignKey(String value) {
        int end = value.indexOf('|');
        return end == 0 ? null : value.substring(0, end);
    }

    private static String join(String left, String right) {
        return right == null ? left : left + "|" + right;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "benchmark");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:0");
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class.getName());
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        config.put(StreamsConfig.STATE_DIR_CONFIG, Files.createDirectories(Path.of(arguments[1])).toString());
        long limit = Long.parseLong(arguments[2]) * 1_000_000_000L;
        Result result = new Result();
        boolean whole = true;
        try (DirectTasks tasks = new DirectTasks(topology(arguments[0].equals("left"), config), config, result::take)) {
            long time = 0;
            for (String phase : Arrays.copyOfRange(arguments, 3, arguments.length)) {
                String name = phase.substring(0, phase.indexOf('='));
                long events = 0;
                long started = System.nanoTime();
                for (String file : phase.substring(name.length() + 1).split(",")) {
                    try (BufferedReader lines = Files.newBufferedReader(Path.of(file))) {
                        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                            int value = line.indexOf('\t', 2);
                            String text = line.substring(value + 1);
                            tasks.send(
                                line.charAt(0) == 'l' ? "left" : "right",
                                bytes(line.substring(2, value)),
                                text.isEmpty() ? null : bytes(text),
                                time++);
                            events++;
                            if (events % 100_000 == 0) {
                                System.err.printf("kafka %s: %,d%n", name, events);
                                if (System.nanoTime() - started > limit) {
                                    whole = false;
                                    break;
                                }
                            }
                        }
                    }
                    if (!whole) {
                        break;
                    }
                }
                if (!whole) {
                    break;
                }
                double seconds = (System.nanoTime() - started) / 1e9;
                System.out.printf("{\"phase\": \"%s\", \"events\": %d, \"seconds\": %.3f}%n", name, events, seconds);
            }
        }
        if (whole) {
            long rows = Arrays.stream(result.rows).filter(row -> row > 0).count();
            long digest = Arrays.stream(result.rows).filter(row -> row > 0).map(row -> row - 1).sum();
            System.out.printf("{\"phase\": \"result\", \"rows\": %d, \"digest\": %d}%n", rows, digest);
        }
    }
}
