//! The committed OpenAPI document is the one the code makes.

mod support;

use support::Cluster;

/// On a difference: `GANTRY_WRITE_OPENAPI=1 cargo test -p gateway --test openapi` writes the file anew.
#[test]
fn the_committed_document_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi/openapi.json");
    let made = gateway::api_document();
    if std::env::var_os("GANTRY_WRITE_OPENAPI").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(
        made == committed,
        "openapi/openapi.json differs from the code; see the comment of this test"
    );
}

#[test]
fn the_document_is_complete() {
    let document: serde_json::Value = serde_json::from_str(&gateway::api_document()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let send = &document["paths"]["/v1/ns/{ns}/topics/{topic}/messages"]["post"];
    for status in [
        "201", "202", "400", "404", "413", "415", "429", "501", "503", "504",
    ] {
        assert!(send["responses"][status].is_object(), "{status}");
    }
    // Every reference leads somewhere.
    let text = document.to_string();
    for part in text.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "{pointer}");
    }
}

#[tokio::test]
async fn every_operation_of_the_document_is_routed() {
    let cluster = Cluster::alone().await;
    let document: serde_json::Value = serde_json::from_str(&gateway::api_document()).unwrap();
    for (path, item) in document["paths"].as_object().unwrap() {
        let real = path.split('/').map(|s| {
            if s == "{ns}" {
                "default"
            } else if s == "{code}" {
                "internal"
            } else if s.starts_with('{') {
                "x"
            } else {
                s
            }
        });
        let real = real.collect::<Vec<_>>().join("/");
        for method in item.as_object().unwrap().keys() {
            let answer = cluster.call(&method.to_uppercase(), &real, "").await;
            // What is documented as not built is not, and the other way round.
            let planned = item[method]["tags"][0] == "not built yet";
            assert_eq!(
                answer.status == 501,
                planned,
                "{method} {path}: {}",
                answer.text()
            );
            assert!(
                !matches!(answer.status, 404 | 405) || answer.text().contains("metrics"),
                "{method} {path}: {} {}",
                answer.status,
                answer.text()
            );
            if answer.status >= 400 {
                assert_eq!(
                    answer.header("content-type"),
                    Some("application/problem+json"),
                    "{method} {path}"
                );
            }
        }
    }
    let docs = cluster.call("GET", "/docs", "").await;
    assert!(docs.text().contains("Send a message") && !docs.text().contains("<script"));
    cluster.stop().await;
}
