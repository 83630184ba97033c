package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** Sends numbered messages and prints what the broker answered for each. */
final class Produce {
    private static final int IN_FLIGHT = 64;

    private Produce() {
    }

    static void run(Options options) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-producer");
        producer.setNamesrvAddr(options.text("namesrv"));
        producer.setSendMsgTimeout(10_000);
        // the answer to the one send is what is looked at
        producer.setRetryTimesWhenSendFailed(0);
        producer.setRetryTimesWhenSendAsyncFailed(0);
        // looked at every 30 s by default; every second, so that a test need not wait
        producer.setPollNameServerInterval(1000);
        producer.start();
        try {
            List<Message> messages = messages(options);
            switch (options.text("mode", "sync")) {
                case "sync" -> {
                    for (Message message : messages) {
                        answered(message, producer.send(message));
                    }
                }
                case "async" -> async(producer, messages);
                case "steady" -> steady(producer, options);
                case "oneway" -> {
                    for (Message message : messages) {
                        producer.sendOneway(message);
                        Lines.print("n", number(message), "body", encoded(message));
                    }
                    // one-way frames are written by another thread: let them leave before the sockets close
                    TimeUnit.SECONDS.sleep(1);
                }
                case "batch" -> {
                    int size = options.number("batch", 50);
                    for (int from = 0; from < messages.size(); from += size) {
                        List<Message> part = new ArrayList<>(messages.subList(from, Math.min(from + size, messages.size())));
                        SendResult result = producer.send(part);
                        // one answer for all: the ids come joined by commas, the offset is the first one's
                        String[] ids = result.getMsgId().split(",");
                        for (int i = 0; i < part.size(); i++) {
                            Lines.print("n", number(part.get(i)), "status", result.getSendStatus().name(), "msgId", ids[i],
                                "queue", result.getMessageQueue().getQueueId(), "broker", result.getMessageQueue().getBrokerName(),
                                "offset", result.getQueueOffset() + i, "body", encoded(part.get(i)));
                        }
                    }
                }
                default -> throw new IllegalArgumentException("unknown --mode");
            }
        } finally {
            Lines.flush();
            producer.shutdown();
        }
    }

    /** One message every {@code --pause} ms; one that is not acknowledged is sent again under another id until one is. */
    private static void steady(DefaultMQProducer producer, Options options) throws Exception {
        Lines.print("ready", true);
        Lines.flush();
        int first = options.number("first", 0);
        int count = options.number("count", 1);
        for (int n = first; n < first + count; n++) {
            boolean again = true;
            while (again) {
                Message message = message(options, n);
                try {
                    SendResult result = producer.send(message);
                    answered(message, result);
                    again = result.getSendStatus() != SendStatus.SEND_OK;
                } catch (RemotingException | MQBrokerException | MQClientException e) {
                    Lines.print("n", n, "error", String.valueOf(e), "msgId", MessageClientIDSetter.getUniqID(message));
                }
                Lines.flush();
                TimeUnit.MILLISECONDS.sleep(options.number("pause", 0));
            }
        }
    }

    private static void async(DefaultMQProducer producer, List<Message> messages) throws Exception {
        Semaphore window = new Semaphore(IN_FLIGHT);
        CountDownLatch open = new CountDownLatch(messages.size());
        AtomicInteger failures = new AtomicInteger();
        for (Message message : messages) {
            window.acquire();
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answered(message, result);
                    done();
                }

                @Override
                public void onException(Throwable cause) {
                    failures.incrementAndGet();
                    Lines.print("n", number(message), "error", String.valueOf(cause));
                    done();
                }

                private void done() {
                    window.release();
                    open.countDown();
                }
            });
        }
        if (!open.await(60, TimeUnit.SECONDS) || failures.get() > 0) {
            Lines.flush();
            throw new IllegalStateException("failed: " + failures.get() + ", unanswered: " + open.getCount());
        }
    }

    private static void answered(Message message, SendResult result) {
        Lines.print("n", number(message), "status", result.getSendStatus().name(), "msgId", result.getMsgId(),
            "queue", result.getMessageQueue().getQueueId(),
            "broker", result.getMessageQueue().getBrokerName(), "offset", result.getQueueOffset(), "body", encoded(message));
    }

    private static String encoded(Message message) {
        return Base64.getEncoder().encodeToString(message.getBody());
    }

    private static int number(Message message) {
        return Integer.parseInt(message.getUserProperty("n"));
    }

    private static List<Message> messages(Options options) {
        int first = options.number("first", 0);
        int count = options.number("count", 1);
        List<Message> messages = new ArrayList<>(count);
        for (int n = first; n < first + count; n++) {
            messages.add(message(options, n));
        }
        return messages;
    }

    private static Message message(Options options, int n) {
        String[] tags = options.text("tags", "").split(",");
        String keys = options.text("keys", null);
        String tag = tags[n % tags.length];
        Message message = new Message(options.text("topic"), tag.isEmpty() ? null : tag, body(options, n));
        if (keys != null) {
            message.setKeys(keys + n);
        }
        message.putUserProperty("n", Integer.toString(n));
        for (String property : options.all("prop")) {
            int at = property.indexOf('=');
            message.putUserProperty(property.substring(0, at), property.substring(at + 1));
        }
        return message;
    }

    /** The given body, or {@code --size} bytes that begin with the number and go on at random from that seed. */
    private static byte[] body(Options options, int n) {
        String given = options.text("body", null);
        if (given != null) {
            return Base64.getDecoder().decode(given);
        }
        byte[] body = new byte[options.number("size", 64)];
        new Random(n).nextBytes(body);
        byte[] head = (n + ":").getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(head, 0, body, 0, Math.min(head.length, body.length));
        return body;
    }
}
