package org.apache.kafka.streams;

import java.util.ArrayDeque;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.function.BiConsumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.MockConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.internals.AutoOffsetResetStrategy;
import org.apache.kafka.clients.producer.MockProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.internals.StreamsConfigUtils;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.internals.InternalTopologyBuilder;
import org.apache.kafka.streams.processor.internals.ProcessorContextImpl;
import org.apache.kafka.streams.processor.internals.ProcessorStateManager;
import org.apache.kafka.streams.processor.internals.ProcessorTopology;
import org.apache.kafka.streams.processor.internals.RecordCollectorImpl;
import org.apache.kafka.streams.processor.internals.StateDirectory;
import org.apache.kafka.streams.processor.internals.StreamTask;
import org.apache.kafka.streams.processor.internals.StreamsProducer;
import org.apache.kafka.streams.processor.internals.Task;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.state.internals.ThreadCache;

/**
 * The real tasks of a topology with one partition per topic, in one thread, without a broker.
 *
 * <p>Records go straight into the task that reads their topic; what a task sends to a topic of the topology is given to
 * the task that reads it, in order; what it sends to "out" goes to a listener. Nothing of Kafka's processors is changed.
 */
public final class DirectTasks implements AutoCloseable {
    private record Message(String topic, byte[] key, byte[] value, long time, Headers headers) { }

    private final Map<String, StreamTask> taskOf = new HashMap<>();
    private final Map<StreamTask, MockProducer<byte[], byte[]>> producerOf = new LinkedHashMap<>();
    private final Map<String, Long> offsets = new HashMap<>();
    private final ArrayDeque<Message> queue = new ArrayDeque<>();
    private final BiConsumer<byte[], byte[]> out;
    private final Metrics metrics = new Metrics(new MetricConfig(), Time.SYSTEM);

    @SuppressWarnings({"resource", "deprecation"})
    public DirectTasks(Topology topology, Properties properties, BiConsumer<byte[], byte[]> out) {
        this.out = out;
        Time time = Time.SYSTEM;
        StreamsConfig config = new StreamsConfig(properties);
        LogContext log = new LogContext("benchmark ");
        StreamsMetricsImpl streamsMetrics = new StreamsMetricsImpl(metrics, "benchmark", time);
        InternalTopologyBuilder builder = topology.internalTopologyBuilder;
        builder.rewriteTopology(config);
        builder.buildTopology();
        StateDirectory directory = new StateDirectory(config, time, builder.hasPersistentStores(), false);
        ThreadCache cache = new ThreadCache(log, 0, streamsMetrics);
        for (int group : builder.nodeGroups().keySet()) {
            TaskId id = new TaskId(group, 0);
            ProcessorTopology part = builder.buildSubtopology(group);
            Set<TopicPartition> sources = new HashSet<>();
            Map<TopicPartition, Long> beginnings = new HashMap<>();
            for (String topic : part.sourceTopics()) {
                sources.add(new TopicPartition(topic, 0));
                beginnings.put(new TopicPartition(topic, 0), 0L);
            }
            MockConsumer<byte[], byte[]> consumer = new MockConsumer<>(AutoOffsetResetStrategy.EARLIEST.name());
            consumer.assign(sources);
            consumer.updateBeginningOffsets(beginnings);
            MockProducer<byte[], byte[]> producer = new MockProducer<>(
                Cluster.empty(), true, null, new ByteArraySerializer(), new ByteArraySerializer()) {
                @Override
                public List<PartitionInfo> partitionsFor(String topic) {
                    return List.of(new PartitionInfo(topic, 0, null, null, null));
                }
            };
            StreamsProducer sender = new StreamsProducer(producer, StreamsConfigUtils.processingMode(config), time, log);
            ProcessorStateManager state = new ProcessorStateManager(
                id, Task.TaskType.ACTIVE, false, log, directory, part.storeToChangelogTopic(), sources);
            RecordCollectorImpl collector = new RecordCollectorImpl(
                log, id, sender, config.productionExceptionHandler(), streamsMetrics, part);
            ProcessorContextImpl context = new ProcessorContextImpl(id, config, state, streamsMetrics, cache);
            StreamTask task = new StreamTask(
                id, sources, part, consumer, builder.topologyConfigs().getTaskConfig(), streamsMetrics, directory, cache,
                time, state, collector, context, log, false);
            task.initializeIfNeeded();
            task.completeRestoration(ignored -> { });
            for (TopicPartition source : sources) {
                task.updateNextOffsets(source, new OffsetAndMetadata(0, Optional.empty(), ""));
                taskOf.put(source.topic(), task);
            }
            producerOf.put(task, producer);
        }
    }

    /** Gives one record to the topology, and processes all that follows from it. */
    public void send(String topic, byte[] key, byte[] value, long time) {
        queue.add(new Message(topic, key, value, time, new RecordHeaders()));
        while (!queue.isEmpty()) {
            process(queue.poll());
        }
    }

    private void process(Message message) {
        StreamTask task = taskOf.get(message.topic());
        TopicPartition source = new TopicPartition(message.topic(), 0);
        long offset = offsets.merge(message.topic(), 1L, Long::sum) - 1;
        task.addRecords(source, Collections.singleton(new ConsumerRecord<>(
            message.topic(), 0, offset, message.time(), TimestampType.CREATE_TIME,
            message.key() == null ? -1 : message.key().length, message.value() == null ? -1 : message.value().length,
            message.key(), message.value(), message.headers(), Optional.empty())));
        task.resumePollingForPartitionsWithAvailableSpace();
        task.updateLags();
        while (task.hasRecordsQueued() && task.isProcessable(Time.SYSTEM.milliseconds())) {
            task.process(Time.SYSTEM.milliseconds());
        }
        MockProducer<byte[], byte[]> producer = producerOf.get(task);
        for (ProducerRecord<byte[], byte[]> sent : producer.history()) {
            if (taskOf.containsKey(sent.topic())) {
                queue.add(new Message(sent.topic(), sent.key(), sent.value(), sent.timestamp(), sent.headers()));
            } else if (sent.topic().equals("out")) {
                out.accept(sent.key(), sent.value());
            }
        }
        producer.clear();
    }

    @Override
    public void close() {
        for (StreamTask task : producerOf.keySet()) {
            task.suspend();
            task.closeDirty();
        }
        metrics.close();
    }
}
