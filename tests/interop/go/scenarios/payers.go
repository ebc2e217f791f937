package main

import (
	"context"
	"fmt"
	"hash/crc32"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// payers are producers with transactions, one for each name server and group.
type payers struct {
	known map[string]*payer
}

// payer decides as the messages say, and notes the questions of the brokers.
type payer struct {
	lock     sync.Mutex
	asked    []url.Values
	producer rocketmq.TransactionProducer
}

func newPayers() *payers {
	return &payers{known: map[string]*payer{}}
}

func state(word string) primitive.LocalTransactionState {
	switch word {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (*payer) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return state(m.GetProperty("outcome"))
}

// CheckLocalTransaction: the message says what to answer the first time, the second time and so on.
func (p *payer) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	p.lock.Lock()
	defer p.lock.Unlock()
	plan := strings.Split(m.GetProperty("plan"), "/")
	times, _ := strconv.Atoi(m.GetProperty("TRANSACTION_CHECK_TIMES"))
	p.asked = append(p.asked, said(
		"body", string(m.Body),
		"times", times,
		"topic", m.Topic,
		"tag", m.GetTags(),
		"id", m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex),
		"transaction", m.TransactionId,
	))
	if times > len(plan) {
		times = len(plan)
	}
	return state(plan[times-1])
}

func (p *payers) payer(w words) (*payer, error) {
	key := w.Get("ns") + " " + w.Get("group")
	if found, there := p.known[key]; there {
		return found, nil
	}
	made := &payer{}
	var err error
	made.producer, err = rocketmq.NewTransactionProducer(
		made,
		producer.WithNsResolver(nameServers(w)),
		producer.WithGroupName(w.Get("group")),
		producer.WithInstanceName(fmt.Sprintf("payer-%d-%d", len(p.known), os.Getpid())),
		producer.WithRetry(5),
		producer.WithSendMsgTimeout(patience),
	)
	if err == nil {
		err = made.producer.Start()
	}
	if err == nil {
		p.known[key] = made
	}
	return made, err
}

func (p *payers) transact(w words) ([]url.Values, error) {
	payer, err := p.payer(w)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	found := []url.Values{}
	for i := 0; i < w.number("count", 1); i++ {
		m := message(w, i)
		m.WithProperty("outcome", w.Get("outcome"))
		crc := crc32.ChecksumIEEE(m.Body)
		result, err := payer.producer.SendMessageInTransaction(ctx, m)
		if err != nil {
			return nil, err
		}
		one := describeSend(result.SendResult, crc)
		one.Set("transaction", result.TransactionID)
		found = append(found, one)
	}
	return found, nil
}

func (p *payers) questions(w words) ([]url.Values, error) {
	payer, err := p.payer(w)
	if err != nil {
		return nil, err
	}
	payer.lock.Lock()
	defer payer.lock.Unlock()
	taken := payer.asked
	payer.asked = nil
	return taken, nil
}
