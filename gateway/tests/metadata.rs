//! The metadata store on SQLite and on a real Postgres: the same checks on both.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gantry_tests::postgres::Postgres;
use gateway::db::master_key::MasterKey;
use gateway::db::{DatabaseUrl, Db, DbError, SecretsConfig};

/// One empty store of a kind.
struct Store {
    url: DatabaseUrl,
    dir: tempfile::TempDir,
    server: Option<(Arc<Postgres>, String)>,
}

impl Store {
    async fn open(&self) -> Result<Db, DbError> {
        Db::open(&self.url, Duration::from_secs(10)).await
    }

    /// Runs SQL behind the gateway's back.
    async fn sql(&self, sql: &'static str) {
        match &self.server {
            Some((server, url)) => drop(server.run(url, sql).unwrap()),
            None => match self.open().await.unwrap() {
                Db::Lite(pool) => drop(sqlx::query(sql).execute(&pool).await.unwrap()),
                Db::Postgres(_) => panic!("not an SQLite store"),
            },
        }
    }
}

/// An empty store of each kind.
fn stores() -> Vec<Store> {
    let dir = tempfile::tempdir().unwrap();
    let mut stores = vec![Store {
        url: DatabaseUrl::sqlite(&dir.path().join("gateway.db")),
        dir,
        server: None,
    }];
    if let Some(server) = Postgres::shared().unwrap() {
        let url = server.database().unwrap();
        stores.push(Store {
            url: DatabaseUrl::from(url.as_str()),
            dir: tempfile::tempdir().unwrap(),
            server: Some((server, url)),
        });
    }
    stores
}

fn key(byte: u8) -> MasterKey {
    MasterKey::of(&[byte; 32]).unwrap()
}

#[tokio::test]
async fn keys_survive_a_restart_and_need_their_master_key() {
    for store in stores() {
        let db = store.open().await.unwrap();
        let first = db.signing_keys("receipt", &key(1), 1).await.unwrap();
        assert_eq!((first.len(), first[0].number, first[0].signs), (1, 1, true));
        db.close().await;
        let db = store.open().await.unwrap();
        assert_eq!(db.signing_keys("receipt", &key(1), 2).await.unwrap(), first);
        let other = db.signing_keys("ticket", &key(1), 2).await.unwrap();
        assert_ne!(other[0].secret, first[0].secret, "each kind has its own");
        for wrong in [key(2), MasterKey::none()] {
            let opened = db.signing_keys("receipt", &wrong, 3).await;
            assert!(
                matches!(opened, Err(DbError::WrongMasterKey { .. })),
                "{opened:?}"
            );
        }
        db.close().await;
    }
}

/// Many gateways that start at the same moment on an empty store: one schema, one key, no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gateways_that_start_at_once_share_one_key() {
    for store in stores() {
        let url = store.url.clone();
        let start = || {
            let url = url.clone();
            tokio::spawn(async move {
                let db = Db::open(&url, Duration::from_secs(10)).await.unwrap();
                let keys = db.signing_keys("receipt", &key(1), 1).await.unwrap();
                db.close().await;
                keys
            })
        };
        let started: Vec<_> = (0..8).map(|_| start()).collect();
        let mut all = Vec::new();
        for one in started {
            all.push(one.await.unwrap());
        }
        assert_eq!(all[0].len(), 1);
        assert!(all.iter().all(|keys| *keys == all[0]), "{:?}", store.url);
    }
}

/// A rotation by hand: a new key verifies before it signs, an old one verifies before it goes.
#[tokio::test]
async fn the_state_of_a_key_says_what_it_may_do() {
    for store in stores() {
        let db = store.open().await.unwrap();
        db.signing_keys("receipt", &key(1), 1).await.unwrap();
        let seen = async || {
            let keys = db.read_keys("receipt", &key(1)).await.unwrap();
            keys.iter().map(|k| (k.number, k.signs)).collect::<Vec<_>>()
        };
        assert_eq!(seen().await, [(1, true)]);
        store
            .sql("UPDATE signing_keys SET state = 'verify' WHERE kid = 'receipt:1'")
            .await;
        assert_eq!(seen().await, [(1, false)]);
        store
            .sql("UPDATE signing_keys SET state = 'retired' WHERE kid = 'receipt:1'")
            .await;
        assert_eq!(seen().await, []);
    }
}

