import java.io.BufferedReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.zip.CRC32;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.DirectTasks;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * Feeds files of changes to Kafka Streams' foreign-key join, or of events to its join of two streams within 30 minutes, and
 * tells how long each phase took.
 *
 * <p>Arguments: inner|left|window-inner|window-left|window-outer, a folder for the state, a limit in seconds per phase, then
 * phases as name=file,file. A line of a file is side (l or r), key and value, with tabs between; no value is a delete. The
 * foreign key of a left row, or the time of an event in milliseconds, is its value up to the first bar.
 */
public final class Feed {
    private static final class Result {
        /** Checksum + 1 of the current row of every key; 0 where there is none. */
        long[] rows = new long[1 << 20];
        final CRC32 crc = new CRC32();
        final boolean windowed;
        long emitted;

        Result(boolean windowed) {
            this.windowed = windowed;
        }

        void take(byte[] key, byte[] value) {
            emitted++;
            if (windowed) {
                return;
            }
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

    /** The grace is longer than any event of the benchmark is late by, so that none is dropped. */
    private static Topology windowed(String kind, Properties config) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> left = builder.stream("left");
        KStream<String, String> right = builder.stream("right");
        JoinWindows window = JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, Duration.ofHours(8))
            .after(Duration.ofMinutes(30));
        StreamJoined<String, String, String> how = StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String());
        KStream<String, String> joined = switch (kind) {
            case "window-left" -> left.leftJoin(right, Feed::join, window, how);
            case "window-outer" -> left.outerJoin(right, Feed::join, window, how);
            default -> left.join(right, Feed::join, window, how);
        };
        joined.to("out");
        return builder.build(config);
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
        boolean windowed = arguments[0].startsWith("window-");
        Result result = new Result(windowed);
        boolean whole = true;
        Topology topology = windowed ? windowed(arguments[0], config) : topology(arguments[0].equals("left"), config);
        try (DirectTasks tasks = new DirectTasks(topology, config, result::take)) {
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
                                windowed ? Long.parseLong(text.substring(0, text.indexOf('|'))) : time++);
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
                System.err.printf("kafka %s: %,d records told%n", name, result.emitted);
                System.out.printf("{\"phase\": \"%s\", \"events\": %d, \"seconds\": %.3f}%n", name, events, seconds);
            }
        }
        if (whole && !windowed) {
            long rows = Arrays.stream(result.rows).filter(row -> row > 0).count();
            long digest = Arrays.stream(result.rows).filter(row -> row > 0).map(row -> row - 1).sum();
            System.out.printf("{\"phase\": \"result\", \"rows\": %d, \"digest\": %d}%n", rows, digest);
        }
    }
}
