package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"net/url"
	"os"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const short = 200

// consumers are push consumers, by the names that the test gave them.
type consumers struct {
	senders *senders
	running map[string]rocketmq.PushConsumer
	inboxes map[string]chan url.Values
}

func newConsumers(s *senders) *consumers {
	return &consumers{senders: s, running: map[string]rocketmq.PushConsumer{}, inboxes: map[string]chan url.Values{}}
}

// consume starts a consumer that notes what it gets. fail=N makes the first N deliveries of each message fail, fail=-1
// all; trace=TOPIC records traces there; sql=… filters by an SQL92 expression; reply=1 answers each message with the same
// body, in capitals.
func (c *consumers) consume(w words) error {
	name := w.Get("name")
	options := []consumer.Option{
		consumer.WithNsResolver(nameServers(w)),
		consumer.WithGroupName(w.Get("group")),
		consumer.WithInstance(w.text("instance", fmt.Sprintf("%s-%d", name, os.Getpid()))),
		consumer.WithConsumeFromWhere(where(w.text("where", "first"))),
		consumer.WithConsumerOrder(w.Has("order")),
		consumer.WithSuspendCurrentQueueTimeMillis(time.Duration(w.number("suspend", 1000)) * time.Millisecond),
	}
	if w.Has("timestamp") {
		options = append(options, consumer.WithConsumeTimestamp(w.Get("timestamp")))
	}
	if w.Get("model") == "BROADCASTING" {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if w.Has("max") {
		options = append(options, consumer.WithMaxReconsumeTimes(int32(w.number("max", -1))))
	}
	if w.Has("trace") {
		options = append(options, consumer.WithTrace(traces(w)))
	}
	var replier rocketmq.Producer
	if w.Has("reply") {
		p, err := c.senders.producer(words{said("ns", w.Get("ns"), "group", "repliers")})
		if err != nil {
			return err
		}
		replier = p
	}
	push, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return err
	}
	inbox := make(chan url.Values, 100_000)
	failing := &failing{times: w.number("fail", 0), seen: map[string]int{}}
	listen := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		failed := false
		for _, m := range messages {
			inbox <- describe(m)
			if replier != nil {
				if err := reply(replier, m); err != nil {
					return consumer.ConsumeRetryLater, err
				}
			}
			failed = failing.fails(m) || failed
		}
		if failed && w.Has("order") {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		if failed {
			return consumer.ConsumeRetryLater, nil
		}
		return consumer.ConsumeSuccess, nil
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: w.text("tags", "*")}
	if w.Has("sql") {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: w.Get("sql")}
	}
	if err := push.Subscribe(w.Get("topic"), selector, listen); err != nil {
		return err
	}
	c.inboxes[name] = inbox
	c.running[name] = push
	return push.Start()
}

func where(word string) consumer.ConsumeFromWhere {
	switch word {
	case "first":
		return consumer.ConsumeFromFirstOffset
	case "last":
		return consumer.ConsumeFromLastOffset
	}
	return consumer.ConsumeFromTimestamp
}

func reply(p rocketmq.Producer, m *primitive.MessageExt) error {
	answer, err := consumer.CreateReplyMessage(m, nil)
	if err != nil {
		return err
	}
	answer.Body = bytes.ToUpper(m.Body)
	_, err = p.SendSync(context.Background(), answer)
	return err
}

func (c *consumers) received(w words) []url.Values {
	end := time.After(time.Duration(w.number("seconds", 30)) * time.Second)
	found := []url.Values{}
	for len(found) < w.number("count", 1) {
		select {
		case one := <-c.inboxes[w.Get("name")]:
			found = append(found, one)
		case <-end:
			return found
		}
	}
	return found
}

func (c *consumers) close(w words) error {
	push, found := c.running[w.Get("name")]
	if !found {
		return fmt.Errorf("nobody is called %s", w.Get("name"))
	}
	delete(c.running, w.Get("name"))
	return push.Shutdown()
}

func describe(m *primitive.MessageExt) url.Values {
	start := m.Body
	if len(start) > short {
		start = start[:short]
	}
	values := said(
		"topic", m.Topic,
		"body", string(start),
		"size", len(m.Body),
		"crc", crc32.ChecksumIEEE(m.Body),
		"tag", m.GetTags(),
		"keys", m.GetKeys(),
		"queue", m.Queue.QueueId,
		"offset", m.QueueOffset,
		"tries", m.ReconsumeTimes,
		"id", m.MsgId,
		"flag", m.Flag,
		"born", m.BornTimestamp,
		"stored", m.StoreTimestamp,
		"arrived", time.Now().UnixMilli(),
	)
	for name, value := range m.GetProperties() {
		values.Set("property."+name, value)
	}
	return values
}

// failing is a listener's failures: so many for each message.
type failing struct {
	sync.Mutex
	times int
	seen  map[string]int
}

func (f *failing) fails(m *primitive.MessageExt) bool {
	f.Lock()
	defer f.Unlock()
	before := f.seen[string(m.Body)]
	f.seen[string(m.Body)]++
	return f.times < 0 || before < f.times
}
