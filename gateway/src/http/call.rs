//! `Call`: a request as handlers get it, body read, path decoded.

use super::{Meta, Peer};
use crate::error::{ApiError, Code};
use crate::json::{Raw, document};
use crate::memory::Held;
use crate::params::{Query, check_group, check_namespace, check_topic};
use crate::upstream::Member;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use wire::body::members::Transport;

/// Time for a request where `Mq-Timeout` says nothing.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// One request.
#[derive(Debug)]
pub struct Call {
    parts: Parts,
    meta: Meta,
    path: Vec<(String, String)>,
    /// The whole body.
    pub body: Bytes,
    held: Option<Arc<Held>>,
}

impl<S: Send + Sync> FromRequest<S> for Call {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (mut parts, _) = request.into_parts();
        let params = RawPathParams::from_request_parts(&mut parts, state).await;
        let bad = |_| ApiError::new(Code::InvalidName, "the path is not percent-encoded UTF-8");
        let path = params
            .map_err(bad)?
            .iter()
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .collect();
        let body = parts.extensions.remove::<Bytes>().unwrap_or_default();
        let held = parts.extensions.remove::<Arc<Held>>();
        let meta = parts.extensions.get::<Meta>().cloned().unwrap_or_default();
        Ok(Self {
            parts,
            meta,
            path,
            body,
            held,
        })
    }
}

