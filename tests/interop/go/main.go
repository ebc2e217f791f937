// A producer and consumers of the Go client, told what to do line by line:
//
//	send TOPIC PREFIX COUNT         -> ok COUNT
//	subscribe TOPIC GROUP           -> ok GROUP
//	receive GROUP COUNT SECONDS     -> ok BODY BODY …
//
// or "failed REASON". Run with the name server addresses. The Java driver beside it takes the same commands.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type driver struct {
	nameServers primitive.NsResolver
	producer    rocketmq.Producer
	credentials primitive.Credentials
	arrived     map[string]chan string // by group
}

func main() {
	rlog.SetLogLevel("error")
	d := driver{
		nameServers: primitive.NewPassthroughResolver(strings.Split(os.Args[1], ";")),
		arrived:     map[string]chan string{},
	}
	if len(os.Args) > 3 {
		d.credentials = primitive.Credentials{AccessKey: os.Args[2], SecretKey: os.Args[3]}
	}
	p, err := rocketmq.NewProducer(
		producer.WithCredentials(d.credentials),
		producer.WithNsResolver(d.nameServers),
		producer.WithGroupName("interop-go-producers"),
		producer.WithRetry(2),
		producer.WithSendMsgTimeout(10*time.Second),
	)
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	d.producer = p
	fmt.Println("ready")
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		answer, err := d.answer(strings.Split(commands.Text(), " "))
		if err != nil {
			fmt.Println("failed", strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok", answer)
		}
	}
}

func (d *driver) answer(words []string) (string, error) {
	switch words[0] {
	case "send":
		count, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		return words[3], d.send(words[1], words[2], count)
	case "subscribe":
		return words[2], d.subscribe(words[1], words[2])
	case "receive":
		count, err := strconv.Atoi(words[2])
		if err != nil {
			return "", err
		}
		seconds, err := strconv.Atoi(words[3])
		if err != nil {
			return "", err
		}
		return d.receive(words[1], count, time.Duration(seconds)*time.Second), nil
	}
	return "", fmt.Errorf("no such command")
}

func (d *driver) send(topic, prefix string, count int) error {
	for i := 0; i < count; i++ {
		message := primitive.NewMessage(topic, []byte(fmt.Sprintf("%s-%d", prefix, i)))
		result, err := d.producer.SendSync(context.Background(), message.WithTag("interop"))
		if err != nil {
			return err
		}
		if result.Status != primitive.SendOK {
			return fmt.Errorf("%s", result)
		}
	}
	return nil
}

func (d *driver) subscribe(topic, group string) error {
	arrived := make(chan string, 10000)
	c, err := rocketmq.NewPushConsumer(
		consumer.WithCredentials(d.credentials),
		consumer.WithNsResolver(d.nameServers),
		consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	take := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, message := range messages {
			arrived <- string(message.Body)
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := c.Subscribe(topic, consumer.MessageSelector{}, take); err != nil {
		return err
	}
	d.arrived[group] = arrived
	return c.Start()
}

func (d *driver) receive(group string, count int, patience time.Duration) string {
	end := time.After(patience)
	bodies := []string{}
	for len(bodies) < count {
		select {
		case body := <-d.arrived[group]:
			bodies = append(bodies, body)
		case <-end:
			return strings.Join(bodies, " ")
		}
	}
	return strings.Join(bodies, " ")
}
