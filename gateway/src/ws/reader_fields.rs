//! The fields of `subscribe` with `mode: "reader"`.

use super::fields::{FieldFault, Fields};
use super::frame::{BodyFormat, Op, read_body_format, read_ns, read_sub};

/// Messages a second of `maxRate`.
const RATE_MAX: u64 = 100_000;

/// What happens to messages that come while there is no credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnSlow {
    /// They wait.
    Block,
    /// They are skipped and counted.
    Drop,
    /// The socket ends.
    Close,
}

/// A reader subscription as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReaderSubscribe {
    pub(crate) sub: String,
    pub(crate) ns: String,
    pub(crate) topic: String,
    /// As in REST; `latest` where none is given.
    pub(crate) from: String,
    /// Tags joined by `||`.
    pub(crate) tag: Option<String>,
    pub(crate) credit: u64,
    pub(crate) on_slow: OnSlow,
    /// Messages a second.
    pub(crate) max_rate: Option<u32>,
    pub(crate) latest_by_key: bool,
    pub(crate) body_format: BodyFormat,
}

pub(super) fn read_reader(fields: &Fields<'_>) -> Result<Op, FieldFault> {
    fields.check(&[
        "op",
        "id",
        "sub",
        "ns",
        "mode",
        "topic",
        "from",
        "tag",
        "sql",
        "credit",
        "onSlow",
        "maxRate",
        "latestBy",
        "bodyFormat",
    ])?;
    if fields.get("sql").is_some() {
        let detail = "/sql is part of the API but not built yet; leave it out";
        return Err(FieldFault::new("not_implemented", detail));
    }
    let on_slow = match fields.text("onSlow")?.as_deref() {
        None | Some("block") => OnSlow::Block,
        Some("drop") => OnSlow::Drop,
        Some("close") => OnSlow::Close,
        Some(_) => {
            return Err(FieldFault::invalid(
                "onSlow",
                "\"block\", \"drop\" or \"close\"",
            ));
        }
    };
    let latest_by_key = match fields.text("latestBy")?.as_deref() {
        None => false,
        Some("key") => true,
        Some(_) => return Err(FieldFault::invalid("latestBy", "\"key\"")),
    };
    let max_rate = fields.number("maxRate", 1..=RATE_MAX)?;
    let from = fields.text("from")?;
    Ok(Op::Read(Box::new(ReaderSubscribe {
        sub: read_sub(fields)?,
        ns: read_ns(fields)?,
        topic: fields.required_text("topic")?.into_owned(),
        from: from.map_or_else(|| "latest".to_owned(), |from| from.into_owned()),
        tag: fields.text("tag")?.map(|tag| tag.into_owned()),
        credit: fields
            .number("credit", 0..=u64::from(u32::MAX))?
            .unwrap_or(0),
        on_slow,
        max_rate: max_rate.and_then(|n| u32::try_from(n).ok()),
        latest_by_key,
        body_format: read_body_format(fields)?,
    })))
}
