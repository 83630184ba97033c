//! A small REST client for the gateway.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

/// One gateway, one namespace (`default`).
#[derive(Clone, Debug)]
pub struct Rest {
    addr: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; `Value::Null` where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The stable code of a problem document.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// This answer, if its status is the expected one.
    ///
    /// # Panics
    /// With the whole answer, if not.
    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(
            self.status,
            status,
            "answered {}",
            String::from_utf8_lossy(&self.body)
        );
        self
    }

    /// `messages` of a receive.
    pub fn messages(&self) -> Vec<Value> {
        self.json()["messages"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    }
}

impl Rest {
    pub fn new(addr: SocketAddr) -> Rest {
        Rest {
            addr,
            client: Client::builder(TokioExecutor::new()).build(HttpConnector::new()),
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Any request; `path` from the root, already percent-encoded. An error means that no whole answer came.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.addr));
        if let Some(map) = request.headers_mut() {
            for (name, value) in headers {
                map.insert(HeaderName::try_from(*name)?, HeaderValue::try_from(*value)?);
            }
        }
        let answer = self
            .client
            .request(request.body(Full::new(body.into()))?)
            .await
            .context("request")?;
        let (head, body) = answer.into_parts();
        Ok(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: body.collect().await?.to_bytes(),
        })
    }

    /// A call that must be answered.
    ///
    /// # Panics
    /// When no answer came.
    #[track_caller]
    pub fn must(
        &self,
        method: Method,
        path: &str,
        body: impl Into<Bytes>,
    ) -> impl Future<Output = Answer> {
        let path = path.to_owned();
        let body = body.into();
        async move {
            let json = [("content-type", "application/json")];
            match self
                .call(
                    method.clone(),
                    &path,
                    if body.is_empty() { &[] } else { &json },
                    body,
                )
                .await
            {
                Ok(answer) => answer,
                Err(cause) => panic!("{method} {path}: {cause:#}"),
            }
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.must(Method::GET, path, "").await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.must(Method::DELETE, path, "").await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.must(Method::PUT, path, body.to_string()).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.must(Method::POST, path, body.to_string()).await
    }

    /// Sends one message in the JSON form, e.g. `{"text":"hello"}`.
    pub async fn send(&self, topic: &str, message: &Value) -> Answer {
        self.post(&format!("/v1/ns/default/topics/{topic}/messages"), message)
            .await
    }

    /// Receives; `query` such as `topic=t&wait=0s`.
    pub async fn receive(&self, group: &str, query: &str) -> Answer {
        self.must(
            Method::POST,
            &format!("/v1/ns/default/groups/{group}/receive?{query}"),
            "",
        )
        .await
    }

    /// Settles receipts by `ack`, `nack` or `extend`, with the shared fields of `more`.
    pub async fn settle(&self, group: &str, how: &str, receipts: &[&str], more: Value) -> Answer {
        let mut body = if more.is_object() { more } else { json!({}) };
        body["receipts"] = json!(receipts);
        self.post(&format!("/v1/ns/default/groups/{group}/{how}"), &body)
            .await
    }

    pub async fn ack(&self, group: &str, receipts: &[&str]) -> Answer {
        self.settle(group, "ack", receipts, Value::Null).await
    }

    pub async fn put_topic(&self, topic: &str, body: Value) -> Answer {
        self.put(&format!("/v1/ns/default/topics/{topic}"), &body)
            .await
    }

    pub async fn put_group(&self, group: &str, body: Value) -> Answer {
        self.put(&format!("/v1/ns/default/groups/{group}"), &body)
            .await
    }

    pub async fn subscribe(&self, group: &str, topic: &str, body: Value) -> Answer {
        self.put(
            &format!("/v1/ns/default/groups/{group}/subscriptions/{topic}"),
            &body,
        )
        .await
    }
}

/// A field of a JSON object as text; empty where it is missing.
pub fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The bytes of a message, whichever of `json`, `text`, `base64` it came as.
pub fn body_of(message: &Value) -> Vec<u8> {
    if let Some(text) = message["text"].as_str() {
        return text.as_bytes().to_vec();
    }
    if let Some(encoded) = message["base64"].as_str() {
        return STANDARD.decode(encoded).unwrap_or_default();
    }
    message
        .get("json")
        .map(|json| json.to_string().into_bytes())
        .unwrap_or_default()
}
