//! A WebSocket client for tests: one JSON frame at a time, close codes as values.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// Longer than anything a test expects to happen.
pub(crate) const LONG: Duration = Duration::from_secs(15);

/// One socket.
pub(crate) struct Socket {
    pub(crate) stream: WebSocketStream<TcpStream>,
    kept: VecDeque<Value>,
}

/// What a socket gave within a time.
#[derive(Debug, PartialEq)]
pub(crate) enum Got {
    Frame(Value),
    /// Close code, 1006 where there was none.
    Closed(u16),
    Nothing,
}

/// Opens a socket with these headers; the HTTP status where it is refused.
pub(crate) async fn connect(gateway: SocketAddr, headers: &[(&str, &str)]) -> Result<Socket, u16> {
    let mut request = format!("ws://{gateway}/v1/ws")
        .into_client_request()
        .unwrap();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request
            .headers_mut()
            .append(name, HeaderValue::from_str(value).unwrap());
    }
    let tcp = TcpStream::connect(gateway).await.unwrap();
    match client_async(request, tcp).await {
        Ok((stream, _)) => Ok(Socket {
            stream,
            kept: VecDeque::new(),
        }),
        Err(Error::Http(answer)) => Err(answer.status().as_u16()),
        Err(other) => panic!("handshake: {other}"),
    }
}

/// Opens a socket and takes its `welcome`.
pub(crate) async fn open(gateway: SocketAddr) -> Socket {
    let mut socket = connect(gateway, &[("sec-websocket-protocol", "mq.v1.json")])
        .await
        .unwrap();
    let welcome = socket.frame().await;
    assert_eq!(welcome["op"], "welcome");
    socket
}

impl Socket {
    pub(crate) async fn say(&mut self, frame: Value) {
        self.raw(frame.to_string()).await;
    }

    pub(crate) async fn raw(&mut self, text: impl Into<String>) {
        // A socket the gateway has closed meanwhile is noticed by the next read.
        drop(self.stream.send(Message::text(text.into())).await);
    }

    /// The next thing that is no heartbeat, within `limit`.
    pub(crate) async fn next(&mut self, limit: Duration) -> Got {
        if let Some(frame) = self.kept.pop_front() {
            return Got::Frame(frame);
        }
        let end = tokio::time::Instant::now() + limit;
        loop {
            let Ok(read) = tokio::time::timeout_at(end, self.stream.next()).await else {
                return Got::Nothing;
            };
            match read {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).unwrap();
                    if frame["op"] != "ping" {
                        return Got::Frame(frame);
                    }
                }
                Some(Ok(Message::Close(Some(frame)))) => return Got::Closed(frame.code.into()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Got::Closed(1006),
            }
        }
    }

    /// The next text frame as it came.
    pub(crate) async fn text(&mut self) -> String {
        loop {
            match self.stream.next().await.unwrap().unwrap() {
                Message::Text(text) if !text.contains("\"op\":\"ping\"") => {
                    return text.to_string();
                }
                Message::Close(frame) => panic!("closed: {frame:?}"),
                _ => {}
            }
        }
    }

    /// The next frame.
    pub(crate) async fn frame(&mut self) -> Value {
        match self.next(LONG).await {
            Got::Frame(frame) => frame,
            other => panic!("instead of a frame: {other:?}"),
        }
    }

    /// The close code, frames before it left out.
    pub(crate) async fn closed(&mut self) -> u16 {
        loop {
            match self.next(LONG).await {
                Got::Frame(_) => {}
                Got::Closed(code) => return code,
                Got::Nothing => panic!("the socket is still open"),
            }
        }
    }

    /// Sends a request and returns the answer with its id; other frames are kept.
    pub(crate) async fn ask(&mut self, id: u32, mut frame: Value) -> Value {
        frame["id"] = json!(id);
        self.say(frame).await;
        self.answer(id).await
    }

    /// The answer with this id; other frames are kept.
    pub(crate) async fn answer(&mut self, id: u32) -> Value {
        let mut kept = VecDeque::new();
        loop {
            let frame = self.frame().await;
            if frame["id"] == json!(id) {
                kept.append(&mut self.kept);
                self.kept = kept;
                return frame;
            }
            kept.push_back(frame);
        }
    }

    /// Messages until `count` came, or none for `quiet`.
    pub(crate) async fn messages(&mut self, count: usize, quiet: Duration) -> Vec<Value> {
        let mut messages = Vec::new();
        while messages.len() < count {
            match self.next(quiet).await {
                Got::Frame(frame) if frame["op"] == "messages" => {
                    messages.extend(frame["items"].as_array().unwrap().iter().cloned())
                }
                Got::Frame(frame) => panic!("instead of messages: {frame}"),
                Got::Closed(code) => panic!("closed with {code}"),
                Got::Nothing => break,
            }
        }
        messages
    }

    /// Closes as a browser does and waits for the end.
    pub(crate) async fn close(mut self) {
        drop(self.stream.close(None).await);
        while let Some(Ok(_)) = self.stream.next().await {}
    }

    /// Ends the connection with a TCP reset.
    pub(crate) fn reset(self) {
        let tcp = self.stream.into_inner();
        tcp.set_zero_linger().unwrap();
        drop(tcp);
    }
}
