//! A session fed with what a client sent, for the fuzz targets; upstream answers every subscription with success.

use std::time::Duration;

use clock::Monotonic;

use super::action::{Action, Event, Opened};
use super::frame;
use super::session::{Session, Settings};

/// Objects handled of one text.
const OBJECTS_MAX: usize = 1_000;

/// Runs the objects of one text frame through a new session.
pub(crate) fn take_text(text: &str) {
    let settings = Settings {
        idle: Duration::from_secs(25),
        grace: Duration::from_secs(10),
        subscriptions: 8,
    };
    let now = Monotonic::ZERO;
    let mut session = Session::new(settings, now);
    for request in frame::requests(text).take(OBJECTS_MAX) {
        let event = match request {
            Ok(request) => Event::Request(request),
            Err(malformed) => Event::Malformed(malformed.0),
        };
        for action in session.handle(event, now, 0) {
            if let Action::Open { sub, .. } = action {
                let result = Ok(Opened::default());
                drop(session.handle(Event::Opened { sub, result }, now, 0));
            }
        }
    }
}
