package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand"
	"net/url"
	"os"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const patience = 20 * time.Second

var statuses = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

// senders are producers, one for each name server, group and way to choose a queue.
type senders struct {
	producers map[string]rocketmq.Producer
}

func newSenders() *senders {
	return &senders{producers: map[string]rocketmq.Producer{}}
}

func (s *senders) producer(w words) (rocketmq.Producer, error) {
	group := w.text("group", "scenario-producers")
	how := w.text("how", "sync")
	if how != "queue" && how != "hash" {
		how = "any"
	}
	key := w.Get("ns") + " " + group + " " + how
	if p, found := s.producers[key]; found {
		return p, nil
	}
	options := []producer.Option{
		producer.WithNsResolver(nameServers(w)),
		producer.WithGroupName(group),
		producer.WithInstanceName(fmt.Sprintf("producer-%d-%d", len(s.producers), os.Getpid())),
		producer.WithRetry(5),
		producer.WithSendMsgTimeout(patience),
	}
	if w.Has("trace") {
		options = append(options, producer.WithTrace(traces(w)))
	}
	switch how {
	case "queue":
		options = append(options, producer.WithQueueSelector(numbered{}))
	case "hash":
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	p, err := rocketmq.NewProducer(options...)
	if err == nil {
		err = p.Start()
	}
	if err == nil {
		s.producers[key] = p
	}
	return p, err
}

// traces says where a client records what happened to its messages.
func traces(w words) *primitive.TraceConfig {
	return &primitive.TraceConfig{
		TraceTopic: w.Get("trace"),
		GroupName:  w.Get("group"),
		Access:     primitive.Local,
		Resolver:   nameServers(w),
	}
}

// numbered chooses the queue that the message names.
type numbered struct{}

func (numbered) Select(m *primitive.Message, queues []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	for _, queue := range queues {
		if m.Queue != nil && queue.QueueId == m.Queue.QueueId {
			return queue
		}
	}
	return nil
}

func (s *senders) send(w words) ([]url.Values, error) {
	p, err := s.producer(w)
	if err != nil {
		return nil, err
	}
	messages := []*primitive.Message{}
	for i := 0; i < w.number("count", 1); i++ {
		messages = append(messages, message(w, i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found := []url.Values{}
	switch w.text("how", "sync") {
	case "batch":
		result, err := p.SendSync(ctx, messages...)
		if err != nil {
			return nil, err
		}
		return []url.Values{describeSend(result, 0)}, nil
	case "oneway":
		for _, m := range messages {
			if err := p.SendOneWay(ctx, m); err != nil {
				return nil, err
			}
			found = append(found, said("status", "SENT", "crc", crc32.ChecksumIEEE(m.Body)))
		}
	case "async":
		return sendAsync(ctx, p, messages)
	default:
		for _, m := range messages {
			crc := crc32.ChecksumIEEE(m.Body) // a body that is sent may be compressed in place
			result, err := p.SendSync(ctx, m)
			if err != nil {
				return nil, err
			}
			found = append(found, describeSend(result, crc))
		}
	}
	return found, nil
}

func sendAsync(ctx context.Context, p rocketmq.Producer, messages []*primitive.Message) ([]url.Values, error) {
	type outcome struct {
		result *primitive.SendResult
		err    error
		crc    uint32
	}
	done := make(chan outcome, len(messages))
	for _, m := range messages {
		crc := crc32.ChecksumIEEE(m.Body)
		err := p.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
			done <- outcome{result, err, crc}
		}, m)
		if err != nil {
			return nil, err
		}
	}
	found := []url.Values{}
	for range messages {
		one := <-done
		if one.err != nil {
			return nil, one.err
		}
		found = append(found, describeSend(one.result, one.crc))
	}
	return found, nil
}

func describeSend(result *primitive.SendResult, crc uint32) url.Values {
	return said(
		"status", statuses[result.Status],
		"id", result.MsgID,
		"offsetId", result.OffsetMsgID,
		"queue", result.MessageQueue.QueueId,
		"broker", result.MessageQueue.BrokerName,
		"offset", result.QueueOffset,
		"region", result.RegionID,
		"crc", crc,
	)
}

func message(w words, number int) *primitive.Message {
	m := primitive.NewMessage(w.Get("topic"), body(w, number))
	if w.Has("tag") {
		m.WithTag(w.Get("tag"))
	}
	if w.Has("keys") {
		m.WithKeys(strings.Split(w.Get("keys"), " "))
	}
	if w.Has("flag") {
		m.Flag = int32(w.number("flag", 0))
	}
	if w.Has("delay") {
		m.WithDelayTimeLevel(w.number("delay", 0))
	}
	if w.Has("timer") {
		m.WithProperty("TIMER_DELAY_MS", w.Get("timer"))
	}
	if w.Has("key") {
		m.WithShardingKey(w.Get("key"))
	}
	if w.Has("queue") {
		m.Queue = &primitive.MessageQueue{Topic: w.Get("topic"), QueueId: w.number("queue", 0)}
	}
	for name := range w.Values {
		if strings.HasPrefix(name, "property.") {
			m.WithProperty(strings.TrimPrefix(name, "property."), w.Get(name))
		}
	}
	return m
}

// body is the name of the message; with a size, followed by letters (which compress well) or by noise (which does not).
func body(w words, number int) []byte {
	name := []byte(fmt.Sprintf("%s-%d", w.Get("prefix"), number))
	if !w.Has("size") {
		return name
	}
	filled := bytes.Repeat([]byte("x"), w.number("size", 0))
	if w.Get("fill") == "noise" {
		rand.New(rand.NewSource(int64(number))).Read(filled)
	}
	copy(filled, append(name, ' '))
	return filled
}

func (s *senders) request(w words) ([]url.Values, error) {
	p, err := s.producer(w)
	if err != nil {
		return nil, err
	}
	ttl := time.Duration(w.number("seconds", 10)) * time.Second
	reply, err := p.Request(context.Background(), ttl, message(w, 0))
	if err != nil {
		return nil, err
	}
	return []url.Values{said("body", string(reply.Body))}, nil
}
