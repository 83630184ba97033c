//! Topics, groups and subscriptions against a real name server and brokers.

mod support;

use support::{Cluster, text};

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_made_changed_listed_and_deleted() {
    let cluster = Cluster::start_with(2, 1, |c| c.auto_create = false).await;
    let none = [("If-None-Match", "*"), ("Content-Type", "application/json")];
    let made = cluster
        .with(
            "PUT",
            "/topics/orders",
            &none,
            br#"{"type":"mixed","queues":5,"labels":{"team":"a"},"description":"d"}"#,
        )
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let topic = made.json();
    assert_eq!(
        (
            topic["queues"].as_i64(),
            topic["queueList"].as_array().map(Vec::len)
        ),
        (Some(5), Some(5))
    );
    assert_eq!(made.header("etag"), Some(text(&topic, "etag")));
    cluster
        .with("PUT", "/topics/orders", &none, b"{}")
        .await
        .problem(412, "topic_exists");

    let read = cluster.ns("GET", "/topics/orders", "").await;
    let old = read.header("etag").unwrap().to_owned();
    assert_eq!(
        (&read.json()["labels"]["team"], &read.json()["description"]),
        (&"a".into(), &"d".into())
    );
    // What GET returns can be put back.
    let back = cluster.ns("PUT", "/topics/orders", &read.text()).await;
    assert_eq!(back.status, 200, "{}", back.text());
    let stale = [
        ("If-Match", old.as_str()),
        ("Content-Type", "application/merge-patch+json"),
    ];
    let refused = cluster
        .with("PATCH", "/topics/orders", &stale, br#"{"queues":6}"#)
        .await
        .problem(412, "version_mismatch");
    let fresh = text(&refused, "etag").to_owned();
    let current = [
        ("If-Match", fresh.as_str()),
        ("Content-Type", "application/merge-patch+json"),
    ];
    let grown = cluster
        .with("PATCH", "/topics/orders", &current, br#"{"queues":6}"#)
        .await;
    assert_eq!(
        (grown.status, grown.json()["queues"].as_i64()),
        (200, Some(6)),
        "{}",
        grown.text()
    );
    cluster
        .ns("PATCH", "/topics/orders", r#"{"type":"normal"}"#)
        .await
        .problem(409, "immutable_field");
    for kind in ["ordered", "delayed", "transactional"] {
        let body = format!(r#"{{"type":"{kind}"}}"#);
        cluster
            .ns("PUT", "/topics/orders", &body)
            .await
            .problem(409, "immutable_field");
        cluster
            .ns("PUT", &format!("/topics/new-{kind}"), &body)
            .await
            .problem(501, "not_implemented");
    }
    cluster
        .ns("PATCH", "/topics/orders", r#"{"queues":1}"#)
        .await
        .problem(501, "not_implemented");
    cluster
        .ns("PATCH", "/topics/none", "{}")
        .await
        .problem(404, "topic_not_found");

    for name in ["a1", "a2", "a3"] {
        assert_eq!(
            cluster
                .ns("PUT", &format!("/topics/{name}"), r#"{"queues":1}"#)
                .await
                .status,
            201
        );
    }
    let page = cluster
        .ns("GET", "/topics?prefix=a&limit=2", "")
        .await
        .json();
    assert_eq!(
        (
            page["items"][0]["name"].as_str(),
            page["items"].as_array().map(Vec::len)
        ),
        (Some("a1"), Some(2))
    );
    let token = text(&page, "nextPageToken").to_owned();
    let last = cluster
        .ns(
            "GET",
            &format!("/topics?prefix=a&limit=2&pageToken={token}"),
            "",
        )
        .await
        .json();
    assert_eq!(
        (last["items"][0]["name"].as_str(), &last["nextPageToken"]),
        (Some("a3"), &serde_json::Value::Null)
    );
    cluster
        .ns("GET", &format!("/topics?prefix=b&pageToken={token}"), "")
        .await
        .problem(400, "page_token_mismatch");
    let all = cluster.ns("GET", "/topics", "").await.json();
    let names: Vec<_> = all["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| text(t, "name"))
        .collect();
    assert_eq!(names, ["a1", "a2", "a3", "orders"]);

    assert_eq!(cluster.ns("PUT", "/groups/g", "{}").await.status, 201);
    assert_eq!(
        cluster
            .ns(
                "PUT",
                "/groups/g/subscriptions/orders",
                r#"{"initialPosition":"earliest"}"#
            )
            .await
            .status,
        201
    );
    cluster
        .ns("POST", "/topics/orders/messages", r#"{"json":1}"#)
        .await;
    let refused = cluster
        .ns("DELETE", "/topics/orders", "")
        .await
        .problem(409, "topic_not_drained");
    assert_eq!(
        (&refused["groups"][0]["name"], &refused["groups"][0]["lag"]),
        (&"g".into(), &1.into())
    );
    assert_eq!(
        cluster
            .ns("DELETE", "/topics/orders?force=true", "")
            .await
            .status,
        204
    );
    cluster
        .ns("GET", "/topics/orders", "")
        .await
        .problem(404, "topic_not_found");
    cluster
        .ns("DELETE", "/topics/orders", "")
        .await
        .problem(404, "topic_not_found");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_subscriptions_are_made_changed_and_deleted() {
    let cluster = Cluster::start(1, 1).await;
    let body = r#"{"invisibleFor":"45s","retry":{"maxAttempts":5,"backoff":{"kind":"list","delays":["1s","10s"]}}}"#;
    let made = cluster.ns("PUT", "/groups/billing", body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(
        (
            text(&made.json(), "invisibleFor"),
            made.json()["retry"]["maxAttempts"].as_i64()
        ),
        ("45s", Some(5))
    );
    assert_eq!(
        made.json()["retry"]["backoff"]["delays"],
        serde_json::json!(["1s", "10s"])
    );
    let none = [("If-None-Match", "*"), ("Content-Type", "application/json")];
    cluster
        .with("PUT", "/groups/billing", &none, b"{}")
        .await
        .problem(412, "group_exists");
    let read = cluster.ns("GET", "/groups/billing", "").await;
    let back = cluster.ns("PUT", "/groups/billing", &read.text()).await;
    assert_eq!(back.status, 200, "{}", back.text());
    let patched = cluster
        .ns(
            "PATCH",
            "/groups/billing",
            r#"{"invisibleFor":null,"maxInFlight":7}"#,
        )
        .await
        .json();
    assert_eq!(
        (
            text(&patched, "invisibleFor"),
            patched["maxInFlight"].as_i64()
        ),
        ("30s", Some(7))
    );
    assert_eq!(patched["retry"]["maxAttempts"], 5);
    let stale = [("If-Match", "\"0\""), ("Content-Type", "application/json")];
    cluster
        .with("PATCH", "/groups/billing", &stale, b"{}")
        .await
        .problem(412, "version_mismatch");
    cluster
        .with(
            "PATCH",
            "/groups/billing",
            &[("If-Match", "0"), ("Content-Type", "application/json")],
            b"{}",
        )
        .await
        .problem(400, "invalid_field");
    cluster
        .ns("PUT", "/groups/ordered", r#"{"ordered":true}"#)
        .await
        .problem(501, "not_implemented");

    let put = cluster
        .ns("PUT", "/groups/billing/subscriptions/orders", "")
        .await;
    assert_eq!(put.status, 201, "{}", put.text());
    assert_eq!(put.header("etag"), Some(text(&put.json(), "etag")));
    let read = cluster
        .ns("GET", "/groups/billing/subscriptions/orders", "")
        .await;
    assert_eq!(read.json()["filter"]["kind"], "all");
    let shown = cluster.ns("GET", "/groups/billing", "").await.json();
    assert_eq!(shown["subscriptions"][0]["topic"], "orders");
    assert_eq!(shown["stats"]["lag"], 0);
    cluster
        .ns(
            "PUT",
            "/groups/billing/subscriptions/orders",
            r#"{"filter":{"kind":"sql92","expression":"a=1"}}"#,
        )
        .await
        .problem(501, "not_implemented");
    assert_eq!(
        cluster
            .ns("DELETE", "/groups/billing/subscriptions/orders", "")
            .await
            .status,
        204
    );
    cluster
        .ns("GET", "/groups/billing/subscriptions/orders", "")
        .await
        .problem(404, "subscription_not_found");
    assert_eq!(
        cluster.ns("GET", "/groups?prefix=bill", "").await.json()["items"][0]["name"],
        "billing"
    );
    assert_eq!(
        cluster.ns("DELETE", "/groups/billing", "").await.status,
        204
    );
    cluster
        .ns("GET", "/groups/billing", "")
        .await
        .problem(404, "group_not_found");
    cluster.stop().await;
}

/// What is sent after the 201 of a subscription from `latest` is delivered.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_from_latest_begins_where_it_was_put() {
    let cluster = Cluster::start(1, 1).await;
    cluster
        .ns("POST", "/topics/late/messages", r#"{"text":"before"}"#)
        .await;
    assert_eq!(cluster.ns("PUT", "/groups/g", "{}").await.status, 201);
    assert_eq!(
        cluster
            .ns(
                "PUT",
                "/groups/g/subscriptions/late",
                r#"{"initialPosition":"latest"}"#
            )
            .await
            .status,
        201
    );
    cluster
        .ns("POST", "/topics/late/messages", r#"{"text":"after"}"#)
        .await;
    let messages = cluster.receive("g", "wait=5s").await;
    let texts: Vec<_> = messages.iter().map(|m| text(m, "text")).collect();
    assert_eq!(texts, ["after"]);
    cluster.stop().await;
}

/// A topic made anew with fewer queues, behind the back of a gateway that knows the old ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_send_finds_the_queues_of_a_topic_that_was_made_anew() {
    let cluster = Cluster::start(1, 2).await;
    let topic = "/v1/ns/default/topics/anew";
    let messages = format!("{topic}/messages");
    cluster.at(0, "PUT", topic, r#"{"queues":16}"#).await;
    let known = cluster.at(1, "POST", &messages, r#"{"text":"x"}"#).await;
    assert_eq!(known.status, 201, "{}", known.text());
    cluster.at(0, "DELETE", topic, "").await;
    let anew = cluster.at(0, "PUT", topic, r#"{"queues":1}"#).await;
    assert_eq!(anew.status, 201, "{}", anew.text());
    for _ in 0..4 {
        let sent = cluster.at(1, "POST", &messages, r#"{"text":"x"}"#).await;
        assert_eq!(sent.status, 201, "{}", sent.text());
    }
    cluster.stop().await;
}

/// `If-Match: *` wants something to be there (RFC 9110 13.1.1): it changes what is there and never makes it.
#[tokio::test(flavor = "multi_thread")]
async fn if_match_any_changes_what_is_there_and_makes_nothing() {
    let cluster = Cluster::start(1, 1).await;
    let any = [("If-Match", "*"), ("Content-Type", "application/json")];
    for path in ["/topics/orders", "/groups/billing"] {
        cluster
            .with("PUT", path, &any, b"{}")
            .await
            .problem(412, "version_mismatch");
        assert_eq!(cluster.ns("GET", path, "").await.status, 404);
        assert_eq!(cluster.ns("PUT", path, "{}").await.status, 201);
        assert_eq!(cluster.with("PUT", path, &any, b"{}").await.status, 200);
    }
    let unknown = [("If-Match", "\"x\""), ("Content-Type", "application/json")];
    let refused = cluster
        .with("PUT", "/topics/orders", &unknown, b"{}")
        .await
        .problem(412, "version_mismatch");
    assert_eq!(
        text(&refused, "detail"),
        "topic 'orders' has version 2, not the one named; read it again"
    );
    cluster.stop().await;
}

/// Whatever makes topics and groups on the way refuses names of the system as PUT does.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_made_under_a_name_of_the_system() {
    let cluster = Cluster::start(1, 1).await;
    assert_eq!(cluster.ns("PUT", "/topics/orders", "{}").await.status, 201);
    for (method, path) in [
        ("POST", "/groups/RMQ_SYS_g/receive?topic=orders&wait=0s"),
        (
            "POST",
            "/groups/TOOLS_CONSUMER/receive?topic=orders&wait=0s",
        ),
        ("POST", "/groups/g/receive?topic=TBW102&wait=0s"),
        ("POST", "/groups/g/receive?topic=RMQ_SYS_t&wait=0s"),
        ("PUT", "/groups/RMQ_SYS_g/subscriptions/orders"),
        ("PUT", "/groups/g/subscriptions/TBW102"),
        ("PUT", "/groups/g/subscriptions/RMQ_SYS_t"),
    ] {
        let refused = cluster.ns(method, path, "").await;
        refused.problem(403, "system_resource");
    }
    for path in ["/groups/RMQ_SYS_g", "/groups/g"] {
        cluster
            .ns("GET", path, "")
            .await
            .problem(404, "group_not_found");
    }
    cluster.stop().await;
}
