//! Sockets whose client stopped reading, or living: in documented time their messages are somebody else's.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gantry_tests::fleet::Fleet;
use gantry_tests::http::Rest;
use gantry_tests::wait::{SLOW, USUAL, eventually, within};
use gantry_tests::ws::Socket;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Tells [`client_process`] where to connect.
const CLIENT: &str = "GANTRY_TEST_CLIENT";
/// Messages that a client holds and never settles.
const HELD: usize = 20;

async fn prepare(rest: &Rest) {
    rest.put_topic("t", json!({"queues": 4})).await.expect(201);
    rest.put_group("g", json!({"invisibleFor": "300s", "maxInFlight": 10000}))
        .await
        .expect(201);
    rest.subscribe("g", "t", json!({"initialPosition": "earliest"}))
        .await
        .expect(201);
}

async fn send(rest: &Rest, count: usize, text: &str) {
    let messages: Vec<Value> = (0..count).map(|_| json!({"text": text})).collect();
    for chunk in messages.chunks(50) {
        rest.post(
            "/v1/ns/default/topics/t/messages/batch",
            &json!({"messages": chunk}),
        )
        .await
        .expect(200);
    }
}

fn subscription(credit: u32, max_in_flight: u32) -> Value {
    json!({"op": "subscribe", "sub": "s", "mode": "group", "group": "g", "topic": "t", "credit": credit,
           "maxInFlight": max_in_flight, "resumeWindow": "2s"})
}

/// What another process runs: takes [`HELD`] messages, says so, and keeps them.
#[test]
fn client_process() {
    let Ok(gateway) = std::env::var(CLIENT) else {
        return;
    };
    within(SLOW, async {
        let gateway: SocketAddr = gateway.parse().unwrap();
        let (mut socket, _) = Socket::open(gateway).await.unwrap();
        let credit = u32::try_from(HELD).unwrap();
        let ok = socket.ask(1, subscription(credit, 100)).await.unwrap();
        assert_eq!(ok["op"], "ok", "{ok}");
        let mut held = 0;
        while held < HELD {
            held += socket
                .messages(Duration::from_secs(20))
                .await
                .unwrap()
                .len();
        }
        println!("holds {held}");
        // Pings are answered as long as this lives.
        while let Ok(_frame) = socket.next(Duration::from_secs(300)).await {}
    });
}

/// A client in a process of its own, killed when dropped.
struct Client(Child);

