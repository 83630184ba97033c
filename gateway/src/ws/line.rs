//! The connection under a socket. A text is written from where it lies: the library would copy it to a buffer of its own
//! first, and keep that as large as the largest text for as long as the socket lives.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

/// First byte of a text frame that is a whole message (RFC 6455, 5.2).
const TEXT: u8 = 0x81;

/// A text on its way out with its header.
#[derive(Debug)]
struct Frame {
    head: Vec<u8>,
    text: Utf8Bytes,
    written: usize,
}

impl Frame {
    fn new(text: Utf8Bytes) -> Self {
        let mut head = vec![TEXT];
        // 7 bits, 16 behind 126, or 64 behind 127.
        match (u8::try_from(text.len()), u16::try_from(text.len())) {
            (Ok(len @ 0..=125), _) => head.push(len),
            (_, Ok(len)) => {
                head.push(126);
                head.extend(len.to_be_bytes());
            }
            _ => {
                head.push(127);
                head.extend((text.len() as u64).to_be_bytes());
            }
        }
        Self {
            head,
            text,
            written: 0,
        }
    }

    /// What is left.
    fn rest(&self) -> [&[u8]; 2] {
        let text = self.text.as_bytes();
        let head = self.head.get(self.written..).unwrap_or_default();
        let behind = self.written.saturating_sub(self.head.len());
        [head, text.get(behind..).unwrap_or_default()]
    }
}

/// Bytes of a connection; the frame on its way goes before what the library writes.
#[derive(Debug)]
struct Line<S> {
    stream: S,
    frame: Option<Frame>,
}

impl<S: AsyncWrite + Unpin> Line<S> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(frame) = &mut self.frame {
            let rest = frame.rest();
            if rest.iter().all(|part| part.is_empty()) {
                self.frame = None;
                break;
            }
            let rest = rest.map(IoSlice::new);
            match ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => frame.written += written,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_frame(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_frame(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The server's end of a socket. It is ready for a message once the one before is written.
#[derive(Debug)]
pub(super) struct Socket<S> {
    inner: WebSocketStream<Line<S>>,
    /// The peer said goodbye.
    closed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    pub(super) async fn new(stream: S, config: WebSocketConfig) -> Self {
        let line = Line {
            stream,
            frame: None,
        };
        let inner = WebSocketStream::from_raw_socket(line, Role::Server, Some(config)).await;
        Self {
            inner,
            closed: false,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Sink<Message> for Socket<S> {
    type Error = Error;

    /// Nothing of the library is half written when a text begins.
    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, message: Message) -> Result<(), Error> {
        match message {
            Message::Text(_) if self.closed => Err(ProtocolError::SendAfterClosing.into()),
            Message::Text(text) => {
                self.inner.get_mut().frame = Some(Frame::new(text));
                Ok(())
            }
            other => Pin::new(&mut self.inner).start_send(other),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.inner).poll_close(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for Socket<S> {
    type Item = Result<Message, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(Pin::new(&mut self.inner).poll_next(cx));
        self.closed |= matches!(next, Some(Ok(Message::Close(_))));
        Poll::Ready(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{SinkExt, StreamExt};

    #[tokio::test]
    async fn texts_of_all_lengths_and_pongs_between_them_arrive_whole() {
        // A few bytes at a time.
        let (near, far) = tokio::io::duplex(7);
        let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        let lengths = [0, 1, 125, 126, 127, 65_535, 65_536, 70_000];
        let serve = async {
            let socket = Socket::new(near, WebSocketConfig::default()).await;
            let (mut sink, mut stream) = socket.split();
            let send = async {
                for len in lengths {
                    sink.send(Message::Text("x".repeat(len).into()))
                        .await
                        .unwrap();
                }
                sink
            };
            let hear = async {
                while !matches!(stream.next().await, Some(Ok(Message::Close(_))) | None) {}
                stream
            };
            let (mut sink, _stream) = tokio::join!(send, hear);
            sink.flush().await.ok();
            assert!(sink.send(Message::Text("late".into())).await.is_err());
        };
        let listen = async {
            let (mut texts, mut pongs) = (Vec::new(), 0);
            client.send(Message::Ping("p".into())).await.unwrap();
            while texts.len() < lengths.len() {
                match client.next().await.unwrap().unwrap() {
                    Message::Text(text) => {
                        texts.push(text.len());
                        client.send(Message::Ping("p".into())).await.unwrap();
                    }
                    Message::Pong(_) => pongs += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(texts, lengths);
            assert!(pongs > 0);
            client.close(None).await.unwrap();
            while client.next().await.is_some() {}
        };
        tokio::join!(serve, listen);
    }
}
