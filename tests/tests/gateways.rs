//! Several gateways on one metadata store, SQLite and Postgres: any of them settles and continues what another one began;
//! the store may go away; its master key may not.

use std::time::Duration;

use gantry_tests::fleet::{Fleet, Metadata, Shape, write_master_key};
use gantry_tests::http::{Rest, text};
use gantry_tests::postgres::Postgres;
use gantry_tests::process::Gantry;
use gantry_tests::wait::{USUAL, eventually, within};
use hyper::Method;
use serde_json::{Value, json};

fn no_gateway(metadata: Metadata) -> Shape {
    Shape {
        gateways: 0,
        brokers: 1,
        metadata,
        ..Shape::default()
    }
}

async fn take(rest: &Rest, group: &str, query: &str) -> Value {
    let got = rest.receive(group, query).await.expect(200).messages();
    assert_eq!(got.len(), 1, "{got:?}");
    got[0].clone()
}

/// Two gateways started at the same moment on an empty store; each settles receipts and continues lists of the other,
/// and a receipt outlives the gateway that gave it.
fn any_gateway_settles(metadata: Metadata) {
    within(USUAL, async {
        let mut fleet = Fleet::start(&no_gateway(metadata)).unwrap();
        let both = std::thread::scope(|scope| {
            let start = |name: &'static str| {
                let fleet = &fleet;
                scope.spawn(move || fleet.gateway(name, &["--auto-create"]))
            };
            [start("gateway-0"), start("gateway-1")].map(|one| one.join().unwrap().unwrap())
        });
        fleet.gateways.extend(both);
        fleet.ready().await;
        let (ga, gb) = (fleet.rest(0), fleet.rest(1));
        for topic in ["orders", "bills", "letters"] {
            ga.put_topic(topic, json!({})).await.expect(201);
        }
        ga.receive("g", "topic=orders&wait=0s").await.expect(200);
        for number in 0..3 {
            ga.send("orders", &json!({"json": number}))
                .await
                .expect(201);
        }

        let query = "topic=orders&max=1&wait=5s&invisibleFor=3s";
        let first = take(&ga, "g", query).await;
        let second = take(&gb, "g", query).await;
        gb.ack("g", &[text(&first, "receipt")]).await.expect(200);
        ga.ack("g", &[text(&second, "receipt")]).await.expect(200);

        let third = take(&ga, "g", query).await;
        let list = "/v1/ns/default/topics?limit=1";
        let page = ga.get(list).await.expect(200).json();
        fleet.gateways[0].kill9().unwrap();
        let acked = gb.ack("g", &[text(&third, "receipt")]).await.expect(200);
        assert_eq!(acked.json()["results"][0]["status"], "acked");
        let mut seen = vec![text(&page["items"][0], "name").to_owned()];
        let mut token = page["nextPageToken"].clone();
        while let Some(at) = token.as_str() {
            let page = gb
                .get(&format!("{list}&pageToken={at}"))
                .await
                .expect(200)
                .json();
            seen.push(text(&page["items"][0], "name").to_owned());
            token = page["nextPageToken"].clone();
        }
        assert_eq!(seen, ["bills", "letters", "orders"]);

        // no lease of the dead gateway comes back
        let rest = gb.receive("g", "topic=orders&max=10&wait=4s").await;
        assert_eq!(rest.expect(200).messages(), Vec::<Value>::new());

        // and a gateway that starts later knows the same keys
        gb.send("orders", &json!({"text": "late"}))
            .await
            .expect(201);
        let late = take(&gb, "g", query).await;
        fleet.gateways[0].start_again().unwrap();
        let acked = fleet.rest(0).ack("g", &[text(&late, "receipt")]).await;
        assert_eq!(acked.expect(200).json()["results"][0]["status"], "acked");
    });
}

#[test]
fn any_gateway_settles_any_receipt_on_a_shared_sqlite_file() {
    any_gateway_settles(Metadata::Sqlite);
}

#[test]
fn any_gateway_settles_any_receipt_on_postgres() {
    // Without a server the fleet would take SQLite.
    let Some(_server) = Postgres::shared().unwrap() else {
        return;
    };
    any_gateway_settles(Metadata::Postgres);
}

/// A start that must fail: the exit code and what it says.
fn refused(args: &[&str]) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let mut all = vec!["--listen", "127.0.0.1:0", "--auth", "off"];
    all.extend(["--namesrv", "127.0.0.1:1", "--data", "data"]);
    all.extend(args);
    let said = match Gantry::start("gateway", &all, dir.path()) {
        Ok(_) => panic!("{args:?} started"),
        Err(error) => format!("{error:#}"),
    };
    let code = said
        .split("exit status: ")
        .nth(1)
        .and_then(|rest| rest.split(':').next()?.trim().parse().ok());
    (code.unwrap_or(-1), said)
}

