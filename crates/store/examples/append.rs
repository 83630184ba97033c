//! Measures appends by hand, on a real disk:
//! `cargo run --release -p store --example append -- DIR sync|async THREADS SECONDS [BYTES] [INFLIGHT]`.
//!
//! Each thread keeps INFLIGHT messages under way; with sync flush those answered as flushed are
//! counted. Prints appends per second, CPU per append and, with one in flight, latencies.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a measuring program run by hand"
)]

use clock::{Clock, SystemClock};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use store::disk::RealDisk;
use store::{FlushPolicy, MessageDraft, Store, StoreError, StoreOptions};
use wire::message::record::RecordFields;

fn cpu_seconds() -> f64 {
    // utime and stime, in ticks of 10 ms, counted after the program's name in brackets.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks = |n: usize| fields.get(n).unwrap().parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

/// What all threads share.
struct Run {
    store: Store,
    clock: SystemClock,
    sync: bool,
    bytes: usize,
    in_flight: usize,
    stop: AtomicBool,
    count: AtomicU64,
    nanos: Mutex<Vec<u64>>,
}

fn produce(run: &Run, number: i32) {
    let body = vec![7; run.bytes];
    let topic = format!("topic-{}", number % 4);
    let draft = MessageDraft::from(RecordFields {
        topic: &topic,
        queue_id: number % 8,
        flag: 0,
        sys_flag: 0,
        born_ts_ms: 1,
        born_host: ([127, 0, 0, 1], 1).into(),
        store_host: ([127, 0, 0, 1], 1).into(),
        reconsume_times: 0,
        prepared_offset: 0,
        body: &body,
        properties: b"TAGS\x01red\x02UNIQ_KEY\x010123456789ABCDEF0123456789ABCDEF\x02",
    });
    let mut own = Vec::new();
    let (send, receive) = sync_channel::<()>(run.in_flight);
    let mut under_way = 0;
    while !run.stop.load(Ordering::Relaxed) {
        let began = run.clock.monotonic();
        let outcome = match run.store.append(&draft) {
            Err(StoreError::Busy) => {
                std::thread::yield_now();
                continue;
            }
            other => other.unwrap(),
        };
        if run.sync {
            let send = send.clone();
            let done = move |result: Result<(), StoreError>| {
                result.unwrap();
                send.try_send(()).unwrap();
            };
            run.store.when_flushed(outcome.end(), Box::new(done));
            under_way += 1;
            if under_way == run.in_flight {
                receive.recv().unwrap();
                under_way -= 1;
                run.count.fetch_add(1, Ordering::Relaxed);
            }
        } else {
            run.count.fetch_add(1, Ordering::Relaxed);
        }
        if run.in_flight == 1 && own.len() < 4_000_000 {
            own.push(run.clock.monotonic().since(began).as_nanos() as u64);
        }
    }
    for _ in 0..under_way {
        receive.recv().unwrap();
    }
    run.nanos.lock().unwrap().append(&mut own);
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |n: usize, default: u64| args.get(n).map_or(default, |a| a.parse().unwrap());
    let dir = args.get(1).map_or("gantry-append", String::as_str);
    let sync = args.get(2).is_none_or(|mode| mode == "sync");
    let mut options = StoreOptions::new(Path::new(dir));
    if !sync {
        options.flush = FlushPolicy::ASYNC_DEFAULT;
    }
    let clock = SystemClock::new();
    let (store, report) = Store::open(options, Arc::new(RealDisk), Arc::new(clock)).unwrap();
    println!("{report:?}");
    let run = Arc::new(Run {
        store,
        clock,
        sync,
        bytes: usize::try_from(number(5, 1024)).unwrap(),
        in_flight: usize::try_from(number(6, 1)).unwrap(),
        stop: AtomicBool::new(false),
        count: AtomicU64::new(0),
        nanos: Mutex::default(),
    });
    let (start, cpu) = (clock.monotonic(), cpu_seconds());
    let threads = i32::try_from(number(3, 1)).unwrap();
    let spawn = |n| {
        let run = Arc::clone(&run);
        std::thread::spawn(move || produce(&run, n))
    };
    let workers: Vec<_> = (0..threads).map(spawn).collect();
    std::thread::sleep(Duration::from_secs(number(4, 3)));
    run.stop.store(true, Ordering::Relaxed);
    let seconds = clock.monotonic().since(start).as_secs_f64();
    let used = cpu_seconds() - cpu;
    let appended = run.count.load(Ordering::Relaxed) as f64;
    for worker in workers {
        worker.join().unwrap();
    }
    let each = used / appended * 1e6;
    println!("{:.0} appends/s, {each:.2} us CPU each", appended / seconds);
    let mut nanos = run.nanos.lock().unwrap();
    nanos.sort_unstable();
    for (name, part) in [("p50", 500), ("p99", 990), ("p99.9", 999), ("max", 1000)] {
        let at = (nanos.len() * part / 1000).saturating_sub(1);
        if let Some(value) = nanos.get(at) {
            println!("{name} {:.1} us", *value as f64 / 1e3);
        }
    }
    run.store.close().unwrap();
}
