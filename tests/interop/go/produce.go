package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const inFlight = 64

// produce sends numbered messages and prints what the broker answered for each.
func produce(o options) error {
	defer flush()
	// the answer to the one send is what is looked at
	p, err := rocketmq.NewProducer(producer.WithNsResolver(o.resolver()), producer.WithGroupName("interop-producer"),
		producer.WithRetry(0), producer.WithSendMsgTimeout(10*time.Second))
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	defer p.Shutdown()
	messages := numbered(o)
	ctx := context.Background()
	switch mode := o.text("mode", "sync"); mode {
	case "sync":
		for _, m := range messages {
			r, err := p.SendSync(ctx, m)
			if err != nil {
				return err
			}
			answered(m, r, r.MsgID, 0)
		}
	case "async":
		return async(p, messages)
	case "oneway":
		for _, m := range messages {
			if err := p.SendOneWay(ctx, m); err != nil {
				return err
			}
			printLine(line{"n": number(m), "body": encoded(m)})
		}
		// one-way frames may still be on their way
		time.Sleep(time.Second)
	case "batch":
		size := o.number("batch", 50)
		for from := 0; from < len(messages); from += size {
			part := messages[from:min(from+size, len(messages))]
			r, err := p.SendSync(ctx, part...)
			if err != nil {
				return err
			}
			// one answer for all: the client tells one id, the offset is the first one's
			for i, m := range part {
				answered(m, r, "", int64(i))
			}
		}
	default:
		return fmt.Errorf("unknown --mode %s", mode)
	}
	return nil
}

func async(p rocketmq.Producer, messages []*primitive.Message) error {
	window := make(chan struct{}, inFlight)
	var open sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for _, m := range messages {
		window <- struct{}{}
		open.Add(1)
		m := m
		err := p.SendAsync(context.Background(), func(_ context.Context, r *primitive.SendResult, err error) {
			if err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			} else {
				answered(m, r, r.MsgID, 0)
			}
			<-window
			open.Done()
		}, m)
		if err != nil {
			return err
		}
	}
	open.Wait()
	mu.Lock()
	defer mu.Unlock()
	return failed
}

var statuses = map[primitive.SendStatus]string{primitive.SendOK: "SEND_OK"}

func answered(m *primitive.Message, r *primitive.SendResult, id string, step int64) {
	status, ok := statuses[r.Status]
	if !ok {
		status = fmt.Sprint(r.Status)
	}
	l := line{"n": number(m), "status": status, "queue": r.MessageQueue.QueueId, "broker": r.MessageQueue.BrokerName,
		"offset": r.QueueOffset + step, "body": encoded(m)}
	if id != "" {
		l["msgId"] = id
	}
	printLine(l)
}

func encoded(m *primitive.Message) string { return base64.StdEncoding.EncodeToString(m.Body) }

func number(m *primitive.Message) int {
	n, err := strconv.Atoi(m.GetProperty("n"))
	if err != nil {
		panic(err)
	}
	return n
}

func numbered(o options) []*primitive.Message {
	tags := strings.Split(o.text("tags", ""), ",")
	first, count := o.number("first", 0), o.number("count", 1)
	messages := make([]*primitive.Message, 0, count)
	for n := first; n < first+count; n++ {
		m := primitive.NewMessage(o.text("topic", ""), body(o.number("size", 64), n))
		if tag := tags[n%len(tags)]; tag != "" {
			m.WithTag(tag)
		}
		if keys := o.text("keys", ""); keys != "" {
			m.WithKeys([]string{keys + strconv.Itoa(n)})
		}
		m.WithProperty("n", strconv.Itoa(n))
		for _, property := range o["prop"] {
			name, value, _ := strings.Cut(property, "=")
			m.WithProperty(name, value)
		}
		messages = append(messages, m)
	}
	return messages
}

// body begins with the number and goes on at random from that seed.
func body(size, n int) []byte {
	b := make([]byte, size)
	rand.New(rand.NewSource(int64(n))).Read(b)
	copy(b, strconv.Itoa(n)+":")
	return b
}
