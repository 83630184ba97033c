//! A WebSocket client of the protocol `mq.v1.json`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;

use crate::narrow::narrow;

/// An open socket. Frames that were read while something else was awaited are kept.
#[derive(Debug)]
pub struct Socket {
    stream: WebSocketStream<TcpStream>,
    kept: VecDeque<Value>,
}

impl Socket {
    /// Connects, checks the selected subprotocol and awaits `welcome`.
    pub async fn open(gateway: SocketAddr) -> Result<(Socket, Value)> {
        Self::over(TcpStream::connect(gateway).await?).await
    }

    /// As [`Socket::open`], over a connection on which one that does not read is noticed soon.
    pub async fn open_narrow(gateway: SocketAddr) -> Result<(Socket, Value)> {
        Self::over(narrow(gateway).await?).await
    }

    async fn over(tcp: TcpStream) -> Result<(Socket, Value)> {
        let mut request = format!("ws://{}/v1/ws", tcp.peer_addr()?).into_client_request()?;
        request.headers_mut().insert(
            "sec-websocket-protocol",
            HeaderValue::from_static("mq.v1.json"),
        );
        let (stream, answer) = tokio_tungstenite::client_async(request, tcp).await?;
        let selected = answer
            .headers()
            .get("sec-websocket-protocol")
            .and_then(|value| value.to_str().ok());
        if selected != Some("mq.v1.json") {
            bail!("selected {selected:?}");
        }
        let mut socket = Socket {
            stream,
            kept: VecDeque::new(),
        };
        let welcome = socket
            .next(Duration::from_secs(5))
            .await?
            .context("no welcome")?;
        if welcome["op"] != "welcome" {
            bail!("first frame is {welcome}");
        }
        Ok((socket, welcome))
    }

    pub async fn send(&mut self, frame: &Value) -> Result<()> {
        self.stream.send(Message::text(frame.to_string())).await?;
        Ok(())
    }

    /// Sends text that need not be a frame.
    pub async fn send_text(&mut self, text: &str) -> Result<()> {
        self.stream.send(Message::text(text)).await?;
        Ok(())
    }

    /// The next frame that is no `ping`, or none within `limit`. Protocol pings are answered by the library.
    pub async fn next(&mut self, limit: Duration) -> Result<Option<Value>> {
        if let Some(frame) = self.kept.pop_front() {
            return Ok(Some(frame));
        }
        self.read(limit).await
    }

    async fn read(&mut self, limit: Duration) -> Result<Option<Value>> {
        let end = Instant::now() + limit;
        loop {
            let Ok(read) = tokio::time::timeout_at(end, self.stream.next()).await else {
                return Ok(None);
            };
            match read.context("socket ended")?? {
                Message::Text(text) => {
                    let mut frames = text.as_str().split('\n').map(serde_json::from_str::<Value>);
                    let first = frames.next().context("empty frame")??;
                    for frame in frames {
                        self.kept.push_back(frame?);
                    }
                    if first["op"] != "ping" {
                        return Ok(Some(first));
                    }
                    if let Some(frame) = self.kept.pop_front() {
                        return Ok(Some(frame));
                    }
                }
                Message::Close(why) => bail!("closed: {why:?}"),
                _ => {}
            }
        }
    }

    /// Sends a request with an `id` and returns its `ok` or `error`; pushes that come before it are kept.
    pub async fn ask(&mut self, id: u32, mut frame: Value) -> Result<Value> {
        frame["id"] = json!(id);
        self.send(&frame).await?;
        let mut pushes = VecDeque::new();
        let end = Instant::now() + Duration::from_secs(15);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let frame = self
                .read_or_kept(left)
                .await?
                .with_context(|| format!("no answer to {id}"))?;
            if frame["id"] == json!(id) {
                pushes.append(&mut self.kept);
                self.kept = pushes;
                return Ok(frame);
            }
            pushes.push_back(frame);
        }
    }

    async fn read_or_kept(&mut self, limit: Duration) -> Result<Option<Value>> {
        match self.kept.pop_front() {
            Some(frame) => Ok(Some(frame)),
            None => self.read(limit).await,
        }
    }

    /// Subscribes a group with the given credit; panics on an error frame are left to the caller.
    pub async fn subscribe(&mut self, group: &str, topic: &str, credit: u32) -> Result<Value> {
        self.ask(
            1,
            json!({"op": "subscribe", "sub": "s", "mode": "group", "group": group, "topic": topic, "credit": credit}),
        )
        .await
    }

    /// Messages of the next `messages` frame; none within `limit` is an empty list.
    pub async fn messages(&mut self, limit: Duration) -> Result<Vec<Value>> {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.next(left).await? {
                None => return Ok(Vec::new()),
                Some(frame) if frame["op"] == "messages" => {
                    return Ok(frame["items"].as_array().cloned().unwrap_or_default());
                }
                Some(_) => {}
            }
        }
    }

    /// Closes as a browser does.
    pub async fn close(mut self) {
        let _sent = self.stream.close(None).await;
    }

    /// The close code and reason, frames before it left out; 1006 where the connection just ends.
    pub async fn closed(&mut self, limit: Duration) -> Result<(u16, String)> {
        self.kept.clear();
        let end = Instant::now() + limit;
        loop {
            let read = tokio::time::timeout_at(end, self.stream.next())
                .await
                .context("the socket is still open")?;
            match read {
                Some(Ok(Message::Close(Some(why)))) => {
                    return Ok((why.code.into(), why.reason.to_string()));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Ok((1006, String::new())),
            }
        }
    }

    /// Ends the connection with a TCP reset.
    pub fn reset(self) -> Result<()> {
        self.stream.into_inner().set_zero_linger()?;
        Ok(())
    }
}
