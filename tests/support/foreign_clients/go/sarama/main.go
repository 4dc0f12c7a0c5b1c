// Sarama reads, reads in a group and commits, and writes.
package main

import (
	"context"
	"errors"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
	"segreader/foreign/talk"
)

type login struct{ conversation *scram.ClientConversation }

func (one *login) Begin(user, password, authzID string) error {
	client, err := scram.SHA512.NewClient(user, password, authzID)
	if err == nil {
		one.conversation = client.NewConversation()
	}
	return err
}

func (one *login) Step(challenge string) (string, error) { return one.conversation.Step(challenge) }
func (one *login) Done() bool                            { return one.conversation.Done() }

func main() {
	wanted := talk.Read()
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.TLS.Enable, config.Net.TLS.Config = true, wanted.TLS()
	config.Net.SASL.Enable, config.Net.SASL.Mechanism = true, sarama.SASLTypeSCRAMSHA512
	config.Net.SASL.User, config.Net.SASL.Password = wanted.Username, wanted.Password
	config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &login{} }
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Return.Successes = true

	read(wanted, config)
	group(wanted, config)

	writer, err := sarama.NewSyncProducer(wanted.Bootstrap, config)
	talk.Must(err)
	for number := range wanted.Written {
		partition, offset, err := writer.SendMessage(&sarama.ProducerMessage{Topic: wanted.Into,
			Partition: int32(number % talk.Partitions), Key: sarama.StringEncoder("key"),
			Value:   sarama.ByteEncoder(talk.Value(number)),
			Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("1")}}})
		talk.Must(err)
		talk.Acked(int(partition), offset)
	}
	talk.Must(writer.Close())
	talk.Done()
}

func show(kind string, one *sarama.ConsumerMessage) {
	headers := []talk.Header{}
	for _, header := range one.Headers {
		headers = append(headers, talk.Header{Name: string(header.Key), Value: header.Value})
	}
	talk.Record(kind, int(one.Partition), one.Offset, one.Timestamp, one.Key, one.Value, headers...)
}

func read(wanted talk.Wanted, config *sarama.Config) {
	consumer, err := sarama.NewConsumer(wanted.Bootstrap, config)
	talk.Must(err)
	all := make(chan *sarama.ConsumerMessage)
	for partition := range talk.Partitions {
		one, err := consumer.ConsumePartition(wanted.Topic, int32(partition), sarama.OffsetOldest)
		talk.Must(err)
		go func() {
			for message := range one.Messages() {
				all <- message
			}
		}()
	}
	for range wanted.Count {
		show("read", <-all)
	}
}

type member struct {
	left chan int
	stop context.CancelFunc
}

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (one *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message := <-claim.Messages():
			left := <-one.left
			show("group", message)
			session.MarkMessage(message, "")
			if left == 1 {
				session.Commit()
				one.stop()
			}
			one.left <- left - 1
		case <-session.Context().Done():
			return nil
		}
	}
}

func group(wanted talk.Wanted, config *sarama.Config) {
	joined, err := sarama.NewConsumerGroup(wanted.Bootstrap, wanted.Group, config)
	talk.Must(err)
	ctx, stop := context.WithCancel(context.Background())
	one := &member{left: make(chan int, 1), stop: stop}
	one.left <- wanted.Count
	for ctx.Err() == nil {
		if err := joined.Consume(ctx, []string{wanted.Topic}, one); err != nil && !errors.Is(err, context.Canceled) {
			talk.Must(err)
		}
	}
	talk.Must(joined.Close())
}
