package interop;

import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A push consumer, concurrent or orderly, that prints each delivery and ends when it has seen what it expects. */
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
        consumer.setConsumeFromWhere(switch (options.text("from", "first")) {
            case "last" -> ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET;
            case "first" -> ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET;
            default -> ConsumeFromWhere.CONSUME_FROM_TIMESTAMP;
        });
        // a point in time is yyyyMMddHHmmss
        if (!options.text("from", "first").matches("first|last")) {
            consumer.setConsumeTimestamp(options.text("from"));
        }
        if (options.text("model", "cluster").equals("broadcast")) {
            broadcasting(consumer);
        }
        if (options.text("instance", null) != null) {
            consumer.setInstanceName(options.text("instance"));
        }
        boolean ordered = options.text("orderly", "false").equals("true");
        int pause = options.number("pause", 0);
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
        // whether the messages are wanted again
        Judge judge = messages -> {
            boolean again = false;
            for (MessageExt message : messages) {
                boolean first = seen.add(message.getUserProperty("n") + "/" + message.getMsgId());
                print(message);
                deliveries.incrementAndGet();
                again |= fail.equals("always") || fail.equals("first") && first;
            }
            if (pause > 0) {
                sleep(pause);
            }
            return again;
        };
        if (ordered) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                context.setSuspendCurrentQueueTimeMillis(options.number("suspend", 100));
                return judge.again(messages) ? ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT : ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(delayLevel);
                return judge.again(messages) ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
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

    private interface Judge {
        boolean again(List<MessageExt> messages);
    }

    /** The enum is in another package in 4.9 than in 5.x. */
    private static void broadcasting(DefaultMQPushConsumer consumer) throws Exception {
        Method setter = Arrays.stream(DefaultMQPushConsumer.class.getMethods())
            .filter(method -> method.getName().equals("setMessageModel")).findFirst().orElseThrow();
        Object[] models = setter.getParameterTypes()[0].getEnumConstants();
        setter.invoke(consumer, Arrays.stream(models).filter(model -> model.toString().equals("BROADCASTING")).findFirst().orElseThrow());
    }

    private static void sleep(int ms) {
        try {
            TimeUnit.MILLISECONDS.sleep(ms);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    static void print(MessageExt message) {
        Lines.print("topic", message.getTopic(), "msgId", message.getMsgId(), "queue", message.getQueueId(),
            "offset", message.getQueueOffset(), "tags", message.getTags(), "keys", message.getKeys(),
            "reconsumeTimes", message.getReconsumeTimes(), "body", Base64.getEncoder().encodeToString(message.getBody()),
            "properties", new TreeMap<>(message.getProperties()));
        Lines.flush();
    }
}
