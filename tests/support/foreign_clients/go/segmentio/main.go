// segmentio/kafka-go reads, reads in a group and commits, and writes.
package main

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl/scram"
	"segreader/foreign/talk"
)

func main() {
	wanted, ctx := talk.Read(), context.Background()
	login, err := scram.Mechanism(scram.SHA512, wanted.Username, wanted.Password)
	talk.Must(err)
	dialer := &kafka.Dialer{Timeout: talk.Patience, TLS: wanted.TLS(), SASLMechanism: login}

	// One partition after the other, without a group.
	for partition := range talk.Partitions {
		leader, err := dialer.DialLeader(ctx, "tcp", wanted.Bootstrap[0], wanted.Topic, partition)
		talk.Must(err)
		first, end, err := leader.ReadOffsets()
		talk.Must(err)
		talk.Must(leader.Close())
		reader := kafka.NewReader(kafka.ReaderConfig{Brokers: wanted.Bootstrap, Topic: wanted.Topic,
			Partition: partition, Dialer: dialer, MaxWait: 100 * time.Millisecond})
		talk.Must(reader.SetOffset(first))
		for offset := first; offset < end; {
			message, err := reader.FetchMessage(ctx)
			talk.Must(err)
			show("read", message)
			offset = message.Offset + 1
		}
		talk.Must(reader.Close())
	}

	member := kafka.NewReader(kafka.ReaderConfig{Brokers: wanted.Bootstrap, Topic: wanted.Topic, GroupID: wanted.Group,
		StartOffset: kafka.FirstOffset, Dialer: dialer, MaxWait: 100 * time.Millisecond})
	var taken []kafka.Message
	for range wanted.Count {
		message, err := member.FetchMessage(ctx)
		talk.Must(err)
		show("group", message)
		taken = append(taken, message)
	}
	talk.Must(member.CommitMessages(ctx, taken...))
	talk.Must(member.Close())

	writer := &kafka.Writer{Addr: kafka.TCP(wanted.Bootstrap...), Topic: wanted.Into, BatchTimeout: time.Millisecond,
		RequiredAcks: kafka.RequireAll, Transport: &kafka.Transport{TLS: wanted.TLS(), SASL: login},
		Balancer: kafka.BalancerFunc(func(message kafka.Message, partitions ...int) int {
			return int(message.Time.UnixMilli()) % len(partitions)
		}),
		Completion: func(messages []kafka.Message, err error) {
			for _, one := range messages {
				talk.Acked(one.Partition, one.Offset)
			}
		}}
	for number := range wanted.Written {
		talk.Must(writer.WriteMessages(ctx, kafka.Message{Key: []byte("key"), Value: talk.Value(number),
			Time: time.UnixMilli(int64(number) + 1_700_000_000_001), Headers: []kafka.Header{{Key: "h", Value: []byte("1")}}}))
	}
	talk.Must(writer.Close())
	talk.Done()
}

func show(kind string, one kafka.Message) {
	headers := []talk.Header{}
	for _, header := range one.Headers {
		headers = append(headers, talk.Header{Name: header.Key, Value: header.Value})
	}
	talk.Record(kind, one.Partition, one.Offset, one.Time, one.Key, one.Value, headers...)
}
