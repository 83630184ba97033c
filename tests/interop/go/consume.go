package main

import (
	"context"
	"encoding/base64"
	"sync"
	"sync/atomic"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

// consume prints each delivery to a push consumer and ends when it has seen what it expects.
func consume(o options) error {
	defer flush()
	from := consumer.ConsumeFromFirstOffset
	if o.text("from", "first") == "last" {
		from = consumer.ConsumeFromLastOffset
	}
	model := consumer.Clustering
	if o.text("model", "") == "broadcast" {
		model = consumer.BroadCasting
	}
	orderly := o.text("orderly", "") == "true"
	c, err := rocketmq.NewPushConsumer(consumer.WithNsResolver(o.resolver()), consumer.WithGroupName(o.text("group", "")),
		consumer.WithConsumeFromWhere(from), consumer.WithConsumerModel(model), consumer.WithConsumerOrder(orderly),
		consumer.WithMaxReconsumeTimes(int32(o.number("max-reconsume", -1))))
	if err != nil {
		return err
	}
	var seen sync.Map
	var deliveries atomic.Int64
	fail := o.text("fail", "never")
	handler := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		again := false
		for _, m := range messages {
			_, known := seen.LoadOrStore(m.MsgId, true)
			delivered(m)
			deliveries.Add(1)
			again = again || fail == "always" || fail == "first" && !known
		}
		if !again {
			return consumer.ConsumeSuccess, nil
		}
		if orderly {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
			concurrent.DelayLevelWhenNextConsume = o.number("delay-level", 0)
		}
		return consumer.ConsumeRetryLater, nil
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: o.text("tags", "*")}
	if err := c.Subscribe(o.text("topic", ""), selector, handler); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	printLine(line{"ready": true})
	flush()
	expect := int64(o.number("expect", 1<<31))
	end := time.Now().Add(time.Duration(o.number("timeout", 30)) * time.Second)
	for deliveries.Load() < expect && time.Now().Before(end) {
		time.Sleep(20 * time.Millisecond)
	}
	// what comes beyond the expectation is a fault that the reader of these lines must see
	time.Sleep(time.Duration(o.number("settle", 1000)) * time.Millisecond)
	return c.Shutdown()
}

func delivered(m *primitive.MessageExt) {
	printLine(line{"topic": m.Topic, "msgId": m.MsgId, "queue": m.Queue.QueueId, "offset": m.QueueOffset, "tags": m.GetTags(),
		"keys": m.GetKeys(), "reconsumeTimes": m.ReconsumeTimes, "body": base64.StdEncoding.EncodeToString(m.Body),
		"properties": m.GetProperties()})
	flush()
}
