// franz-go reads, reads in a group and commits, and writes.
package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"segreader/foreign/talk"
)

func main() {
	wanted, ctx := talk.Read(), context.Background()
	login := scram.Auth{User: wanted.Username, Pass: wanted.Password}.AsSha512Mechanism()
	base := []kgo.Opt{kgo.SeedBrokers(wanted.Bootstrap...), kgo.DialTLSConfig(wanted.TLS()), kgo.SASL(login)}
	reads := append(base, kgo.ConsumeTopics(wanted.Topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))

	plain := opened(reads)
	drain(ctx, "read", plain, wanted.Count)
	plain.Close()

	member := opened(append(reads, kgo.ConsumerGroup(wanted.Group), kgo.DisableAutoCommit()))
	drain(ctx, "group", member, wanted.Count)
	talk.Must(member.CommitUncommittedOffsets(ctx))
	member.Close()

	writer := opened(append(base, kgo.RecordPartitioner(kgo.ManualPartitioner())))
	for number := range wanted.Written {
		record := &kgo.Record{Topic: wanted.Into, Partition: int32(number % talk.Partitions), Key: []byte("key"),
			Value: talk.Value(number), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}}}
		result, err := writer.ProduceSync(ctx, record).First()
		talk.Must(err)
		talk.Acked(int(result.Partition), result.Offset)
	}
	writer.Close()
	talk.Done()
}

func opened(options []kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(options...)
	talk.Must(err)
	return client
}

func drain(ctx context.Context, kind string, client *kgo.Client, count int) {
	for count > 0 {
		fetches := client.PollFetches(ctx)
		for _, one := range fetches.Errors() {
			talk.Must(one.Err)
		}
		fetches.EachRecord(func(one *kgo.Record) {
			headers := []talk.Header{}
			for _, header := range one.Headers {
				headers = append(headers, talk.Header{Name: header.Key, Value: header.Value})
			}
			talk.Record(kind, int(one.Partition), one.Offset, one.Timestamp, one.Key, one.Value, headers...)
			count--
		})
	}
}