/// The newest key is the one with the highest number, whatever the order of the texts.
#[tokio::test]
async fn keys_are_ordered_by_number() {
    for store in stores() {
        let db = store.open().await.unwrap();
        let plain = MasterKey::none();
        db.signing_keys("receipt", &plain, 1).await.unwrap();
        for copy in [
            "INSERT INTO signing_keys SELECT 'receipt:10', kind, key_enc, state, created_at FROM signing_keys WHERE kid = 'receipt:1'",
            "INSERT INTO signing_keys SELECT 'receipt:9', kind, key_enc, state, created_at FROM signing_keys WHERE kid = 'receipt:1'",
        ] {
            store.sql(copy).await;
        }
        let keys = db.signing_keys("receipt", &plain, 2).await.unwrap();
        let numbers: Vec<u64> = keys.iter().map(|k| k.number).collect();
        assert_eq!(numbers, [1, 9, 10]);
    }
}

/// A gateway that could sign nothing does not start: its receipts would settle nothing.
#[tokio::test]
async fn a_store_without_a_key_that_signs_is_refused() {
    for store in stores() {
        let db = store.open().await.unwrap();
        db.signing_keys("receipt", &key(1), 1).await.unwrap();
        for change in [
            "UPDATE signing_keys SET state = 'verify'",
            "UPDATE signing_keys SET state = 'retired'",
        ] {
            store.sql(change).await;
            let opened = db.signing_keys("receipt", &key(1), 2).await;
            assert!(opened.is_err(), "{change}: {opened:?}");
            assert!(opened.unwrap_err().to_string().contains("'active'"));
        }
    }
}

/// Sealed text moved to another row is of no use there.
#[tokio::test]
async fn a_sealed_key_opens_in_its_own_row_only() {
    for store in stores() {
        let db = store.open().await.unwrap();
        db.signing_keys("receipt", &key(1), 1).await.unwrap();
        store
            .sql("UPDATE signing_keys SET kid = 'receipt:2' WHERE kid = 'receipt:1'")
            .await;
        let opened = db.read_keys("receipt", &key(1)).await;
        assert!(
            matches!(&opened, Err(DbError::WrongMasterKey { row }) if row.contains("receipt:2")),
            "{opened:?}"
        );
    }
}

#[tokio::test]
async fn secrets_in_the_clear_are_refused_by_a_gateway_with_a_master_key() {
    for store in stores() {
        let db = store.open().await.unwrap();
        let plain = MasterKey::none();
        let keys = db.signing_keys("receipt", &plain, 1).await.unwrap();
        assert_eq!(db.read_keys("receipt", &plain).await.unwrap(), keys);
        let opened = db.read_keys("receipt", &key(1)).await;
        assert!(matches!(opened, Err(DbError::Plain { .. })), "{opened:?}");
    }
}

/// The master key file is made for an empty store only: with secrets in the store, a missing file is a lost file.
#[tokio::test]
async fn a_lost_master_key_is_not_replaced() {
    for store in stores() {
        let db = store.open().await.unwrap();
        let path = store.dir.path().join("master-key");
        let secrets = |file: &Path, create| SecretsConfig {
            file: Some(file.to_owned()),
            create,
        };
        let why = async |create| {
            let key = secrets(&path, create).master_key(&db).await;
            key.err().map(|e| e.to_string()).unwrap_or_default()
        };
        let missing = why(false).await;
        assert!(
            missing.contains("is missing") && missing.contains("head -c 32 /dev/urandom"),
            "{missing}"
        );
        let made = secrets(&path, true).master_key(&db).await.unwrap();
        db.signing_keys("receipt", &made, 1).await.unwrap();
        assert_eq!(why(false).await, "", "it is there now");
        std::fs::remove_file(&path).unwrap();
        let lost = why(true).await;
        assert!(lost.contains("put back the file"), "{lost}");
        assert!(!path.try_exists().unwrap());
    }
}

