//! What documents and lists of topics and groups hold.

mod support;

use serde_json::{Value, json};
use support::{Cluster, text};

async fn names(cluster: &Cluster, path: &str) -> Vec<String> {
    let list = cluster.ns("GET", path, "").await;
    assert_eq!(list.status, 200, "{}", list.text());
    let list = list.json();
    let items = list["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| text(item, "name").to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_and_topics_keep_description_and_labels_and_are_listed_by_them() {
    let cluster = Cluster::start(2, 1).await;
    for kind in ["topics", "groups"] {
        for (name, body) in [
            (
                "a",
                r#"{"description":"bills","labels":{"team":"x","tier":"1"}}"#,
            ),
            ("b", r#"{"labels":{"team":"y"}}"#),
            ("c", "{}"),
        ] {
            cluster.make(&format!("/{kind}/{name}"), body).await;
        }
        let path = format!("/{kind}/a");
        let read = cluster.ns("GET", &path, "").await;
        let shown =
            |document: &Value| (document["description"].clone(), document["labels"].clone());
        let kept = (json!("bills"), json!({"team": "x", "tier": "1"}));
        assert_eq!(shown(&read.json()), kept, "{kind}");
        let back = cluster.ns("PUT", &path, &read.text()).await;
        assert_eq!(shown(&back.json()), kept, "{kind}");
        for (label, found) in [
            ("team", vec!["a", "b"]),
            ("team=x", vec!["a"]),
            ("team=z", vec![]),
            ("tier=1&prefix=b", vec![]),
        ] {
            let list = format!("/{kind}?label={label}");
            assert_eq!(names(&cluster, &list).await, found, "{list}");
        }
        let wrong = cluster.ns("GET", &format!("/{kind}?label=a%2Fb"), "").await;
        wrong.problem(400, "invalid_field");
        let patch = r#"{"description":null,"labels":{"team":null}}"#;
        let patched = cluster.ns("PATCH", &path, patch).await.json();
        assert_eq!(shown(&patched), (json!(""), json!({"tier": "1"})), "{kind}");
        assert_eq!(names(&cluster, &format!("/{kind}?label=team")).await, ["b"]);
        let replaced = cluster.ns("PUT", &path, "{}").await.json();
        assert_eq!(shown(&replaced), (json!(""), json!({})), "{kind}");
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_says_how_long_its_dead_letters_are_kept() {
    let cluster = Cluster::start(1, 1).await;
    let kept = |document: &Value| document["deadLetter"]["retention"].clone();
    cluster.make("/groups/g", "{}").await;
    let read = cluster.ns("GET", "/groups/g", "").await;
    assert_eq!(kept(&read.json()), "14d");
    let body = r#"{"deadLetter":{"retention":"36h"}}"#;
    let patched = cluster.ns("PATCH", "/groups/g", body).await;
    assert_eq!(kept(&patched.json()), "36h", "{}", patched.text());
    let read = cluster.ns("GET", "/groups/g", "").await;
    assert_eq!(kept(&read.json()), "36h");
    let back = cluster.ns("PUT", "/groups/g", &read.text()).await;
    assert_eq!(kept(&back.json()), "36h", "{}", back.text());
    let body = r#"{"deadLetter":{"retention":"1s"}}"#;
    let refused = cluster.ns("PATCH", "/groups/g", body).await;
    let refused = refused.problem(400, "invalid_field");
    assert_eq!(refused["errors"][0]["pointer"], "/deadLetter/retention");
    assert_eq!(refused["limit"], "3650d");
    cluster.stop().await;
}
