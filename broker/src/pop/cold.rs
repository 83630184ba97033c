//! Pops that may have to wait for the disk leave the tokio workers: a bounded number at work, a bounded number in line.

use std::sync::Arc;

use crate::broker::Broker;

use super::answer;
use super::waiting::{Form, Waiting};

/// Runs `work` for a request on a blocking thread. What finds too many in line, or waits too long, is told that the
/// broker is busy.
pub(super) fn offload(
    broker: &Arc<Broker>,
    waiting: Waiting,
    work: impl FnOnce(&Arc<Broker>, Waiting) + Send + 'static,
) {
    let owner = broker.clone();
    broker
        .admission
        .read
        .run(broker, 0, move |admitted| match admitted {
            Ok(()) => {
                owner.metrics.cold_reads.inc();
                work(&owner, waiting);
            }
            Err(error) if waiting.form == Form::Notify => waiting.to.send(error.to_response()),
            Err(error) => answer::refused(waiting, &error),
        });
}