#[test]
fn a_gateway_on_postgres_starts_with_the_master_key_of_its_store_only() {
    within(USUAL, async {
        let Some(server) = Postgres::shared().unwrap() else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let url = server.database().unwrap();
        write_master_key(&dir.path().join("key")).unwrap();
        write_master_key(&dir.path().join("other")).unwrap();
        std::fs::write(dir.path().join("short"), "AAAA\n").unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(dir.path().join("short"), private).unwrap();

        let start = |args: &[&str]| {
            // a ready file of an earlier start would be taken for this one's
            let own = tempfile::tempdir_in(dir.path()).unwrap().keep();
            let mut all = vec!["--listen", "127.0.0.1:0", "--auth", "off"];
            all.extend(["--namesrv", "127.0.0.1:1", "--data", "data"]);
            all.extend(args);
            Gantry::start("gateway", &all, &own).unwrap()
        };
        let (key, other, short) = (path("key"), path("other"), path("short"));
        let sealed = ["--database-url", &url, "--master-key-file", &key];
        let mut gateway = start(&sealed);
        gateway.stop().unwrap();
        start(&sealed).stop().unwrap();

        for (args, words) in [
            (vec![], vec!["master_key_file", "--insecure-plain-secrets"]),
            (vec!["--master-key-file", &other], vec!["does not open"]),
            (
                vec!["--master-key-file", &short],
                vec!["holds 3 bytes", "put back"],
            ),
            (
                vec!["--master-key-file", "none"],
                vec!["is missing", "put back"],
            ),
            (vec!["--insecure-plain-secrets"], vec!["does not open"]),
        ] {
            let mut all = vec!["--database-url", url.as_str()];
            all.extend(args);
            let (code, said) = refused(&all);
            assert_eq!(code, 2, "{said}");
            for word in words {
                assert!(said.contains(word), "{word} is not in {said}");
            }
        }

        let fresh = server.database().unwrap();
        let (code, said) = refused(&["--database-url", &fresh, "--master-key-file", &short]);
        assert_eq!(code, 2, "{said}");
        assert!(
            said.contains("holds 3 bytes") && said.contains("urandom"),
            "{said}"
        );

        let plain = server.database().unwrap();
        let open = ["--database-url", &plain, "--insecure-plain-secrets"];
        let mut gateway = start(&open);
        assert!(
            gateway.logged().contains("stored in the clear"),
            "{}",
            gateway.logged()
        );
        gateway.stop().unwrap();

        // the only gateway of its store makes its key itself
        let alone = server.database().unwrap();
        let mut up = Gantry::up(dir.path(), &["--database-url", &alone]).unwrap();
        up.stop().unwrap();
        let made = std::fs::metadata(dir.path().join("data/master-key")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&made.permissions());
        assert_eq!(mode & 0o777, 0o600);
    });
}

#[test]
fn a_metadata_store_that_is_away_stops_no_request() {
    within(USUAL, async {
        let Some(server) = Postgres::start().unwrap() else {
            return;
        };
        let url = server.database().unwrap();
        let mut fleet = Fleet::start(&no_gateway(Metadata::Sqlite)).unwrap();
        write_master_key(&fleet.dir().join("master-key")).unwrap();
        let on_postgres = [
            "--auto-create",
            "--database-url",
            &url,
            "--master-key-file",
            "../master-key",
        ];
        fleet.add_gateway("gateway-0", &on_postgres).unwrap();
        fleet.ready().await;
        let rest = fleet.rest(0);
        rest.receive("g", "topic=orders&wait=0s").await.expect(200);
        let one_round = async |what: &str| {
            rest.send("orders", &json!({"text": what}))
                .await
                .expect(201);
            let got = take(&rest, "g", "wait=5s").await;
            assert_eq!(text(&got, "text"), what);
            rest.ack("g", &[text(&got, "receipt")]).await.expect(200);
            rest.get("/readyz").await.expect(200);
        };
        one_round("before").await;
        server.stop().unwrap();
        one_round("just gone").await;
        eventually(
            Duration::from_secs(30),
            "the gateway misses its store",
            || async {
                let logged = fleet.gateways[0].logged();
                logged.contains("cannot be read").then_some(())
            },
        )
        .await;
        one_round("long gone").await;

        let mut short = on_postgres.to_vec();
        short.extend(["--database-wait", "500ms"]);
        let said = match fleet.gateway("gateway-1", &short) {
            Ok(_) => panic!("started without its store"),
            Err(error) => format!("{error:#}"),
        };
        assert!(
            said.contains("exit status: 1") && said.contains("cannot be reached"),
            "{said}"
        );

        // a start waits for a store that comes back
        std::thread::scope(|scope| {
            let fleet = &fleet;
            let waiting = scope.spawn(move || fleet.gateway("gateway-2", &on_postgres));
            // time to miss it
            std::thread::sleep(Duration::from_secs(1));
            assert!(!waiting.is_finished(), "it waits");
            server.start_again().unwrap();
            waiting.join().unwrap().unwrap();
        });
        let health = rest.call(Method::GET, "/readyz", &[], "").await.unwrap();
        assert_eq!(health.status, 200);
        one_round("back").await;
    });
}
