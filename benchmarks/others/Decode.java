import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.common.utils.Utils;

/**
 * Does with a file what KafkaConsumer does with the records of Fetch answers of 1 MiB: checks the CRC of each batch and makes
 * a ConsumerRecord with byte arrays of each record, 500 at a time. Source: CompletedFetch of kafka-clients 4.3.
 *
 * A line of input names a file and how often to read it; a line of output has its records and the CPU of this process, all
 * threads, in nanoseconds.
 */
public class Decode {
    private static final int READ_SIZE = 1 << 20;
    private static final int POLL = 500;

    private final BufferSupplier buffers = BufferSupplier.create();
    private ByteBuffer buffer = ByteBuffer.allocate(READ_SIZE);
    private List<ConsumerRecord<byte[], byte[]>> polled = new ArrayList<>(POLL);

    public static void main(String[] arguments) throws Exception {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        var input = new BufferedReader(new InputStreamReader(System.in));
        var decode = new Decode();
        for (String line; (line = input.readLine()) != null; ) {
            String[] words = line.split("\t");
            long before = system.getProcessCpuTime(), records = 0;
            for (int n = Integer.parseInt(words[1]); n > 0; n--) records = decode.read(Path.of(words[0]));
            System.out.println(records + "\t" + (system.getProcessCpuTime() - before));
        }
    }

    private long read(Path path) throws Exception {
        long records = 0;
        buffer.clear();
        try (FileChannel file = FileChannel.open(path)) {
            for (boolean isLast = false; !isLast; ) {
                isLast = file.read(buffer) < 0;
                buffer.flip();
                int whole = 0;
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer.duplicate()).batches()) {
                    records += decode(batch);
                    whole += batch.sizeInBytes();
                }
                buffer.position(whole);
                if (whole == 0 && buffer.remaining() == buffer.capacity())
                    buffer = ByteBuffer.allocate(2 * buffer.capacity()).put(buffer);
                else
                    buffer.compact();
            }
        }
        if (buffer.position() > 0) throw new IllegalStateException("the file ends within a batch");
        return records;
    }

    private long decode(MutableRecordBatch batch) {
        long records = 0;
        batch.ensureValid();
        Optional<Integer> epoch = Optional.of(batch.partitionLeaderEpoch());
        try (CloseableIterator<Record> all = batch.streamingIterator(buffers)) {
            while (all.hasNext()) {
                Record one = all.next();
                polled.add(
                    new ConsumerRecord<>(
                        "bench", 0, one.offset(), one.timestamp(), batch.timestampType(), one.keySize(), one.valueSize(),
                        Utils.toNullableArray(one.key()), Utils.toNullableArray(one.value()),
                        new RecordHeaders(one.headers()), epoch));
                if (polled.size() == POLL) polled = new ArrayList<>(POLL);
                records++;
            }
        }
        return records;
    }
}
