package interop;

import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingSendRequestException;

/**
 * A lite pull consumer: by subscription, or with {@code --assign} to all queues, from the first message or from that
 * offset of each. Prints each message and ends when it has seen what it expects; what it has seen is committed.
 */
final class Lite {
    private Lite() {
    }

    static void run(Options options) throws Exception {
        System.setProperty("rocketmq.client.rebalance.waitInterval", "1000");
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(options.text("group"));
        consumer.setNamesrvAddr(options.text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setAutoCommit(false);
        String assign = options.text("assign", null);
        if (assign == null) {
            consumer.subscribe(options.text("topic"), options.text("tags", "*"));
        }
        consumer.start();
        Lines.print("ready", true);
        Lines.flush();
        if (assign != null) {
            List<MessageQueue> queues = new ArrayList<>((Collection<MessageQueue>) consumer.fetchMessageQueues(options.text("topic")));
            consumer.assign(queues);
            for (MessageQueue queue : queues) {
                seek(consumer, queue, assign);
            }
        }
        int expect = options.number("expect", Integer.MAX_VALUE);
        int seen = 0;
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(options.number("timeout", 30));
        while (seen < expect && System.nanoTime() < end) {
            for (MessageExt message : consumer.poll(200)) {
                Consume.print(message);
                seen++;
            }
        }
        // what comes beyond the expectation is a fault that the reader of these lines must see
        for (MessageExt message : consumer.poll(options.number("settle", 1000))) {
            Consume.print(message);
        }
        consumer.commitSync();
        // commits leave in the background, once a second
        consumer.shutdown();
        Lines.flush();
    }

    /**
     * A seek interrupts the pull of its queue that runs; client 5.4.0 answers the interruption by closing its connection,
     * and the request of a seek that waits there fails.
     */
    private static void seek(DefaultLitePullConsumer consumer, MessageQueue queue, String to) throws MQClientException {
        for (int failures = 0; ; failures++) {
            try {
                if (to.equals("first")) {
                    consumer.seekToBegin(queue);
                } else {
                    consumer.seek(queue, Long.parseLong(to));
                }
                return;
            } catch (MQClientException failed) {
                if (failures == 3 || !(failed.getCause() instanceof RemotingSendRequestException)) {
                    throw failed;
                }
            }
        }
    }
}
