package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var pullStatuses = map[primitive.PullStatus]string{
	primitive.PullFound:         "FOUND",
	primitive.PullNoNewMsg:      "NO_NEW_MSG",
	primitive.PullNoMsgMatched:  "NO_MATCHED_MSG",
	primitive.PullOffsetIllegal: "OFFSET_ILLEGAL",
}

// pullers are consumers that fetch, by name.
type pullers struct {
	running map[string]rocketmq.PullConsumer
}

func newPullers() *pullers {
	return &pullers{running: map[string]rocketmq.PullConsumer{}}
}

func (p *pullers) known(w words) bool {
	_, found := p.running[w.Get("name")]
	return found
}

// start makes a consumer that subscribes; others of its group share the queues.
func (p *pullers) start(w words) error {
	name := w.text("name", w.Get("group"))
	puller, err := rocketmq.NewPullConsumer(
		consumer.WithNsResolver(nameServers(w)),
		consumer.WithGroupName(w.Get("group")),
		consumer.WithInstance(fmt.Sprintf("%s-%d", name, os.Getpid())),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: w.text("tags", "*")}
	if err := puller.Subscribe(w.Get("topic"), selector); err != nil {
		return err
	}
	p.running[name] = puller
	return puller.Start()
}

// pull asks for what is in a queue from an offset on.
func (p *pullers) pull(w words) ([]url.Values, error) {
	name := w.Get("group")
	if _, found := p.running[name]; !found {
		if err := p.start(w); err != nil {
			return nil, err
		}
	}
	offset, err := strconv.ParseInt(w.Get("offset"), 10, 64)
	if err != nil {
		return nil, err
	}
	queue := &primitive.MessageQueue{
		Topic: w.Get("topic"), BrokerName: w.Get("broker"), QueueId: w.number("queue", 0),
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	result, err := p.running[name].PullFrom(ctx, queue, offset, w.number("count", 32))
	if err != nil {
		return nil, err
	}
	found := []url.Values{said("status", pullStatuses[result.Status], "next", result.NextBeginOffset,
		"min", result.MinOffset, "max", result.MaxOffset)}
	for _, m := range result.GetMessageExts() {
		found = append(found, describe(m))
	}
	return found, nil
}

// poll takes what has come, and says that it is consumed.
func (p *pullers) poll(w words) []url.Values {
	end := time.Now().Add(time.Duration(w.number("seconds", 30)) * time.Second)
	found := []url.Values{}
	for len(found) < w.number("count", 1) && time.Now().Before(end) {
		polled, err := p.running[w.Get("name")].Poll(context.Background(), time.Second)
		if err != nil {
			continue
		}
		for _, m := range polled.GetMsgList() {
			found = append(found, describe(m))
		}
		p.running[w.Get("name")].ACK(context.Background(), polled, consumer.ConsumeSuccess)
	}
	return found
}

func (p *pullers) close(w words) error {
	puller := p.running[w.Get("name")]
	delete(p.running, w.Get("name"))
	return puller.Shutdown()
}
