//! What REST fronts have answered, forgotten or died of elsewhere, retold.

use std::time::Duration;

use gantry_tests::http::{Answer, Rest, text};
use gantry_tests::native::Native;
use gantry_tests::process::{Gantry, binary};
use gantry_tests::wait::{USUAL, within};
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

/// BL-42, confluentinc/kafka-rest#201, #211, #352, #392, #335: receive on one gateway, settle on others, one of them
/// killed, then idle: no gateway holds anything that a consumer needs.
#[test]
fn any_gateway_settles_what_another_delivered() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let namesrv = Gantry::start("namesrv", &["--listen", "127.0.0.1:0"], dir.path()).unwrap();
        let names = namesrv.addr("namesrv").to_string();
        let args = [
            "--data",
            "broker",
            "--listen",
            "127.0.0.1:0",
            "--namesrv",
            &names,
        ];
        let _broker = Gantry::start("broker", &args, dir.path()).unwrap();
        let database = format!("sqlite://{}/gateways.db", dir.path().display());
        let key = dir.path().join("master-key").display().to_string();
        let mut gateways = Vec::new();
        for name in ["a", "b", "c"] {
            let own = dir.path().join(name);
            std::fs::create_dir(&own).unwrap();
            let args = [
                "--listen",
                "127.0.0.1:0",
                "--namesrv",
                &names,
                "--database-url",
                &database,
                "--auth",
                "off",
                "--master-key-file",
                &key,
            ];
            gateways.push(Gantry::start("gateway", &args, &own).unwrap());
        }
        let rest: Vec<Rest> = gateways
            .iter()
            .map(|gateway| Rest::new(gateway.addr("gateway")))
            .collect();
        let [a, b, c] = rest.as_slice() else {
            unreachable!()
        };
        a.put_topic("shared", json!({})).await.expect(201);
        a.put_group("g", json!({"invisibleFor": "5s"}))
            .await
            .expect(201);
        b.subscribe("g", "shared", json!({"initialPosition": "earliest"}))
            .await
            .expect(201);
        for number in 0..3 {
            c.send("shared", &json!({"json": number})).await.expect(201);
        }
        let mut got = Vec::new();
        while got.len() < 3 {
            let more = a
                .receive("g", "topic=shared&wait=5s")
                .await
                .expect(200)
                .messages();
            assert!(!more.is_empty(), "only {} came", got.len());
            got.extend(more);
        }
        let receipts: Vec<&str> = got.iter().map(|message| text(message, "receipt")).collect();
        assert_eq!(
            status(&b.ack("g", &receipts[..1]).await.expect(200)),
            "acked"
        );
        gateways[0].kill9().unwrap();
        let extended = c
            .settle(
                "g",
                "extend",
                &receipts[1..2],
                json!({"invisibleFor": "10s"}),
            )
            .await
            .expect(200);
        assert_eq!(status(&extended), "extended");
        assert_eq!(
            status(
                &b.settle("g", "nack", &receipts[2..], json!({"delay": "1s"}))
                    .await
                    .expect(200)
            ),
            "nacked"
        );
        assert_eq!(
            status(&b.ack("g", &receipts[1..2]).await.expect(200)),
            "acked"
        );

        let again = c
            .receive("g", "topic=shared&wait=5s")
            .await
            .expect(200)
            .messages();
        assert_eq!(again.len(), 1);
        assert_eq!(
            (&again[0]["messageId"], &again[0]["attempt"]),
            (&got[2]["messageId"], &json!(2))
        );
        assert_eq!(
            status(&b.ack("g", &[text(&again[0], "receipt")]).await.expect(200)),
            "acked"
        );

        // longer than the lease and the refresh of routes: there is nothing to make anew
        sleep(Duration::from_secs(12)).await;
        b.send("shared", &json!({"json": "late"})).await.expect(201);
        let late = c
            .receive("g", "topic=shared&wait=5s")
            .await
            .expect(200)
            .messages();
        assert_eq!(late.len(), 1);
        assert_eq!(late[0]["json"], "late");
    });
}

fn status(answer: &Answer) -> String {
    text(&answer.json()["results"][0], "status").to_owned()
}

#[track_caller]
fn refused(answer: &Answer) -> String {
    assert!(
        (400..500).contains(&answer.status),
        "answered {} {:?}",
        answer.status,
        answer.body
    );
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json")
    );
    answer.code()
}

