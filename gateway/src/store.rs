//! The metadata store of a running gateway: opened at start, looked at every few seconds for new keys. What requests need
//! is in memory, so a store that is away stops none of them.

use crate::config::Config;
use crate::db::master_key::MasterKey;
use crate::db::{DatabaseUrl, Db, DbError, SecretsConfig};
use crate::gateway::RunError;
use crate::signing::KeyRing;
use crate::state::AppState;
use node::Context;
use std::sync::Arc;
use std::time::Duration;

/// A key that is put into the store is known to all gateways after so long.
const LOOK: Duration = Duration::from_secs(5);
/// The kind of keys used so far.
const KIND: &str = "receipt";

/// The store, and what was read from it.
pub(crate) struct Store {
    pub(crate) db: Db,
    pub(crate) ring: Arc<KeyRing>,
    master: MasterKey,
}

impl Store {
    /// Opens the store with its master key and reads or makes the signing keys. Ends early when a stop is requested.
    pub(crate) async fn open(config: &Config, context: &Context) -> Result<Self, RunError> {
        let now_ms = context.clock.now_ms();
        tokio::select! {
            opened = Self::open_now(config, now_ms) => opened,
            () = context.shutdown.requested() => Err(RunError::Stopped),
        }
    }

    async fn open_now(config: &Config, now_ms: u64) -> Result<Self, RunError> {
        let Some(secrets) = config.secrets() else {
            return Err(RunError::Config("master_key_file is needed".into()));
        };
        if secrets.file.is_none() {
            tracing::warn!(
                "insecure_plain_secrets: signing keys are stored in the clear; whoever reads the metadata store can forge \
                 receipts"
            );
        }
        let url = config.database();
        let read = Self::read(&url, config.database_wait.duration(), &secrets, now_ms);
        Ok(read.await.map_err(|error| error.of(&url))?)
    }

    async fn read(
        url: &DatabaseUrl,
        patience: Duration,
        secrets: &SecretsConfig,
        now_ms: u64,
    ) -> Result<Self, DbError> {
        let db = Db::open(url, patience).await?;
        let master = secrets.master_key(&db).await?;
        let keys = db.signing_keys(KIND, &master, now_ms).await?;
        Ok(Self {
            ring: Arc::new(KeyRing::new(&keys)),
            db,
            master,
        })
    }

    /// Reads the signing keys again and again until the gateway drains.
    pub(crate) async fn watch(self, state: AppState) {
        let mut every = tokio::time::interval(LOOK);
        let (mut away, mut unsigned) = (false, false);
        loop {
            tokio::select! {
                () = state.draining.cancelled() => return,
                _ = every.tick() => {}
            }
            let read = tokio::select! {
                () = state.draining.cancelled() => return,
                read = self.db.read_keys(KIND, &self.master) => read,
            };
            state.metrics.metadata_up(read.is_ok());
            match read {
                Ok(keys) => {
                    if std::mem::take(&mut away) {
                        tracing::info!("the metadata store answers again");
                    }
                    // a store that was emptied, or has no key that signs, takes no key away
                    if keys.iter().any(|key| key.signs) {
                        self.ring.replace(&keys);
                        unsigned = false;
                    } else if !std::mem::replace(&mut unsigned, true) {
                        tracing::warn!(
                            "the metadata store has no signing key in state 'active'; those in memory are used"
                        );
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut away, true) {
                        told(&error);
                    }
                }
            }
        }
    }
}

fn told(error: &DbError) {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "the metadata store cannot be read; serving goes on with what is in memory"
    );
}
