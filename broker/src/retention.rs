//! Deletes the oldest log files: by age, and when the disk gets full.
//!
//! ```text
//! every retention.check_interval
//!   age     a whole log file whose newest record is older than retention.time goes, at retention.hour if one
//!           is set, or at any hour once the disk is retention.expired_percent full
//!   forced  at retention.clean_percent the oldest files go whatever their age, until it is less; not if all
//!           that may go would not help, since then it is not the log that fills the disk
//!   refuse  at retention.refuse_percent sends are refused; they are taken again as soon as it is less
//! ```
//! The percentages count only while less than retention.spare is free: a large disk is not full at 90 percent.
//! Before a file goes, what must outlive it is put again at the end of the log (`carry`). Age is measured on
//! the time that leases run on: a wall clock that jumps forward deletes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use store::disk::DiskUsage;
use store::{Cleaned, PhysicalOffset};

use crate::broker::Broker;
use crate::error::BrokerError;
use crate::settings::Key;

/// Log files deleted in one round at most (RocketMQ 5.4.0 `deleteFileBatchMax`).
const FILES_MAX: usize = 10;
/// `retention.hour` that stands for any.
pub(crate) const ANY_HOUR: u64 = 24;
/// Longest wait of a requested round for one that is under way.
const ROUND_WAIT: Duration = Duration::from_secs(1);
/// Milliseconds of an hour.
const HOUR_MS: u64 = 3_600_000;

/// State and numbers of the retention.
#[derive(Debug, Default)]
pub(crate) struct Retention {
    /// Held for a round: what is put again for one must not be put again for another.
    alone: Mutex<()>,
    /// The disk is so full that sends are refused.
    refusing: AtomicBool,
    /// It has been said that no deletion can help.
    helpless: AtomicBool,
    files: Counter,
    bytes: Counter,
    forced: Counter,
    failures: Counter,
    used_percent: Gauge<f64, AtomicU64>,
}