/// BL-43, redpanda-data/redpanda#5843: polls and acks of what is not there are refused, and nothing dies of them.
#[test]
fn what_does_not_exist_is_refused_and_kills_nothing() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let mut gantry = Gantry::up(dir.path(), &[]).unwrap();
        let pid = gantry.pid();
        let rest = Rest::new(gantry.addr("gateway"));

        assert_eq!(
            refused(&rest.receive("nobody", "wait=0s").await),
            "group_not_found"
        );
        rest.put_group("g", json!({})).await.expect(201);
        rest.put_topic("gone", json!({})).await.expect(201);
        rest.subscribe("g", "gone", json!({})).await.expect(201);
        rest.delete("/v1/ns/default/topics/gone?force=true")
            .await
            .expect(204);
        assert_eq!(
            refused(&rest.receive("g", "wait=0s").await),
            "topic_not_found"
        );
        assert_eq!(
            refused(&rest.put_topic("empty", json!({"queues": 0})).await),
            "invalid_field"
        );
        // a native client may try to make one without queues; whatever becomes of it, a poll of it is harmless
        let client = Native::connect(gantry.addr("broker")).await.unwrap();
        let _made = client.put_topic("none", 0).await;
        let none = rest.receive("g", "topic=none&wait=0s").await;
        assert!(none.status < 500, "{none:?}");

        for receipt in [
            "mqr_",
            "mqr_AAAA",
            "x",
            "%00%0A",
            "mqr_%F0%9F%98%80",
            "..%2F..",
        ] {
            let path = format!("/v1/ns/default/groups/g/ack?receipt={receipt}");
            assert_eq!(
                refused(&rest.must(Method::POST, &path, "").await),
                "receipt_invalid",
                "{receipt}"
            );
        }
        let random: String = (0..400u32)
            .map(|n| char::from(b'A' + u8::try_from(n * n * 31 % 26).unwrap()))
            .collect();
        assert_eq!(
            refused(&rest.ack("g", &[&format!("mqr_{random}")]).await),
            "receipt_invalid"
        );
        let huge = format!("mqr_{}", "A".repeat(2 << 20));
        refused(&rest.ack("g", &[&huge]).await);
        let in_url = rest
            .call(
                Method::POST,
                &format!("/v1/ns/default/groups/g/ack?receipt={}", "A".repeat(20_000)),
                &[],
                "",
            )
            .await;
        if let Ok(answer) = in_url {
            assert_eq!(answer.status, 414);
        }

        assert!(gantry.alive());
        assert_eq!(gantry.pid(), pid);
        let sent = rest.send("alive", &json!({"text": "x"})).await;
        assert_eq!(sent.status, 201);
        assert!(!gantry.logged().contains("panicked"), "{}", gantry.logged());
    });
}

/// Every name as it stands in a URL, and whether it is a good one.
fn names() -> Vec<(String, bool)> {
    let odd = [
        "a%00b",
        "a%0A",
        "a%2Fb",
        "a%252Fb",
        "%2E%2E",
        "%E4%B8%AD%E6%96%87",
        "%25RETRY%25x",
        "a%20b",
        "TBW102",
        "-a",
        "%25DLQ%25x",
    ];
    let mut all: Vec<(String, bool)> = odd.map(|name| (name.to_owned(), false)).to_vec();
    for (length, good) in [
        (1, true),
        (89, true),
        (90, true),
        (91, false),
        (255, false),
        (256, false),
    ] {
        all.push(("a".repeat(length), good));
    }
    all
}

/// BL-45, rabbitmq/rabbitmq-management#351, #140: a name is refused, or good for everything.
#[test]
fn a_topic_name_is_refused_or_usable_from_end_to_end() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let gantry = Gantry::up(dir.path(), &[]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        for (name, good) in names() {
            let made = rest.put_topic(&name, json!({})).await;
            let sent = rest.send(&name, &json!({"text": "x"})).await;
            if !good {
                let codes = [refused(&made), refused(&sent)];
                assert!(
                    codes
                        .iter()
                        .all(|code| code == "invalid_name" || code == "system_resource"),
                    "{name}: {codes:?}"
                );
                continue;
            }
            made.expect(201);
            sent.expect(201);
            let group = format!("g{}", name.len());
            let got = rest
                .receive(&group, &format!("topic={name}&wait=5s"))
                .await
                .expect(200)
                .messages();
            assert_eq!(got.len(), 1, "{name}");
            assert_eq!(got[0]["topic"], json!(name));
            rest.ack(&group, &[text(&got[0], "receipt")])
                .await
                .expect(200);
            rest.get(&format!("/v1/ns/default/topics/{name}"))
                .await
                .expect(200);
            rest.delete(&format!("/v1/ns/default/topics/{name}?force=true"))
                .await
                .expect(204);
            rest.get(&format!("/v1/ns/default/topics/{name}"))
                .await
                .expect(404);
        }
        for name in [
            "a%00b",
            "a%0A",
            "a%2Fb",
            "%25RETRY%25x",
            "%E4%B8%AD",
            &"a".repeat(81),
        ] {
            let code = refused(&rest.put_group(name, json!({})).await);
            assert!(
                code == "invalid_name" || code == "system_resource",
                "{name}: {code}"
            );
        }
        let listed = rest.get("/v1/ns/default/topics").await.expect(200).json();
        assert_eq!(
            listed["items"],
            Value::Array(Vec::new()),
            "nothing odd was made: {listed}"
        );
    });
}

/// Without authentication nobody but this machine may reach a gateway: everything else ends with exit code 2 and says
/// what to do.
#[test]
fn a_gateway_serves_without_authentication_and_on_loopback_only() {
    let dir = tempfile::tempdir().unwrap();
    for (args, remedy) in [
        (&[][..], "--auth off"),
        (&["--auth", "on", "--listen", "127.0.0.1:0"], "--auth off"),
        (&["--auth", "off", "--listen", "0.0.0.0:0"], "127.0.0.1"),
        (&["--auth", "off", "--listen", "[::]:0"], "127.0.0.1"),
    ] {
        let output = std::process::Command::new(binary().unwrap())
            .args(["gateway", "--data", "data", "--admin-listen", "off"])
            .args(args)
            .current_dir(dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(remedy), "{args:?}: {said}");
        assert!(
            !dir.path().join("data").try_exists().unwrap(),
            "{args:?} made its data directory"
        );
    }
}
