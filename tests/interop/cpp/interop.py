"""Command-line programs on the unmodified Apache RocketMQ C++ client, whose library is in the PyPI package `rocketmq`.
Each prints one JSON object a line on standard output; the tests read those lines and judge.

produce --namesrv A --topic T [--mode sync|async|oneway|batch] [--count N] [--first N] [--size B] [--batch N]
        [--tags a,b] [--keys prefix] [--prop name=value]...
consume --namesrv A --topic T --group G [--tags expr] [--expect N] [--timeout s] [--settle ms] [--orderly true]
        [--names a,b: user properties to print] [--fail first]

The client ends late and by threads of its own: a program ends by os._exit once its lines are written.
"""
import base64
import ctypes
import json
import os
import random
import sys
import threading
import time

from rocketmq import ffi
from rocketmq.client import Message, Producer, PushConsumer

IN_FLIGHT = 64
dll = ffi.dll
# a second view of the same library: the body as a pointer, so that zero bytes survive
raw = ctypes.CDLL(ffi._DYLIB_PATH)
raw.GetMessageBody.argtypes = [ctypes.c_void_p]
raw.GetMessageBody.restype = ctypes.c_void_p

lines = []
lines_lock = threading.Lock()


def print_line(**fields):
    with lines_lock:
        lines.append(json.dumps(fields))


def flush():
    with lines_lock:
        if lines:
            os.write(1, ('\n'.join(lines) + '\n').encode('utf-8'))
            lines.clear()


def options(args):
    found = {}
    for name, value in zip(args[::2], args[1::2]):
        if not name.startswith('--'):
            raise SystemExit('expected --name value, saw %s' % name)
        found.setdefault(name[2:], []).append(value)
    return found


class Options:
    def __init__(self, args):
        self.values = options(args)

    def text(self, name, otherwise=None):
        return self.values.get(name, [otherwise])[-1]

    def number(self, name, otherwise):
        return int(self.text(name, otherwise))

    def all(self, name):
        return self.values.get(name, [])


def instance(client, setter):
    setter(client._handle, ('interop%d' % os.getpid()).encode())


def body_of(size, n):
    """Begins with the number and goes on at random from that seed."""
    rest = random.Random(n).getrandbits(8 * size).to_bytes(size, 'little')
    head = b'%d:' % n
    return head + rest[len(head):]


def numbered(o):
    tags = (o.text('tags', '')).split(',')
    first = o.number('first', 0)
    for n in range(first, first + o.number('count', 1)):
        message = Message(o.text('topic'))
        body = body_of(o.number('size', 64), n)
        dll.SetByteMessageBody(message._handle, body, len(body))
        tag = tags[n % len(tags)]
        if tag:
            message.set_tags(tag)
        if o.text('keys'):
            message.set_keys('%s%d' % (o.text('keys'), n))
        # the length is what tells how many bytes the receiver may read
        for name, value in [('n', str(n)), ('len', str(len(body)))] + [p.split('=', 1) for p in o.all('prop')]:
            message.set_property(name, value)
        yield n, body, message


def answered(n, body, result, step=0):
    status = 'SEND_OK' if result.status == 0 else str(result.status)
    print_line(n=n, status=status, msgId=result.msg_id, offset=result.offset + step, body=encoded(body))


def encoded(body):
    return base64.b64encode(body).decode()


def produce(o):
    producer = Producer('interop-producer', timeout=10000)
    producer.set_namesrv_addr(o.text('namesrv'))
    instance(producer, dll.SetProducerInstanceName)
    producer.start()
    mode = o.text('mode', 'sync')
    messages = list(numbered(o))
    if mode == 'sync':
        for n, body, message in messages:
            answered(n, body, producer.send_sync(message))
    elif mode == 'oneway':
        for n, body, message in messages:
            producer.send_oneway(message)
            print_line(n=n, body=encoded(body))
        # one-way frames may still be on their way
        time.sleep(1)
    elif mode == 'batch':
        size = o.number('batch', 50)
        for at in range(0, len(messages), size):
            part = messages[at:at + size]
            result = producer.send_batch([message for _, _, message in part])
            if result.status != 0:
                raise SystemExit('batch: %s' % result.status)
            # the client tells one id for all
            for n, body, _ in part:
                print_line(n=n, body=encoded(body))
    elif mode == 'async':
        send_async(producer, messages)
    else:
        raise SystemExit('unknown --mode %s' % mode)


def send_async(producer, messages):
    window = threading.Semaphore(IN_FLIGHT)
    failed = []
    for n, body, message in messages:
        window.acquire()

        def done(result, n=n, body=body):
            answered(n, body, result)
            window.release()

        def broken(error):
            failed.append(error)
            window.release()

        producer.send_async(message, done, broken)
    for _ in range(IN_FLIGHT):
        window.acquire()
    if failed:
        raise SystemExit('%d failed: %s' % (len(failed), failed[0]))


def consume(o):
    orderly = o.text('orderly') == 'true'
    consumer = PushConsumer(o.text('group'), orderly=orderly)
    consumer.set_namesrv_addr(o.text('namesrv'))
    consumer.set_instance_name('interop%d' % os.getpid())
    consumer.set_thread_count(o.number('threads', 4))
    names = [name for name in o.text('names', '').split(',') if name]
    expect = o.number('expect', 1 << 31)
    seen, deliveries = set(), [0]
    lock = threading.Lock()

    def on_message(_, handle):
        n = delivered(handle, names)
        with lock:
            known = n in seen
            seen.add(n)
            deliveries[0] += 1
        return 1 if o.text('fail') == 'first' and not known else 0

    callback = ffi.MSG_CALLBACK_FUNC(on_message)
    dll.Subscribe(consumer._handle, o.text('topic').encode('utf-8'), o.text('tags', '*').encode('utf-8'))
    register = dll.RegisterMessageCallbackOrderly if orderly else dll.RegisterMessageCallback
    register(consumer._handle, callback)
    consumer.start()
    print_line(ready=True)
    flush()
    end = time.time() + o.number('timeout', 30)
    while deliveries[0] < expect and time.time() < end:
        time.sleep(0.02)
        flush()
    # what comes beyond the expectation is a fault that the reader of these lines must see
    time.sleep(o.number('settle', 1000) / 1000.0)
    # The process ends here, with the connection, without this client's own shutdown: once a consumer ended by SIGABRT
    # around it.
    flush()
    os._exit(0)


def delivered(handle, names):
    def text(value):
        return (value or b'').decode('utf-8')

    def prop(name):
        return text(dll.GetMessageProperty(handle, name.encode('utf-8')))

    length = int(prop('len') or 0)
    body = ctypes.string_at(raw.GetMessageBody(handle), length)
    properties = {name: prop(name) for name in ['n'] + names}
    print_line(topic=text(dll.GetMessageTopic(handle)), msgId=text(dll.GetMessageId(handle)),
               queue=dll.GetMessageQueueId(handle), offset=dll.GetMessageQueueOffset(handle),
               tags=text(dll.GetMessageTags(handle)), keys=text(dll.GetMessageKeys(handle)),
               reconsumeTimes=dll.GetMessageReconsumeTimes(handle), body=encoded(body), properties=properties)
    return properties['n']


def main():
    programs = {'produce': produce, 'consume': consume}
    if len(sys.argv) < 2 or sys.argv[1] not in programs:
        raise SystemExit('usage: produce|consume --name value ...')
    try:
        programs[sys.argv[1]](Options(sys.argv[2:]))
    finally:
        flush()


if __name__ == '__main__':
    try:
        main()
        os._exit(0)
    except BaseException as error:  # the client's threads would keep the process
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
