package orders;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

final class Consume {
    private static String header(ConsumerRecord<?, ?> record, String name) {
        return new String(record.headers().lastHeader(name).value(), UTF_8);
    }

    static void bill(Connection connection, ConsumerRecord<byte[], byte[]> record)
            throws SQLException, IOException {
        JsonNode event = Emit.JSON.readTree(record.value());
        String order = event.required("order_id").textValue();
        int version = event.required("version").intValue();
        boolean isNew = Database.transaction(connection, () -> {
            try (var accept = Database.prepare(connection,
                    "SELECT inbox_accept('billing', ?, ?::timestamptz)",
                    header(record, "id"), header(record, "occurred_at"));
                    var row = accept.executeQuery()) {
                row.next();
                if (!row.getBoolean(1)) return false;
            }
            try (var invoice = Database.prepare(connection, """
                    INSERT INTO invoices (order_id, version, cents) VALUES (?, ?, ?)
                    ON CONFLICT (order_id) DO UPDATE SET version = excluded.version,
                        cents = invoices.cents + excluded.cents""",
                    order, version, event.required("cents").longValue())) {
                invoice.executeUpdate();
            }
            return true;
        });
        System.out.println((isNew ? "applied " : "repeat ") + order + " " + version);
    }

    static void run() throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", System.getenv("KAFKA_BROKERS"),
                "group.id", System.getenv("KAFKA_GROUP"),
                "auto.offset.reset", "earliest",
                "enable.auto.commit", false,
                "session.timeout.ms", 6000,
                "heartbeat.interval.ms", 2000,
                "max.poll.records", 100);
        try (Connection connection = Database.connect();
                var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(),
                        new ByteArrayDeserializer())) {
            Thread main = Thread.currentThread();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                consumer.wakeup();
                try {
                    main.join();
                } catch (InterruptedException ended) {
                    Thread.currentThread().interrupt();
                }
            }));
            consumer.subscribe(List.of(System.getenv("KAFKA_TOPIC")));
            while (true) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    bill(connection, record);
                    consumer.commitSync(Map.of(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1)));
                }
            }
        } catch (WakeupException stopped) {
            // SIGTERM: what was not committed comes again.
        }
    }

    private Consume() {}
}
