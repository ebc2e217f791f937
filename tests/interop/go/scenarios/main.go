// Producers and consumers of the Go client, told what to do line by line. A line is a verb and a query string,
// "send ns=127.0.0.1:9876&topic=T&prefix=a"; the answer is "ok" and a query string for each thing found, or "failed" and
// the reason. The Java driver takes the same verbs, and a few more.
package main

import (
	"bufio"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type words struct{ url.Values }

func (w words) number(name string, otherwise int) int {
	if n, err := strconv.Atoi(w.Get(name)); err == nil {
		return n
	}
	return otherwise
}

func (w words) text(name, otherwise string) string {
	if w.Has(name) {
		return w.Get(name)
	}
	return otherwise
}

func said(pairs ...interface{}) url.Values {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i].(string), fmt.Sprint(pairs[i+1]))
	}
	return values
}

type driver struct {
	senders   *senders
	consumers *consumers
	pullers   *pullers
	payers    *payers
}

func main() {
	rlog.SetLogLevel("error")
	rlog.SetOutputPath(os.DevNull)
	s := newSenders()
	d := driver{senders: s, consumers: newConsumers(s), pullers: newPullers(), payers: newPayers()}
	fmt.Println("ready")
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Println(d.answer(strings.TrimRight(line, "\n")))
	}
}

func (d *driver) answer(line string) (answer string) {
	defer func() {
		if problem := recover(); problem != nil {
			answer = "failed " + url.QueryEscape(fmt.Sprint(problem))
		}
	}()
	verb, query, _ := strings.Cut(line, " ")
	values, err := url.ParseQuery(query)
	var found []url.Values
	if err == nil {
		found, err = d.serve(verb, words{values})
	}
	if err != nil {
		return "failed " + url.QueryEscape(err.Error())
	}
	told := []string{}
	for _, one := range found {
		told = append(told, one.Encode())
	}
	return "ok " + strings.Join(told, " ")
}

func (d *driver) serve(verb string, w words) ([]url.Values, error) {
	switch verb {
	case "send":
		return d.senders.send(w)
	case "request":
		return d.senders.request(w)
	case "transact":
		return d.payers.transact(w)
	case "questions":
		return d.payers.questions(w)
	case "consume":
		return nil, d.consumers.consume(w)
	case "received":
		return d.consumers.received(w), nil
	case "delays":
		return d.delays(w)
	case "pull":
		return d.pullers.pull(w)
	case "lite":
		return nil, d.pullers.start(w)
	case "poll":
		return d.pullers.poll(w), nil
	case "close":
		if d.pullers.known(w) {
			return nil, d.pullers.close(w)
		}
		return nil, d.consumers.close(w)
	}
	return nil, fmt.Errorf("no such verb: %s", verb)
}

// delays sends messages one after the other to an idle consumer: how long each took from send to listener.
func (d *driver) delays(w words) ([]url.Values, error) {
	found := []url.Values{}
	for i := 0; i < w.number("count", 1); i++ {
		one := url.Values{}
		for name, value := range w.Values {
			one[name] = value
		}
		one.Set("count", "1")
		sent := time.Now()
		if _, err := d.senders.send(words{one}); err != nil {
			return nil, err
		}
		if len(d.consumers.received(words{said("name", w.Get("name"), "count", 1)})) == 0 {
			return nil, fmt.Errorf("message %d did not come", i)
		}
		found = append(found, said("us", time.Since(sent).Microseconds()))
	}
	return found, nil
}

func nameServers(w words) primitive.NsResolver {
	return primitive.NewPassthroughResolver(strings.Split(w.Get("ns"), ";"))
}
