//! The right to answer one request, once, from any thread.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::sync::oneshot;
use wire::{Command, ResponseCode};

use crate::connection::Connection;
use crate::limits::Limits;

/// Answers one request. Dropped without an answer it sends code 1 "not answered"; for a one-way
/// request nothing is ever sent.
#[derive(Debug)]
pub struct Responder {
    conn: Arc<Connection>,
    opaque: i32,
    oneway: bool,
    answered: bool,
    captured: Option<oneshot::Sender<Command>>,
}

impl Responder {
    pub(crate) fn new(conn: Arc<Connection>, request: &Command) -> Self {
        let oneway = request.is_oneway();
        if !oneway {
            conn.count_request();
        }
        Self {
            conn,
            opaque: request.opaque,
            oneway,
            answered: false,
            captured: None,
        }
    }

    /// A responder without a socket, for tests of handlers: the answer arrives at the receiver.
    /// Its connection is closed from the start.
    #[must_use]
    pub fn capture() -> (Self, oneshot::Receiver<Command>) {
        let (send, answer) = oneshot::channel();
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let conn = Connection::new(nowhere, nowhere, Limits::default());
        conn.count_request();
        conn.finish();
        (
            Self {
                conn: Arc::new(conn),
                opaque: 0,
                oneway: false,
                answered: false,
                captured: Some(send),
            },
            answer,
        )
    }

    /// The connection the request came on.
    #[must_use]
    pub fn conn(&self) -> &Arc<Connection> {
        &self.conn
    }

    /// Whether the peer wants no answer.
    #[must_use]
    pub fn is_oneway(&self) -> bool {
        self.oneway
    }

    /// The request's correlation id on its connection.
    #[must_use]
    pub fn opaque(&self) -> i32 {
        self.opaque
    }

    /// Sends the answer; its opaque and response flag are set here. Never blocks; a peer that is
    /// gone is not an error.
    pub fn send(mut self, response: Command) {
        self.answer(response);
    }

    fn answer(&mut self, mut response: Command) {
        if self.answered || self.oneway {
            return;
        }
        self.answered = true;
        if let Some(captured) = self.captured.take() {
            response.opaque = self.opaque;
            captured.send(response).ok();
        } else {
            self.conn.respond(response, self.opaque);
            self.conn.count_answer();
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered && !self.oneway {
            self.answer(Command::response(ResponseCode::SystemError).with_remark("not answered"));
        }
    }
}
