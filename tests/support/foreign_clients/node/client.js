// kafkajs reads in a group and commits, and writes; it reads in no other way.
const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const PARTITIONS = 3;
const PATIENCE_MS = 90_000;

async function main(wanted) {
  const kafka = new Kafka({
    brokers: wanted.bootstrap,
    ssl: { ca: [fs.readFileSync(wanted.authority, "utf-8")] },
    sasl: { mechanism: "scram-sha-512", username: wanted.username, password: wanted.password },
    connectionTimeout: 30_000, // a second by default, which a busy machine may take
    logLevel: logLevel.NOTHING,
  });
  const lines = [];

  const admin = kafka.admin();
  await admin.connect();
  for (const one of await admin.fetchTopicOffsets(wanted.topic))
    lines.push(`offsets ${one.partition} ${one.low} ${one.high}`);
  await admin.disconnect();

  const consumer = kafka.consumer({ groupId: wanted.group, maxWaitTimeInMs: 200 });
  await consumer.connect();
  await consumer.subscribe({ topic: wanted.topic, fromBeginning: true });
  const next = {};
  let left = wanted.count;
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        const headers = Object.entries(message.headers).map(([name, value]) => ` ${name}=${value}`);
        const start = `group ${partition} ${message.offset} ${message.timestamp}`;
        lines.push(`${start} ${message.key} ${message.value}${headers.join("")}`);
        next[partition] = String(BigInt(message.offset) + 1n);
        if (--left === 0) resolve();
      },
    });
  });
  await consumer.commitOffsets(
    Object.entries(next).map(([partition, offset]) => ({ topic: wanted.topic, partition: Number(partition), offset })),
  );
  await consumer.disconnect();

  const producer = kafka.producer();
  await producer.connect();
  for (let number = 0; number < wanted.written; number++) {
    const message = { partition: number % PARTITIONS, key: "key", value: `written-${number}`, headers: { h: "1" } };
    for (const one of await producer.send({ topic: wanted.into, messages: [message] }))
      lines.push(`acked ${one.partition} ${one.baseOffset}`);
  }
  await producer.disconnect();
  console.log(lines.join("\n"));
}

setTimeout(() => {
  console.error(`not done after ${PATIENCE_MS} ms`);
  process.exit(1);
}, PATIENCE_MS).unref();
main(JSON.parse(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});
