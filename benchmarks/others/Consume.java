import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A line "bootstrap topic records a second, or 0: as fast as it can, then partition:first:end ..." has the partitions
 * consumed; the line that answers has the records, and the nanoseconds from the assignment to the last one.
 */
public class Consume {
    public static void main(String[] none) {
        var lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String[] asked = lines.nextLine().split(" ");
            long[] answer = consume(asked[0], asked[1], Double.parseDouble(asked[2]), asked);
            System.out.println(answer[0] + " " + answer[1]);
        }
    }

    private static long[] consume(String bootstrap, String topic, double rate, String[] asked) {
        Map<TopicPartition, Long> firsts = new HashMap<>();
        long wanted = 0;
        for (int at = 3; at < asked.length; at++) {
            String[] one = asked[at].split(":");
            firsts.put(new TopicPartition(topic, Integer.parseInt(one[0])), Long.parseLong(one[1]));
            wanted += Long.parseLong(one[2]) - Long.parseLong(one[1]);
        }
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", "false");
        var bytes = new ByteArrayDeserializer();
        long records = 0;
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            long began = System.nanoTime();
            List<TopicPartition> partitions = new ArrayList<>(firsts.keySet());
            consumer.assign(partitions);
            for (TopicPartition one : partitions) consumer.seek(one, firsts.get(one));
            while (records < wanted) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100)))
                    if (record.value() != null) records++;
                if (rate > 0) hold(began + (long) (records / rate * 1e9));
            }
            return new long[] {records, System.nanoTime() - began};
        }
    }

    private static void hold(long until) {
        long left = until - System.nanoTime();
        if (left <= 0) return;
        try {
            Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
        } catch (InterruptedException stopped) {
            throw new IllegalStateException(stopped);
        }
    }
}