/// Migrations go forward only: an older gateway does not touch a store that a newer one has changed.
#[tokio::test]
async fn a_store_of_a_newer_version_is_refused() {
    for store in stores() {
        store.open().await.unwrap().close().await;
        let sql = match &store.server {
            Some(_) => {
                "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (9999, 'later', true, '\\x00', 1)"
            }
            None => {
                "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                 VALUES (9999, 'later', true, x'00', 1)"
            }
        };
        store.sql(sql).await;
        let opened = store.open().await.map(drop);
        assert!(matches!(opened, Err(DbError::Newer(9999))), "{opened:?}");
    }
}

#[tokio::test]
async fn a_postgres_that_cannot_be_reached_is_waited_for_and_named() {
    let Some(server) = Postgres::start().unwrap() else {
        return;
    };
    let url = server.database().unwrap();
    let url = DatabaseUrl::from(url.as_str());
    server.stop().unwrap();
    let opened = Db::open(&url, Duration::from_millis(600)).await.map(drop);
    match opened {
        Err(error @ DbError::Unreachable { waited, .. }) => {
            assert!(
                (Duration::from_millis(600)..Duration::from_secs(5)).contains(&waited),
                "{waited:?}"
            );
            assert!(!error.is_configuration());
            assert!(error.to_string().contains("cannot be reached"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    let later = {
        let url = url.clone();
        tokio::spawn(async move { Db::open(&url, Duration::from_secs(20)).await })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    let server = tokio::task::spawn_blocking(move || {
        server.start_again().unwrap();
        server
    })
    .await
    .unwrap();
    later.await.unwrap().unwrap();
    // what cannot become true by waiting is told at once
    let url = DatabaseUrl::from(server.url("nowhere").as_str());
    let opened = Db::open(&url, Duration::from_secs(20)).await.map(drop);
    assert!(matches!(opened, Err(DbError::Sql(_))), "{opened:?}");
}

/// Exit code 4, as for damaged data of a broker; the message names the file and says what to do.
#[tokio::test]
async fn a_damaged_file_and_one_of_another_application_are_named() {
    let start = |dir: &tempfile::TempDir| {
        let config = gateway::Config {
            listen: ([127, 0, 0, 1], 0).into(),
            auth: gateway::Auth::Off,
            admin_listen: node::AdminListen::Off,
            data: dir.path().into(),
            namesrv: vec!["127.0.0.1:1".into()],
            ..gateway::Config::default()
        };
        let context = node::Context::quiet(Arc::new(clock::SystemClock::new()));
        async move {
            gateway::start(config, &context)
                .await
                .map(drop)
                .unwrap_err()
        }
    };
    let refused = |error: gateway::RunError, dir: &tempfile::TempDir, words: &str| {
        let text = error.to_string();
        assert_eq!(error.exit_code(), 4, "{text}");
        let file = dir.path().join("gateway.db").display().to_string();
        assert!(text.contains(&file) && text.contains(words), "{text}");
    };
    let garbage = tempfile::tempdir().unwrap();
    std::fs::write(garbage.path().join("gateway.db"), [0x5a; 8_192]).unwrap();
    refused(start(&garbage).await, &garbage, "put back a copy");

    let torn = tempfile::tempdir().unwrap();
    let path = torn.path().join("gateway.db");
    let url = DatabaseUrl::sqlite(&path);
    let db = Db::open(&url, Duration::from_secs(1)).await.unwrap();
    db.close().await;
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4_096..].fill(0x5a);
    std::fs::write(&path, bytes).unwrap();
    refused(start(&torn).await, &torn, "put back a copy");

    let foreign = tempfile::tempdir().unwrap();
    let path = foreign.path().join("gateway.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    sqlx::query("CREATE TABLE songs (name TEXT)")
        .execute(&pool)
        .await
        .unwrap();
    pool.close().await;
    let before = std::fs::read(&path).unwrap();
    refused(start(&foreign).await, &foreign, "table 'songs'");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}