impl Retention {
    /// Registers the numbers.
    pub(crate) fn register(&self, registry: &mut Registry) {
        let counters = [
            ("retention_files", "Log files deleted", &self.files),
            ("retention_bytes", "Bytes of deleted log files", &self.bytes),
            (
                "retention_forced_files",
                "Log files deleted before their time since the disk is full",
                &self.forced,
            ),
            (
                "retention_failures",
                "Deletions that failed and are tried again",
                &self.failures,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        registry.register(
            "disk_used_percent",
            "How full the disk of the data directory is",
            self.used_percent.clone(),
        );
    }

    /// Whether the disk is too full for sends.
    pub(crate) fn refuses(&self) -> bool {
        self.refusing.load(Ordering::Acquire)
    }
}

/// Looks at age and disk until the broker stops.
pub(crate) async fn run(broker: Arc<Broker>) {
    loop {
        let wait = Duration::from_millis(broker.config.retention.check_interval.0);
        tokio::select! {
            () = broker.stopping.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        let owner = broker.clone();
        let round = tokio::task::spawn_blocking(move || {
            if let Err(error) = step(&owner) {
                owner.retention.failures.inc();
                tracing::error!(%error, "old log files are not deleted, tried again at the next round");
            }
        });
        if round.await.is_err() {
            tracing::error!("a round of the retention panicked");
        }
    }
}

/// One round. Blocks on the disk.
///
/// # Errors
/// The store's; what is not deleted now is the next time.
pub(crate) fn step(broker: &Arc<Broker>) -> Result<(), BrokerError> {
    let _alone = broker.retention.alone.lock();
    let used = look(broker)?;
    by_age(broker, used)?;
    if used >= percent(broker, Key::CleanPercent) {
        forced(broker)?;
        look(broker)?;
    }
    Ok(())
}

fn percent(broker: &Broker, key: Key) -> f64 {
    broker.live.count(key) as f64
}

/// Percent that counts: none while enough is free.
fn fullness(broker: &Broker, usage: DiskUsage) -> f64 {
    if usage.free_bytes >= broker.config.retention.spare.bytes() {
        return 0.0;
    }
    usage.ratio() * 100.0
}

/// Measures the disk and refuses sends, or takes them again.
fn look(broker: &Broker) -> Result<f64, BrokerError> {
    let usage = broker.store.disk_usage()?;
    let used = fullness(broker, usage);
    let retention = &broker.retention;
    retention.used_percent.set(usage.ratio() * 100.0);
    let refuse = used >= percent(broker, Key::RefusePercent);
    if retention.refusing.swap(refuse, Ordering::AcqRel) != refuse {
        if refuse {
            tracing::error!(
                used_percent = used,
                "the disk is full: sends are refused until there is space"
            );
        } else {
            tracing::info!(
                used_percent = used,
                "there is space on the disk again: sends are taken"
            );
        }
    }
    Ok(used)
}

fn by_age(broker: &Arc<Broker>, used: f64) -> Result<(), BrokerError> {
    let hour = broker.live.get(Key::RetentionHour);
    let is_hour = hour == ANY_HOUR || broker.now_ms() / HOUR_MS % 24 == hour;
    if !is_hour && used < percent(broker, Key::ExpiredPercent) {
        return Ok(());
    }
    older(broker)
}

/// Deletes log files older than the retention time, whatever the hour. Blocks on the disk.
///
/// # Errors
/// Busy where a round that is under way takes long; the store's. What is not deleted now is with the next round.
pub(crate) fn expired(broker: &Arc<Broker>) -> Result<(), BrokerError> {
    let alone = broker.retention.alone.try_lock_for(ROUND_WAIT);
    let _alone = alone.ok_or(BrokerError::Busy("old log files are being deleted already"))?;
    older(broker)
}

fn older(broker: &Arc<Broker>) -> Result<(), BrokerError> {
    let now_ms = broker.pop.now_ms(broker.clock.as_ref());
    let kept = i64::try_from(broker.live.get(Key::RetentionTime)).unwrap_or(i64::MAX);
    let before_ms = now_ms.saturating_sub(kept);
    if broker.store.roll_if_older(before_ms)? {
        tracing::info!("an idle log goes on in a new file, so that the old one can be deleted");
    }
    let cleaned = delete(broker, broker.store.expired(before_ms, FILES_MAX))?;
    if cleaned.files > 0 {
        tracing::info!(
            files = cleaned.files,
            bytes = cleaned.bytes,
            log_begins_at = cleaned.min_physical.get(),
            "log files deleted: older than the retention time"
        );
    }
    Ok(())
}

/// Deletes the oldest files until the disk is below the limit.
fn forced(broker: &Arc<Broker>) -> Result<(), BrokerError> {
    let limit = percent(broker, Key::CleanPercent);
    for _ in 0..FILES_MAX {
        let usage = broker.store.disk_usage()?;
        let used = fullness(broker, usage);
        let segments = broker.store.segments();
        let Some(oldest) = segments.first().filter(|_| used >= limit) else {
            return Ok(());
        };
        let may_go = segments.last().map_or(0, |last| last.to.since(oldest.from));
        let least = used - may_go as f64 / usage.total_bytes.max(1) as f64 * 100.0;
        if least >= limit {
            if !broker.retention.helpless.swap(true, Ordering::Relaxed) {
                tracing::error!(
                    used_percent = used,
                    log_bytes = may_go,
                    "the disk is full of something else than the log: no log file is deleted for it"
                );
            }
            return Ok(());
        }
        broker.retention.helpless.store(false, Ordering::Relaxed);
        let cleaned = delete(broker, oldest.to)?;
        if cleaned.files == 0 {
            return Ok(());
        }
        broker.retention.forced.inc_by(cleaned.files);
        tracing::error!(
            used_percent = used,
            files = cleaned.files,
            log_begins_at = cleaned.min_physical.get(),
            "log files deleted before their time: the disk is full"
        );
    }
    Ok(())
}

/// Deletes the log files before `border`, after what must outlive them was put again.
fn delete(broker: &Arc<Broker>, border: PhysicalOffset) -> Result<Cleaned, BrokerError> {
    if border <= broker.store.min_physical() {
        return Ok(Cleaned::default());
    }
    let cleaned = crate::carry::delete_before(broker, border)?;
    broker.retention.files.inc_by(cleaned.files);
    broker.retention.bytes.inc_by(cleaned.bytes);
    Ok(cleaned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_broker::start;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_requested_round_does_not_wait_for_the_end_of_a_long_one() {
        let running = start().await;
        let owner = running.broker.clone();
        let long = owner.retention.alone.lock();
        let asked = running.broker.clone();
        let asked = std::thread::spawn(move || expired(&asked));
        let asked = asked.join().unwrap();
        drop(long);
        assert!(matches!(asked, Err(BrokerError::Busy(_))), "{asked:?}");
        expired(&running.broker).unwrap();
        drop(owner);
        running.stop().await.unwrap();
    }
}
