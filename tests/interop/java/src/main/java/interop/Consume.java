package interop;

import java.util.Base64;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A concurrent push consumer that prints each delivery and ends when it has seen what it expects. */
final class Consume {
    private Consume() {
    }

    static void run(Options options) throws Exception {
        int expect = options.number("expect", Integer.MAX_VALUE);
        String fail = options.text("fail", "never");
        int delayLevel = options.number("delay-level", 0);
        Set<String> seen = ConcurrentHashMap.newKeySet();
        AtomicInteger deliveries = new AtomicInteger();

        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(options.number("threads", 8));
        consumer.setConsumeThreadMax(options.number("threads", 8));
        consumer.setConsumeMessageBatchMaxSize(options.number("batch", 1));
        consumer.setMaxReconsumeTimes(options.number("max-reconsume", -1));
        // what a client looks at every 20 or 30 s by default, looked at every second, so that a test need not wait
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setPersistConsumerOffsetInterval(1000);
        consumer.subscribe(options.text("topic"), options.text("tags", "*"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean again = false;
            for (MessageExt message : messages) {
                boolean first = seen.add(message.getUserProperty("n") + "/" + message.getMsgId());
                print(message);
                deliveries.incrementAndGet();
                again |= fail.equals("always") || fail.equals("first") && first;
            }
            context.setDelayLevelWhenNextConsume(delayLevel);
            return again ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Lines.print("ready", true);
        Lines.flush();

        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(options.number("timeout", 30));
        while (deliveries.get() < expect && System.nanoTime() < end) {
            TimeUnit.MILLISECONDS.sleep(20);
        }
        // what comes beyond the expectation is a fault that the reader of these lines must see
        TimeUnit.MILLISECONDS.sleep(options.number("settle", 1000));
        consumer.shutdown();
        Lines.flush();
    }

    private static void print(MessageExt message) {
        Lines.print("topic", message.getTopic(), "msgId", message.getMsgId(), "queue", message.getQueueId(),
            "offset", message.getQueueOffset(), "tags", message.getTags(), "keys", message.getKeys(),
            "reconsumeTimes", message.getReconsumeTimes(), "body", Base64.getEncoder().encodeToString(message.getBody()),
            "properties", new TreeMap<>(message.getProperties()));
        Lines.flush();
    }
}
