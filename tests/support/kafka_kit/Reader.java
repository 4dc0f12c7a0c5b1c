import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** What Kafka's own consumer gives: one JSON line asks for a topic, one line answers; the records go to a file. */
public class Reader {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long PATIENCE_MS = 60_000;

    public static void main(String[] none) throws Exception {
        var answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        var asked = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = asked.readLine()) != null; ) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.put("records", read(JSON.readTree(line)));
            } catch (Exception failed) {
                answer.put("error", failed.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    /** All records below the end that the isolation level allows now, partition after partition. */
    private static long read(JsonNode wanted) throws Exception {
        Map<String, Object> settings = new TreeMap<>(Map.of("enable.auto.commit", "false"));
        wanted.get("settings").fields().forEachRemaining(one -> settings.put(one.getKey(), one.getValue().asText()));
        var bytes = new ByteArrayDeserializer();
        long records = 0;
        try (Writer out = Files.newBufferedWriter(Path.of(wanted.get("out").asText()));
                var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            var partitions = new TreeMap<Integer, TopicPartition>();
            for (var one : consumer.partitionsFor(wanted.get("topic").asText()))
                partitions.put(one.partition(), new TopicPartition(one.topic(), one.partition()));
            for (TopicPartition partition : partitions.values()) {
                var only = List.of(partition);
                long end = consumer.endOffsets(only).get(partition);
                consumer.assign(only);
                consumer.seekToBeginning(only);
                long until = System.currentTimeMillis() + PATIENCE_MS;
                while (consumer.position(partition) < end) {
                    for (var record : consumer.poll(Duration.ofMillis(100))) {
                        if (record.offset() >= end) break;
                        out.write(JSON.writeValueAsString(row(record)));
                        out.write('\n');
                        records++;
                    }
                    if (System.currentTimeMillis() > until)
                        throw new IllegalStateException(partition + ": at " + consumer.position(partition) + " of " + end);
                }
            }
        }
        return records;
    }

    private static ArrayNode row(ConsumerRecord<byte[], byte[]> record) {
        ArrayNode row = JSON.createArrayNode();
        row.add(record.partition()).add(record.offset()).add(record.key()).add(record.value());
        row.add(record.timestamp()).add(record.timestampType().id);
        ArrayNode headers = row.addArray();
        for (Header one : record.headers()) headers.addArray().add(one.key()).add(one.value());
        return row;
    }
}
