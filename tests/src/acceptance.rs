//! What the acceptance checks share: two gateways on one Postgres before two brokers with sync flush, and a look at
//! problem documents.

use std::sync::Arc;

use serde_json::Value;

use crate::fleet::Fleet;
use crate::http::{Answer, Rest, text};

/// Both doors of the shared fleet.
#[derive(Debug)]
pub struct Bench {
    pub ga: Rest,
    pub gb: Rest,
    pub fleet: Arc<Fleet>,
}

impl Bench {
    /// The doors, once both are open.
    ///
    /// # Panics
    /// When a process does not start.
    pub async fn open() -> Bench {
        let fleet = match tokio::task::block_in_place(Fleet::shared) {
            Ok(fleet) => fleet,
            Err(cause) => panic!("no fleet: {cause:#}"),
        };
        fleet.ready().await;
        Bench {
            ga: fleet.rest(0),
            gb: fleet.rest(1),
            fleet,
        }
    }
}

/// The problem document of an answer, whole and with this status and code.
///
/// # Panics
/// When it is another answer.
#[track_caller]
pub fn problem(answer: &Answer, status: u16, code: &str) -> Value {
    let body = answer.json();
    assert_eq!(
        (answer.status, text(&body, "code")),
        (status, code),
        "{body}"
    );
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    assert_eq!(body["status"], status);
    assert!(
        !text(&body, "requestId").is_empty() && !text(&body, "detail").is_empty(),
        "{body}"
    );
    body
}
