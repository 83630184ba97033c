//! Slow, silent and dripping clients: memory stays flat, others are served, and each of them is ended in its time.

use std::time::Duration;

use anyhow::{Context as _, Result};
use gantry_tests::http::Rest;
use gantry_tests::narrow::narrow;
use gantry_tests::native::{Native, frame};
use gantry_tests::process::Gantry;
use gantry_tests::wait::{eventually, within};
use gantry_tests::ws::Socket;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

const SLOW: usize = 1_000;
const MIB: u64 = 1 << 20;
/// A code of RocketMQ's protocol.
const GET_ROUTE: i32 = 105;

/// Anonymous memory of a process, bytes: what is mapped from the log does not count.
fn anonymous(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kib = line
        .and_then(|l| l.split_whitespace().next())
        .context("RssAnon")?;
    Ok(kib.parse::<u64>()? * 1024)
}

/// File handles for both ends of a thousand connections; children inherit the limit.
fn many_files() -> Result<()> {
    let now = getrlimit(Resource::Nofile);
    let wanted = now.maximum.unwrap_or(8_192).min(8_192);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(wanted),
            maximum: now.maximum,
        },
    )?;
    Ok(())
}

#[test]
fn a_thousand_clients_that_do_not_read_their_pulls_leave_the_memory_of_a_broker_flat() {
    within(Duration::from_secs(120), async {
        many_files().unwrap();
        let dir = TempDir::new().unwrap();
        let up = Gantry::up(dir.path(), &[]).unwrap();
        let broker = up.addr("broker");
        let native = Native::connect(broker).await.unwrap();
        native.put_topic("slow", 1).await.unwrap();
        native.put_group("readers", 3).await.unwrap();
        let body = vec![b'x'; 1 << 20];
        for _ in 0..8 {
            native.send("slow", 0, &body, &[]).await.unwrap();
        }
        let pull = json!({
            "consumerGroup": "readers", "topic": "slow", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
            "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*",
            "subVersion": "0", "expressionType": "TAG"
        });
        let before = anonymous(up.pid()).unwrap();
        let mut clients = Vec::new();
        for _ in 0..SLOW {
            let mut client = narrow(broker).await.unwrap();
            for opaque in 0..16 {
                let asked = frame(11, opaque, 0, pull.clone(), b"").unwrap();
                client.write_all(&asked).await.unwrap();
            }
            clients.push(client);
        }
        for client in &clients {
            let mut first = [0];
            let begun = tokio::time::timeout(Duration::from_secs(20), client.peek(&mut first));
            assert_eq!(begun.await.unwrap().unwrap(), 1, "every client is answered");
        }
        // What they were answered stays unread; another client is served meanwhile.
        for n in 0..50 {
            let began = Instant::now();
            native.send("other", 0, b"hello", &[]).await.unwrap();
            assert!(began.elapsed() < Duration::from_secs(10), "send {n}");
        }
        let grown = anonymous(up.pid()).unwrap().saturating_sub(before);
        assert!(grown < 128 * MIB, "{} MiB for {SLOW} clients", grown / MIB);
        drop(clients);
    });
}

/// A topic `large` with so many messages of so many bytes, and ten groups, `slow0` to `slow9`, that begin with the first.
async fn backlog(rest: &Rest, count: usize, bytes: usize) {
    rest.put_topic("large", json!({})).await.expect(201);
    for group in 0..10 {
        let group = format!("slow{group}");
        rest.put_group(&group, json!({})).await.expect(201);
        let from = json!({"initialPosition": "earliest"});
        rest.subscribe(&group, "large", from).await.expect(201);
    }
    let kind = [("content-type", "application/octet-stream")];
    let path = "/v1/ns/default/topics/large/raw";
    for _ in 0..count {
        let body = vec![b'x'; bytes];
        let sent = rest.call(hyper::Method::POST, path, &kind, body).await;
        sent.unwrap().expect(201);
    }
}

/// What a process holds more than `before`, at most, in the next six seconds: within a budget of 64 MiB for answers.
async fn keeps_to_the_budget(up: &Gantry, before: u64) {
    let mut most = 0;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        most = most.max(anonymous(up.pid()).unwrap().saturating_sub(before));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("{} MiB for a budget of 64", most / MIB);
    assert!(most < 192 * MIB, "{} MiB for a budget of 64", most / MIB);
    assert!(most > 16 * MIB, "{} MiB: the clients were slow", most / MIB);
}

