//! Server and client over real sockets: pipelining, bounds, goodbyes, and what hostile peers get.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use remoting::{
    Client, ClientOptions, Connection, ErrorKind, Limits, Responder, Server, ServerOptions, Service,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use wire::{Command, RequestCode, ResponseCode};

const ECHO: i32 = 1;
const HOLD: i32 = 2;
const FORGET: i32 = 3;
const PANIC: i32 = 4;
const FROM_THREAD: i32 = 5;
const WAIT: Duration = Duration::from_secs(10);

/// Answers by request code; keeps what it was told to hold.
#[derive(Default)]
struct Demo {
    held: Mutex<Vec<Responder>>,
    calls: AtomicUsize,
    opened: AtomicUsize,
    closed: AtomicUsize,
}

impl Service for Demo {
    fn call(&self, cmd: Command, to: Responder) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match cmd.code {
            ECHO => to.send(Command::response(ResponseCode::Success).with_body(cmd.body)),
            HOLD => self.held.lock().push(to),
            FORGET => drop(to),
            PANIC => panic!("as asked"),
            FROM_THREAD => {
                std::thread::spawn(move || {
                    to.send(Command::response(ResponseCode::Success).with_body(cmd.body))
                });
            }
            other => to.send(
                Command::response(ResponseCode::RequestCodeNotSupported)
                    .with_remark(other.to_string()),
            ),
        }
    }

    fn opened(&self, _conn: &Arc<Connection>) {
        self.opened.fetch_add(1, Ordering::SeqCst);
    }

    fn closed(&self, _conn: &Arc<Connection>) {
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn request(code: i32) -> Command {
    Command::request(RequestCode::from_code(code))
}

fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn start_with(change: impl FnOnce(&mut ServerOptions)) -> (Server, Arc<Demo>, String) {
    let mut options = ServerOptions::new(any_port());
    change(&mut options);
    let demo = Arc::new(Demo::default());
    let server = Server::bind(options, Arc::clone(&demo) as Arc<dyn Service>).unwrap();
    let addr = server.local_addr().to_string();
    (server, demo, addr)
}

fn start() -> (Server, Arc<Demo>, String) {
    start_with(|_| ())
}

/// Waits for a condition that another task brings about.
async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..1000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

/// True when the peer closes within the time, whatever it sends first.
async fn closes(stream: &mut TcpStream, within: Duration) -> bool {
    let mut scrap = [0; 4096];
    tokio::time::timeout(within, async {
        while matches!(stream.read(&mut scrap).await, Ok(1..)) {}
    })
    .await
    .is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_in_flight_get_their_own_answers() {
    let (_server, _, addr) = start();
    let client = Client::new(ClientOptions::default());
    let mut tasks = Vec::new();
    for n in 0..400_usize {
        let (client, addr) = (client.clone(), addr.clone());
        tasks.push(tokio::spawn(async move {
            // Small ones are copied next to their header, large ones are written from where they are.
            let body = vec![(n % 251) as u8; n * 97];
            let code = if n % 3 == 0 { FROM_THREAD } else { ECHO };
            let answer = client
                .invoke(&addr, request(code).with_body(body.clone()), WAIT)
                .await
                .unwrap();
            assert_eq!(answer.response_code(), ResponseCode::Success);
            assert_eq!(answer.body.to_bytes(), body);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_is_not_answered_gets_code_1() {
    let (_server, _, addr) = start();
    let client = Client::new(ClientOptions::default());
    for code in [FORGET, PANIC] {
        let answer = client.invoke(&addr, request(code), WAIT).await.unwrap();
        assert_eq!(answer.response_code(), ResponseCode::SystemError);
        assert_eq!(answer.remark.as_deref(), Some("not answered"));
    }
    let answer = client.invoke(&addr, request(ECHO), WAIT).await.unwrap();
    assert_eq!(answer.response_code(), ResponseCode::Success);
}

#[tokio::test]
async fn a_oneway_request_is_never_answered() {
    let (_server, demo, addr) = start();
    let client = Client::new(ClientOptions::default());
    for code in [ECHO, FORGET, 77] {
        client.oneway(&addr, request(code), WAIT).await.unwrap();
    }
    let conn = client.connection(&addr, WAIT).await.unwrap();
    let mut raw = TcpStream::connect(&addr).await.unwrap();
    let mut frame = bytes::BytesMut::new();
    wire::frame::encode(&Command::oneway(RequestCode::from_code(ECHO)), &mut frame);
    raw.write_all(&frame).await.unwrap();
    until("four calls", || demo.calls.load(Ordering::SeqCst) == 4).await;
    let mut byte = [0; 1];
    assert!(
        tokio::time::timeout(Duration::from_millis(50), raw.read(&mut byte))
            .await
            .is_err()
    );
    assert!(!conn.is_closed());
}

#[tokio::test]
async fn bytes_that_are_no_frame_close_the_connection() {
    let (_server, demo, addr) = start();
    for junk in [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".as_slice(),
        &[0xff; 64],
        &[0, 0, 0, 8, 0, 0, 0, 200, 1, 2, 3, 4],
        &[0, 0, 0, 6, 0, 0, 0, 2, b'{', b'x'],
        &[0, 0, 0, 6, 9, 0, 0, 2, b'{', b'}'],
    ] {
        let mut raw = TcpStream::connect(&addr).await.unwrap();
        raw.write_all(junk).await.unwrap();
        assert!(closes(&mut raw, WAIT).await, "{junk:?}");
    }
    assert_eq!(demo.calls.load(Ordering::SeqCst), 0);
    until("all closed", || demo.closed.load(Ordering::SeqCst) == 5).await;
    assert_eq!(demo.opened.load(Ordering::SeqCst), 5);
}

#[tokio::test]
async fn dripping_and_idle_connections_are_closed() {
    let limits = Limits {
        frame: Duration::from_millis(200),
        idle: Duration::from_millis(600),
        ..Limits::default()
    };
    let (_server, _, addr) = start_with(|options| options.limits = limits);
    let mut dripping = TcpStream::connect(&addr).await.unwrap();
    let (mut reading, mut writing) = dripping.split();
    let drip = async {
        // A frame of 1,000 bytes, one byte every 20 ms.
        for byte in [0, 0, 3, 232]
            .into_iter()
            .chain(std::iter::repeat_n(0, 996))
        {
            if writing.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut byte = [0; 1];
    tokio::select! {
        () = drip => panic!("a dripping frame was read to its end"),
        end = reading.read(&mut byte) => assert!(!matches!(end, Ok(1..))),
    }
    let mut idle = TcpStream::connect(&addr).await.unwrap();
    assert!(closes(&mut idle, WAIT).await);
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_closed_and_costs_bounded_memory() {
    let limits = Limits {
        outbound_max_bytes: 1 << 20,
        outbound_pause_bytes: 1 << 18,
        write_stall: Duration::from_millis(300),
        ..Limits::default()
    };
    let (server, demo, addr) = start_with(|options| options.limits = limits);
    let mut deaf = TcpStream::connect(&addr).await.unwrap();
    let mut frame = bytes::BytesMut::new();
    wire::frame::encode(&request(ECHO).with_body(vec![7; 60_000]), &mut frame);
    let flood = async { while deaf.write_all(&frame).await.is_ok() {} };
    assert!(
        tokio::time::timeout(WAIT, flood).await.is_ok(),
        "the server kept reading"
    );
    until("closed", || demo.closed.load(Ordering::SeqCst) == 1).await;

    // Pushes to a deaf peer meet the bound at once.
    let deaf = TcpStream::connect(&addr).await.unwrap();
    until("accepted", || server.connections() == 1).await;
    let conn = server.each_connection().pop().unwrap();
    let push = || conn.send_oneway(request(40).with_body(vec![1; 200_000]));
    let refused = (0..1000).find_map(|_| push().err());
    assert!(refused.is_some() && conn.is_closed());
    drop(deaf);
}

#[tokio::test]
async fn connections_over_the_bound_wait_until_one_ends() {
    let (_server, demo, addr) = start_with(|options| options.connections_max = 2);
    let (one, two) = (
        Client::new(ClientOptions::default()),
        Client::new(ClientOptions::default()),
    );
    for client in [&one, &two] {
        client.invoke(&addr, request(ECHO), WAIT).await.unwrap();
    }
    let three = Client::new(ClientOptions::default());
    let late = three
        .invoke(&addr, request(ECHO), Duration::from_millis(100))
        .await
        .unwrap_err();
    assert_eq!(late.kind, ErrorKind::Timeout);
    assert_eq!(demo.opened.load(Ordering::SeqCst), 2);
    one.disconnect(&addr);
    three.invoke(&addr, request(ECHO), WAIT).await.unwrap();
}

#[tokio::test]
async fn errors_tell_whether_the_request_may_have_been_seen() {
    let (server, demo, addr) = start();
    let client = Client::new(ClientOptions::default());
    let error = client
        .invoke(&addr, request(HOLD), Duration::from_millis(50))
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.written, error.retryable()),
        (ErrorKind::Timeout, true, false)
    );
    assert_eq!(error.peer, addr);

    let waiting = {
        let (client, addr) = (client.clone(), addr.clone());
        tokio::spawn(async move { client.invoke(&addr, request(HOLD), WAIT).await })
    };
    until("held", || demo.held.lock().len() == 2).await;
    drop(server);
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.written), (ErrorKind::Closed, true));

    let error = client.invoke(&addr, request(ECHO), WAIT).await.unwrap_err();
    assert_eq!(
        (error.kind, error.written, error.retryable()),
        (ErrorKind::Connect, false, true)
    );
}

#[tokio::test]
async fn a_request_that_timed_out_unsent_is_never_sent_later() {
    // The peer accepts and never reads; a large first request fills every buffer on the way.
    let listener = tokio::net::TcpListener::bind(any_port()).await.unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    let client = Client::new(ClientOptions::default());
    let big = {
        let (client, addr) = (client.clone(), addr.clone());
        tokio::spawn(async move {
            client
                .invoke(&addr, request(ECHO).with_body(vec![0; 12_000_000]), WAIT)
                .await
        })
    };
    let (_peer, _) = listener.accept().await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let error = client
        .invoke(&addr, request(ECHO), Duration::from_millis(100))
        .await
        .unwrap_err();
    assert_eq!((error.kind, error.written), (ErrorKind::Timeout, false));
    let error = big.await.unwrap().unwrap_err();
    assert_eq!((error.kind, error.written), (ErrorKind::Closed, true));
}

#[tokio::test]
async fn too_much_in_flight_and_too_large_are_refused_unsent() {
    let (_server, _, addr) = start();
    let mut options = ClientOptions::default();
    options.limits.in_flight_max = 1;
    let client = Client::new(options);
    let conn = client.connection(&addr, WAIT).await.unwrap();
    let first = conn.invoke(request(HOLD), WAIT);
    let second = async {
        tokio::task::yield_now().await;
        conn.invoke(request(ECHO), WAIT).await.unwrap_err()
    };
    tokio::select! {
        _ = first => panic!("answered"),
        error = second => assert_eq!((error.kind, error.written), (ErrorKind::Refused, false)),
    }
    let error = client
        .invoke(&addr, request(ECHO).with_body(vec![0; 17 << 20]), WAIT)
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind, error.retryable()),
        (ErrorKind::TooLarge, false)
    );
    assert!(client.invoke(&addr, request(ECHO), WAIT).await.is_ok());
}

#[tokio::test]
async fn the_server_calls_the_client_on_its_connection() {
    let (server, _, addr) = start();
    let client = Client::new(ClientOptions::default());
    let pushed = Arc::new(Demo::default());
    client.set_request_handler(Arc::clone(&pushed) as Arc<dyn Service>);
    client.invoke(&addr, request(ECHO), WAIT).await.unwrap();
    let conn = server.each_connection().pop().unwrap();
    conn.send_oneway(request(40)).unwrap();
    let answer = conn
        .invoke(request(ECHO).with_body("there"), WAIT)
        .await
        .unwrap();
    assert_eq!(answer.body.to_bytes(), "there");
    assert_eq!(pushed.calls.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn shutdown_finishes_what_is_in_flight_and_sends_newer_peers_away() {
    let (server, demo, addr) = start();
    let client = Client::new(ClientOptions::default());
    let conn = client.connection(&addr, WAIT).await.unwrap();
    let held = {
        let conn = Arc::clone(&conn);
        tokio::spawn(async move { conn.invoke(request(HOLD), WAIT).await })
    };
    until("held", || demo.held.lock().len() == 1).await;
    let stopping = tokio::spawn(async move { server.shutdown(WAIT).await });
    until("not accepting", || {
        std::net::TcpStream::connect(&addr).is_err()
    })
    .await;

    let mut newer = request(ECHO);
    newer.version = 476;
    assert_eq!(
        conn.invoke(newer, WAIT).await.unwrap().response_code(),
        ResponseCode::GoAway
    );
    let mut older = request(ECHO);
    older.version = 475;
    assert_eq!(
        conn.invoke(older, WAIT).await.unwrap().response_code(),
        ResponseCode::Success
    );

    let responder = demo.held.lock().pop().unwrap();
    responder.send(Command::response(ResponseCode::Success));
    assert_eq!(
        held.await.unwrap().unwrap().response_code(),
        ResponseCode::Success
    );
    stopping.await.unwrap();
    until("ended", || conn.is_closed()).await;
    assert_eq!(demo.closed.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn shutdown_cuts_what_never_ends() {
    let (server, demo, addr) = start();
    let client = Client::new(ClientOptions::default());
    let held = tokio::spawn(async move { client.invoke(&addr, request(HOLD), WAIT).await });
    until("held", || demo.held.lock().len() == 1).await;
    server.shutdown(Duration::from_millis(100)).await;
    assert_eq!(held.await.unwrap().unwrap_err().kind, ErrorKind::Closed);
}

#[tokio::test]
async fn large_frames_that_never_end_share_a_budget() {
    let limits = Limits {
        partial_max_bytes: 2_500_000,
        ..Limits::default()
    };
    let (_server, demo, addr) = start_with(|options| options.limits = limits);
    let mut whole = bytes::BytesMut::new();
    wire::frame::encode(&request(ECHO).with_body(vec![0; 1_000_000]), &mut whole);
    let mut halves = Vec::new();
    for _ in 0..3 {
        let mut peer = TcpStream::connect(&addr).await.unwrap();
        peer.write_all(&whole[..600_000]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        halves.push(peer);
    }
    until("the third closed", || {
        demo.closed.load(Ordering::SeqCst) == 1
    })
    .await;
    // The first goes on, and gives its share back.
    let (_, rest) = whole.split_at(600_000);
    halves[0].write_all(rest).await.unwrap();
    until("one call", || demo.calls.load(Ordering::SeqCst) == 1).await;
    let client = Client::new(ClientOptions::default());
    let body = vec![1; 1_000_000];
    client
        .invoke(&addr, request(ECHO).with_body(body), WAIT)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_short_deadline_leaves_a_healthy_connection_open() {
    let (_server, demo, addr) = start();
    let client = Client::new(ClientOptions::default());
    let conn = client.connection(&addr, WAIT).await.unwrap();
    let error = conn
        .invoke(request(HOLD), Duration::ZERO)
        .await
        .unwrap_err();
    assert_eq!((error.kind, error.written), (ErrorKind::Timeout, true));
    until("held", || demo.held.lock().len() == 1).await;
    assert!(!conn.is_closed());
    conn.invoke(request(ECHO), WAIT).await.unwrap();
}