impl Call {
    /// Request headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// A header as text; `None` where it is absent or no visible ASCII.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.parts.headers.get(name).and_then(|v| v.to_str().ok())
    }

    /// The memory of the body, for a task that keeps it after the answer.
    #[must_use]
    pub fn held(&self) -> Option<Arc<Held>> {
        self.held.clone()
    }

    /// The id of this request.
    #[must_use]
    pub fn request_id(&self) -> &str {
        &self.meta.request_id
    }

    fn segment(&self, name: &str) -> &str {
        self.path
            .iter()
            .find(|(k, _)| k == name)
            .map_or("", |(_, v)| v.as_str())
    }

    /// The topic of the path, its namespace checked.
    ///
    /// # Errors
    /// `namespace_not_found`, `invalid_name`.
    pub fn topic(&self) -> Result<&str, ApiError> {
        check_namespace(self.segment("ns"))?;
        let topic = self.segment("topic");
        check_topic(topic)?;
        Ok(topic)
    }

    /// The group of the path, its namespace checked.
    ///
    /// # Errors
    /// `namespace_not_found`, `invalid_name`.
    pub fn group(&self) -> Result<&str, ApiError> {
        check_namespace(self.segment("ns"))?;
        let group = self.segment("group");
        check_group(group)?;
        Ok(group)
    }

    /// Checks the namespace of the path.
    ///
    /// # Errors
    /// `namespace_not_found`, `invalid_name`.
    pub fn namespace(&self) -> Result<&str, ApiError> {
        let ns = self.segment("ns");
        check_namespace(ns)?;
        Ok(ns)
    }

    /// The last segment of a path such as `/errors/{code}`.
    #[must_use]
    pub fn named(&self, name: &str) -> &str {
        self.segment(name)
    }

    /// The query parameters, all of them `known`.
    ///
    /// # Errors
    /// See [`Query::parse`].
    pub fn query(&self, known: &[&'static str]) -> Result<Query, ApiError> {
        Query::parse(self.parts.uri.query(), known)
    }

    /// Refuses any query parameter.
    ///
    /// # Errors
    /// `unknown_field`.
    pub fn no_query(&self) -> Result<(), ApiError> {
        self.query(&[]).map(|_| ())
    }

    /// The JSON document of the body.
    ///
    /// # Errors
    /// `unsupported_media_type` where the content type is not one of `types`, `invalid_json`.
    pub fn json(&self, types: &[&str]) -> Result<Raw<'_>, ApiError> {
        if !self.body.is_empty() {
            self.content_type_is(types)?;
        }
        document(&self.body)
    }

    /// The JSON document of an `application/json` body.
    ///
    /// # Errors
    /// As [`Call::json`].
    pub fn plain_json(&self) -> Result<Raw<'_>, ApiError> {
        self.json(&["application/json"])
    }

    fn content_type_is(&self, types: &[&str]) -> Result<(), ApiError> {
        let given = self.header("content-type").unwrap_or_default();
        let mut pieces = given.split(';');
        let essence = pieces.next().unwrap_or_default().trim();
        let utf8 = pieces
            .filter_map(|p| p.split_once('='))
            .all(|(name, value)| {
                !name.trim().eq_ignore_ascii_case("charset")
                    || value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
            });
        if utf8 && types.iter().any(|t| essence.eq_ignore_ascii_case(t)) {
            return Ok(());
        }
        if essence.eq_ignore_ascii_case("application/cloudevents+json")
            || essence.eq_ignore_ascii_case("application/cloudevents-batch+json")
        {
            return Err(ApiError::not_implemented(
                "CloudEvents are part of the API but not built yet; send application/json",
            ));
        }
        let given: String = given.chars().take(100).collect();
        let shown = if given.is_empty() {
            "none was given".to_owned()
        } else {
            format!("not '{given}'")
        };
        let detail = format!(
            "the Content-Type must be {} in UTF-8, {shown}; curl: --json, or -H 'Content-Type: {}'",
            types.join(" or "),
            types[0]
        );
        Err(ApiError::new(Code::UnsupportedMediaType, detail))
    }

    /// Refuses a body.
    ///
    /// # Errors
    /// `invalid_field`.
    pub fn no_body(&self) -> Result<(), ApiError> {
        if self.body.is_empty() {
            return Ok(());
        }
        Err(ApiError::field(
            Code::InvalidField,
            "",
            "this request takes no body; parameters go into the query",
        ))
    }

    /// When the answer must be on its way: 250 ms before the end of `Mq-Timeout` (default 10 s, plus `wait`).
    #[must_use]
    pub fn deadline(&self, wait: Duration) -> Instant {
        const MARGIN: Duration = Duration::from_millis(250);
        let whole = self.meta.timeout.unwrap_or(TIMEOUT_DEFAULT + wait);
        self.meta.started + whole.saturating_sub(MARGIN).max(whole / 2)
    }

    /// When the request was complete.
    #[must_use]
    pub fn started(&self) -> Instant {
        self.meta.started
    }

    /// The caller as a member of a group.
    ///
    /// # Errors
    /// `invalid_field` for a label (`Mq-Client`) of more than 64 characters or with control characters.
    pub fn member(&self) -> Result<Member, ApiError> {
        Ok(Member {
            label: self.client()?,
            transport: Transport::Rest,
            ip: self.parts.extensions.get::<Peer>().map(|peer| peer.0),
        })
    }

    /// The label of the caller (`Mq-Client`), or the address-free default.
    ///
    /// # Errors
    /// `invalid_field` for more than 64 characters or control characters.
    fn client(&self) -> Result<String, ApiError> {
        let Some(value) = self.parts.headers.get("mq-client") else {
            return Ok("rest".to_owned());
        };
        let text = value.to_str().unwrap_or_default().trim();
        if text.is_empty() || text.len() > 64 {
            return Err(ApiError::field(
                Code::InvalidField,
                "header:Mq-Client",
                "Mq-Client is a label of 1–64 visible characters",
            )
            .with("limit", 64));
        }
        Ok(text.to_owned())
    }

    /// 501 for the header `Idempotency-Key`.
    ///
    /// # Errors
    /// `not_implemented`.
    pub fn no_idempotency_key(&self) -> Result<(), ApiError> {
        if self.parts.headers.contains_key("idempotency-key") {
            let detail = "Idempotency-Key is part of the API but not built yet; leave it out";
            return Err(ApiError::field(
                Code::NotImplemented,
                "header:Idempotency-Key",
                detail,
            ));
        }
        Ok(())
    }
}