/// Whoever reads is served again once those that take nothing are cut, which is soon while memory is short, and in turn
/// with their groups, however many of them wait. Where a busy machine does not get there within the time of the receive,
/// the answer is 503 with the advice to try again, which a client follows.
async fn another_is_served(rest: &Rest) {
    let sent = rest.send("small", &json!({"text": "hello"})).await;
    sent.expect(201);
    let end = Instant::now() + Duration::from_secs(45);
    let got = loop {
        let got = rest.receive("reader", "topic=small&wait=30s").await;
        if got.status != 503 || Instant::now() > end {
            break got.expect(200);
        }
        assert_eq!(got.header("retry-after"), Some("1"));
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    assert_eq!(got.messages().len(), 1);
}

#[test]
fn a_thousand_receives_whose_answers_are_not_read_keep_to_the_budget_of_a_gateway() {
    within(Duration::from_secs(120), async {
        many_files().unwrap();
        let dir = TempDir::new().unwrap();
        let up = Gantry::up(dir.path(), &["--gateway-answers-max", "64MiB"]).unwrap();
        let rest = Rest::new(up.addr("gateway"));
        backlog(&rest, 100, 1 << 20).await;
        let before = anonymous(up.pid()).unwrap();
        let mut clients = Vec::new();
        for n in 0..SLOW {
            let mut client = narrow(up.addr("gateway")).await.unwrap();
            let ask = format!(
                "POST /v1/ns/default/groups/slow{}/receive?topic=large&bodyFormat=raw&wait=60s HTTP/1.1\r\n\
                 Host: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
                n % 10
            );
            client.write_all(ask.as_bytes()).await.unwrap();
            clients.push(client);
        }
        keeps_to_the_budget(&up, before).await;
        another_is_served(&rest).await;
        drop(clients);
    });
}

#[test]
fn a_thousand_sockets_that_do_not_read_keep_to_the_budget_of_a_gateway() {
    within(Duration::from_secs(120), async {
        many_files().unwrap();
        let dir = TempDir::new().unwrap();
        let up = Gantry::up(dir.path(), &["--gateway-answers-max", "64MiB"]).unwrap();
        let gateway = up.addr("gateway");
        let rest = Rest::new(gateway);
        backlog(&rest, 300, 200_000).await;
        let before = anonymous(up.pid()).unwrap();
        let mut sockets = Vec::new();
        for n in 0..SLOW {
            let (mut socket, _) = Socket::open_narrow(gateway).await.unwrap();
            let subscribe = json!({
                "op": "subscribe", "sub": "s", "mode": "group", "group": format!("slow{}", n % 10),
                "topic": "large", "credit": 1_000
            });
            socket.send(&subscribe).await.unwrap();
            sockets.push(socket);
        }
        keeps_to_the_budget(&up, before).await;
        another_is_served(&rest).await;
        drop(sockets);
    });
}

#[test]
fn connections_that_drip_or_stop_in_a_frame_are_ended_and_hold_up_nobody() {
    within(Duration::from_secs(100), async {
        many_files().unwrap();
        let dir = TempDir::new().unwrap();
        let up = Gantry::up(dir.path(), &[]).unwrap();
        let before = anonymous(up.pid()).unwrap();
        let mut dripping = JoinSet::new();
        for n in 0..SLOW {
            // Two in three drip a frame, one a request head; a byte a second would take minutes. Every other one stops
            // early.
            let (addr, mut text) = if n % 3 < 2 {
                let addr = up.addr(["broker", "namesrv"][n % 3]);
                let head = [0, 0, 4, 0, 0, 0, 3, 0, b'{'];
                (addr, [head.as_slice(), &[b' '; 600]].concat())
            } else {
                let head = format!("GET /healthz HTTP/1.1\r\nX: {}", "y".repeat(600));
                (up.addr("gateway"), head.into_bytes())
            };
            if n % 2 == 0 {
                text.truncate(9);
            }
            let mut client = TcpStream::connect(addr).await.unwrap();
            dripping.spawn(async move {
                let began = Instant::now();
                let mut answer = Vec::new();
                let (mut read, mut write) = client.split();
                let drip = async {
                    for byte in text {
                        if write.write_all(&[byte]).await.is_err() {
                            break;
                        }
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                    std::future::pending().await
                };
                tokio::select! {
                    () = drip => {}
                    _ = read.read_to_end(&mut answer) => {}
                }
                (n, began.elapsed(), answer)
            });
        }
        let rest = Rest::new(up.addr("gateway"));
        eventually(Duration::from_secs(10), "a send while they drip", || {
            let rest = rest.clone();
            async move {
                let sent = rest.send("small", &json!({"text": "hello"})).await;
                (sent.status == 201).then_some(())
            }
        })
        .await;
        let began = Instant::now();
        let names = Native::connect(up.addr("namesrv")).await.unwrap();
        let route = json!({"topic": "small"});
        let found = names.call(GET_ROUTE, route, b"").await.unwrap();
        found.expect(0).unwrap();
        assert!(began.elapsed() < Duration::from_secs(10), "a route");
        let grown = anonymous(up.pid()).unwrap().saturating_sub(before);
        assert!(
            grown < 64 * MIB,
            "{} MiB for {SLOW} connections",
            grown / MIB
        );
        while let Some(ended) = dripping.join_next().await {
            let (n, took, answer) = ended.unwrap();
            let (limit, expected) = if n % 3 < 2 {
                (60, "")
            } else {
                (30, "HTTP/1.1 408")
            };
            assert!(
                took < Duration::from_secs(limit),
                "client {n} after {took:?}"
            );
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.starts_with(expected), "client {n}: {answer}");
        }
    });
}