impl Client {
    fn start(gateway: SocketAddr) -> Client {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "client_process",
                "--exact",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(CLIENT, gateway.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = child.stdout.take().unwrap();
        let client = Client(child);
        let holds = format!("holds {HELD}");
        let ready = BufReader::new(said)
            .lines()
            .map_while(Result::ok)
            .any(|line| line.ends_with(&holds));
        assert!(ready, "the client did not get its messages");
        client
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Takes and acks until `count` messages were acked; the time it took.
async fn consume(socket: &mut Socket, count: usize, limit: Duration) -> Duration {
    let (began, mut acked) = (Instant::now(), 0);
    while acked < count {
        let left = limit.saturating_sub(began.elapsed());
        let messages = socket.messages(left).await.unwrap();
        assert!(!messages.is_empty(), "{acked} of {count} within {limit:?}");
        let receipts: Vec<&Value> = messages.iter().map(|message| &message["receipt"]).collect();
        acked += receipts.len();
        socket
            .send(&json!({"op": "ack", "sub": "s", "receipts": receipts}))
            .await
            .unwrap();
        socket
            .send(&json!({"op": "credit", "sub": "s", "messages": receipts.len()}))
            .await
            .unwrap();
    }
    began.elapsed()
}

/// BL-54, emqx/emqx#2708, #5063: of three members one is stopped and one killed. Both are dropped in the time the
/// heartbeat allows, what they held goes to the third, and new messages go to the third alone.
#[test]
fn stopped_and_killed_members_lose_their_share_to_the_living_one() {
    within(SLOW, async {
        // 2 s of silence, 1 s of grace, 2 s to come back: the documented times, only shorter.
        let fleet = Fleet::small(1, &["--ws-idle", "2s", "--ws-grace", "1s"]).await;
        let rest = fleet.rest(0);
        prepare(&rest).await;
        send(&rest, 3 * HELD, "x").await;
        let gateway = fleet.gateways[0].addr("gateway");
        let (stopped, killed) =
            tokio::task::spawn_blocking(move || (Client::start(gateway), Client::start(gateway)))
                .await
                .unwrap();
        let (mut third, _) = Socket::open(gateway).await.unwrap();
        let ok = third.ask(1, subscription(100, 100)).await.unwrap();
        assert_eq!(ok["op"], "ok", "{ok}");
        consume(&mut third, HELD, Duration::from_secs(5)).await;
        stopped.signal(Signal::STOP);
        killed.signal(Signal::KILL);
        let took = consume(&mut third, 2 * HELD, Duration::from_secs(8)).await;
        assert!(
            took >= Duration::from_secs(3),
            "sooner than anybody was told: {took:?}"
        );
        send(&rest, 200, "y").await;
        consume(&mut third, 200, Duration::from_secs(3)).await;
        stopped.signal(Signal::CONT);
    });
}

/// Resident memory of a process, KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}

/// A client that takes nothing from its socket: after 10 s it is closed with a reason it can still read, its messages
/// come back, and what is kept for it meanwhile is bounded.
#[test]
fn a_client_that_does_not_read_is_closed_with_a_reason_and_costs_little() {
    const SOCKETS: usize = 4;
    within(USUAL, async {
        let fleet = Fleet::small(1, &[]).await;
        let rest = fleet.rest(0);
        prepare(&rest).await;
        let (gateway, pid) = (fleet.gateways[0].addr("gateway"), fleet.gateways[0].pid());
        // 6 MB a socket: more than its queue and the buffers of the kernel take
        let large = "x".repeat(60_000);
        for _ in 0..SOCKETS {
            send(&rest, 100, &large).await;
        }
        let before = resident(pid);
        let mut sockets = Vec::new();
        for _ in 0..SOCKETS {
            let (mut socket, _) = Socket::open_narrow(gateway).await.unwrap();
            socket.send(&subscription(1_000, 1_000)).await.unwrap();
            sockets.push(socket);
        }
        let mut most = 0;
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(11_000) {
            most = most.max(resident(pid));
            sleep(Duration::from_millis(100)).await;
        }
        let each = most.saturating_sub(before) / SOCKETS as u64;
        println!("{each} KiB a socket that does not read");
        assert!(each < 8 * 1_024, "{each} KiB a socket");
        for mut socket in sockets {
            let closed = socket.closed(Duration::from_secs(5)).await.unwrap();
            assert_eq!(closed, (4001, "slow_consumer".to_owned()));
        }
        let waiting = || async {
            let lag = rest
                .get("/v1/ns/default/groups/g/lag")
                .await
                .expect(200)
                .json();
            let queues = lag["queues"].as_array().unwrap();
            let held: u64 = queues
                .iter()
                .map(|queue| queue["inFlight"].as_u64().unwrap())
                .sum();
            (held == 0).then_some(())
        };
        eventually(Duration::from_secs(6), "nothing is held", waiting).await;
    });
}

/// What an open socket that does nothing costs the gateway. Measured on two cores, debug build: 9.4 KiB each at 2,000.
#[test]
fn an_idle_socket_costs_at_most_16_kib() {
    const SOCKETS: usize = 1_000;
    within(USUAL, async {
        let fleet = Fleet::small(1, &[]).await;
        let (gateway, pid) = (fleet.gateways[0].addr("gateway"), fleet.gateways[0].pid());
        // What is paid once is paid before the count begins.
        for _ in 0..50 {
            Socket::open(gateway).await.unwrap().0.close().await;
        }
        let before = resident(pid);
        let mut sockets = Vec::with_capacity(SOCKETS);
        for _ in 0..SOCKETS {
            sockets.push(Socket::open(gateway).await.unwrap().0);
        }
        let each = resident(pid).saturating_sub(before) as f64 / SOCKETS as f64;
        println!("{each:.1} KiB an idle socket");
        assert!(each <= 16.0, "{each:.1} KiB an idle socket");
        drop(sockets);
    });
}

/// What a socket that was sent large frames costs once it is idle again: no buffer of their size stays behind.
#[test]
fn a_large_frame_that_was_read_leaves_no_buffer_behind() {
    const SOCKETS: usize = 200;
    const MESSAGES: usize = 50;
    within(USUAL, async {
        let fleet = Fleet::small(1, &[]).await;
        let rest = fleet.rest(0);
        prepare(&rest).await;
        send(&rest, MESSAGES, &"x".repeat(3_000)).await;
        let (gateway, pid) = (fleet.gateways[0].addr("gateway"), fleet.gateways[0].pid());
        let read = json!({"op": "subscribe", "sub": "r", "mode": "reader", "topic": "t", "from": "earliest",
                          "credit": MESSAGES});
        let mut sockets = Vec::with_capacity(SOCKETS);
        let mut before = 0;
        for number in 0..SOCKETS + 10 {
            if number == 10 {
                // What is paid once is paid.
                before = resident(pid);
            }
            let (mut socket, _) = Socket::open(gateway).await.unwrap();
            assert_eq!(socket.ask(1, read.clone()).await.unwrap()["op"], "ok");
            let mut got = 0;
            while got < MESSAGES {
                got += socket.messages(Duration::from_secs(5)).await.unwrap().len();
            }
            sockets.push(socket);
        }
        let each = resident(pid).saturating_sub(before) as f64 / SOCKETS as f64;
        println!("{each:.1} KiB a socket that read 150 KB");
        assert!(each <= 64.0, "{each:.1} KiB a socket");
    });
}
