//! Client frames: a text frame holds one or more JSON objects separated by line feeds, each read strictly.

use std::sync::Arc;

use openapi::ws::RequestId;
use serde_json::value::RawValue;

pub(crate) use crate::render::BodyFormat;

use super::fields::{FieldFault, Fields, read_text, shortened};
use super::reader_fields::{ReaderSubscribe, read_reader};
use crate::memory::Held;

/// Receipts in one `ack`, `nack` or `extend`.
pub(super) const RECEIPTS_MAX: usize = 256;
/// Receipts in one `resume`: as many as can be in flight on a subscription.
pub(super) const RESUME_MAX: usize = 1_000;
/// Largest `maxInFlight`, messages.
pub(super) const IN_FLIGHT_MAX: u32 = 1_000;
const SUB_CHARS_MAX: usize = 64;
const ID_CHARS_MAX: usize = 32;
const REASON_BYTES_MAX: usize = 1_024;
const CODE_BYTES_MAX: usize = 128;
const TWELVE_HOURS_MS: u64 = 12 * 3_600_000;
const THIRTY_DAYS_MS: u64 = 30 * 86_400_000;

/// One object of a client: its `id` and `sub` where they could be read, and the operation or why there is none.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) id: Option<RequestId>,
    pub(crate) sub: Option<String>,
    pub(crate) op: Result<Op, FieldFault>,
}

/// What a client asks for.
#[derive(Debug)]
pub(crate) enum Op {
    Subscribe(Box<Subscribe>),
    Read(Box<ReaderSubscribe>),
    Credit {
        sub: String,
        messages: u64,
        bytes: Option<u64>,
    },
    Settle {
        sub: String,
        kind: SettleKind,
        items: Vec<SettleItem>,
    },
    Publish(Box<Publish>),
    Unsubscribe {
        sub: String,
        release: bool,
    },
    Ping {
        t: Option<Box<RawValue>>,
    },
    Pong,
}

/// How a lease is settled. The last two are the gateway's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettleKind {
    Ack,
    Nack,
    Extend,
    /// Visible after `invisible_ms` at the latest, attempt counted.
    Release,
    /// Visible at once, attempt not counted.
    Suspend,
}

/// One receipt of a settle request. Fields that do not belong to its kind are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SettleItem {
    pub(crate) receipt: Arc<str>,
    /// Nack: milliseconds until the next delivery; none: the retry policy's.
    pub(crate) delay_ms: Option<u64>,
    /// Extend and release: milliseconds from now.
    pub(crate) invisible_ms: Option<u64>,
    pub(crate) code: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) dead_letter: bool,
}

impl SettleItem {
    /// A receipt with no fields of its own.
    pub(crate) fn bare(receipt: Arc<str>) -> Self {
        Self {
            receipt,
            delay_ms: None,
            invisible_ms: None,
            code: None,
            reason: None,
            dead_letter: false,
        }
    }
}

/// A group subscription as asked for; times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subscribe {
    pub(crate) sub: String,
    pub(crate) ns: String,
    pub(crate) group: String,
    /// None: every topic the group is subscribed to.
    pub(crate) topic: Option<String>,
    pub(crate) credit: u64,
    pub(crate) max_in_flight: u32,
    /// None: the group's.
    pub(crate) invisible_ms: Option<u64>,
    pub(crate) auto_extend: bool,
    pub(crate) max_processing_ms: u64,
    pub(crate) body_format: BodyFormat,
    pub(crate) linger_ms: u64,
    pub(crate) resume_window_ms: u64,
    /// Receipts of an earlier socket to go on with.
    pub(crate) resume: Vec<String>,
}

/// A message to store.
#[derive(Debug)]
pub(crate) struct Publish {
    pub(crate) ns: String,
    pub(crate) topic: String,
    /// The REST message object, as written.
    pub(crate) message: Box<RawValue>,
    /// Sends with the same one keep their order.
    pub(crate) ordering_key: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    /// The memory of the text frame it came in.
    pub(crate) held: Option<Arc<Held>>,
}

/// The text frame is not a sequence of JSON objects: the socket ends with `protocol_error`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Reads the objects of a text frame one by one; nothing follows a [`Malformed`].
pub(crate) fn requests(text: &str) -> impl Iterator<Item = Result<Request, Malformed>> + '_ {
    let mut objects = serde_json::Deserializer::from_str(text).into_iter::<&RawValue>();
    let (mut end, mut count, mut over) = (0_usize, 0_usize, false);
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        let object = match objects.next() {
            Some(Ok(object)) => object,
            None if count > 0 => return None,
            None => return malformed(&mut over, "an empty text frame"),
            Some(Err(_)) => return malformed(&mut over, "not JSON"),
        };
        let start = objects.byte_offset().saturating_sub(object.get().len());
        let separator = text.get(end..start).unwrap_or_default();
        if count > 0 && !separator.contains('\n') {
            return malformed(&mut over, "objects are separated by a line feed");
        }
        if !object.get().starts_with('{') {
            return malformed(&mut over, "not a JSON object");
        }
        (end, count) = (objects.byte_offset(), count + 1);
        Some(Ok(request(object)))
    })
}

fn malformed(over: &mut bool, why: &'static str) -> Option<Result<Request, Malformed>> {
    *over = true;
    Some(Err(Malformed(why)))
}

fn request(object: &RawValue) -> Request {
    let fields: Fields<'_> = match serde_json::from_str(object.get()) {
        Ok(fields) => fields,
        Err(_) => {
            return Request {
                id: None,
                sub: None,
                op: Err(FieldFault::new(
                    "invalid_json",
                    "a field name holds half a surrogate pair",
                )),
            };
        }
    };
    let id = read_id(&fields);
    let sub = fields.text("sub").ok().flatten().map(|sub| shortened(&sub));
    let op = id
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|_| read_op(&fields));
    Request {
        id: id.ok().flatten(),
        sub,
        op,
    }
}

fn read_id(fields: &Fields<'_>) -> Result<Option<RequestId>, FieldFault> {
    let Some(value) = fields.get("id") else {
        return Ok(None);
    };
    if let Ok(number) = serde_json::from_str::<u32>(value.get()) {
        return Ok(Some(RequestId::Number(number)));
    }
    match read_text(value) {
        Some(text) if text.chars().count() <= ID_CHARS_MAX => {
            Ok(Some(RequestId::Text(text.into_owned())))
        }
        _ => Err(FieldFault::invalid(
            "id",
            "text of at most 32 characters or a whole number below 4294967296",
        )),
    }
}

fn read_op(fields: &Fields<'_>) -> Result<Op, FieldFault> {
    let op = fields.text("op").ok().flatten();
    match op.as_deref() {
        Some("subscribe") => read_subscribe(fields),
        Some("credit") => {
            fields.check(&["op", "id", "sub", "messages", "bytes"])?;
            let messages = fields.number("messages", 0..=u64::from(u32::MAX))?;
            let messages =
                messages.ok_or_else(|| FieldFault::invalid("messages", "a whole number"))?;
            Ok(Op::Credit {
                sub: read_sub(fields)?,
                messages,
                bytes: fields.number("bytes", 0..=(1 << 53) - 1)?,
            })
        }
        Some("ack") => read_settle(fields, SettleKind::Ack, &[]),
        Some("nack") => read_settle(
            fields,
            SettleKind::Nack,
            &["delay", "code", "reason", "deadLetter"],
        ),
        Some("extend") => read_settle(fields, SettleKind::Extend, &["invisibleFor"]),
        Some("publish") => read_publish(fields),
        Some("unsubscribe") => {
            fields.check(&["op", "id", "sub", "release"])?;
            Ok(Op::Unsubscribe {
                sub: read_sub(fields)?,
                release: fields.flag("release")?.unwrap_or(true),
            })
        }
        Some("ping") => {
            fields.check(&["op", "id", "t"])?;
            let t = fields.get("t");
            if t.is_some_and(|t| t.get().len() > 64 || t.get().starts_with(['{', '['])) {
                return Err(FieldFault::invalid("t", "a number or a short text"));
            }
            Ok(Op::Ping {
                t: t.map(ToOwned::to_owned),
            })
        }
        Some("pong") => fields.check(&["op", "id", "t"]).map(|()| Op::Pong),
        Some("auth") => Err(FieldFault::new(
            "not_implemented",
            "tickets and tokens are not built yet; this gateway asks for none",
        )),
        Some(other) => Err(FieldFault::new(
            "unknown_op",
            format!("there is no op {:?}", shortened(other)),
        )),
        None => Err(FieldFault::new(
            "unknown_op",
            "/op: expected the name of an operation",
        )),
    }
}

pub(super) fn read_sub(fields: &Fields<'_>) -> Result<String, FieldFault> {
    let sub = fields.required_text("sub")?;
    if sub.is_empty() || sub.chars().count() > SUB_CHARS_MAX {
        return Err(FieldFault::invalid("sub", "text of 1 to 64 characters"));
    }
    Ok(sub.into_owned())
}

pub(super) fn read_ns(fields: &Fields<'_>) -> Result<String, FieldFault> {
    Ok(fields
        .text("ns")?
        .map_or_else(|| "default".to_owned(), |ns| ns.into_owned()))
}

pub(super) fn read_body_format(fields: &Fields<'_>) -> Result<BodyFormat, FieldFault> {
    let Some(name) = fields.text("bodyFormat")? else {
        return Ok(BodyFormat::Auto);
    };
    BodyFormat::parse(&name).ok_or_else(|| {
        FieldFault::invalid("bodyFormat", "\"auto\", \"base64\", \"text\" or \"none\"")
    })
}

fn read_subscribe(fields: &Fields<'_>) -> Result<Op, FieldFault> {
    match fields.required_text("mode")?.as_ref() {
        "group" => {}
        "reader" => return read_reader(fields),
        "events" => {
            return Err(FieldFault::new(
                "not_implemented",
                "mode \"events\" is not built yet; \"group\" and \"reader\" are",
            ));
        }
        _ => {
            return Err(FieldFault::invalid(
                "mode",
                "\"group\", \"reader\" or \"events\"",
            ));
        }
    }
    fields.check(&[
        "op",
        "id",
        "sub",
        "ns",
        "mode",
        "group",
        "topic",
        "credit",
        "maxInFlight",
        "invisibleFor",
        "autoExtend",
        "maxProcessing",
        "bodyFormat",
        "linger",
        "resumeWindow",
        "resume",
    ])?;
    let resume = match fields.object("resume")? {
        None => Vec::new(),
        Some(resume) => {
            resume.check(&["receipts"])?;
            if resume.get("receipts").is_some_and(|list| {
                list.get()
                    .bytes()
                    .filter(|b| !b.is_ascii_whitespace())
                    .eq(*b"[]")
            }) {
                Vec::new()
            } else {
                resume.texts("receipts", RESUME_MAX)?.unwrap_or_default()
            }
        }
    };
    let body_format = read_body_format(fields)?;
    let max_in_flight = fields
        .number("maxInFlight", 1..=u64::from(IN_FLIGHT_MAX))?
        .and_then(|n| u32::try_from(n).ok());
    Ok(Op::Subscribe(Box::new(Subscribe {
        sub: read_sub(fields)?,
        ns: read_ns(fields)?,
        group: fields.required_text("group")?.into_owned(),
        topic: fields.text("topic")?.map(|topic| topic.into_owned()),
        credit: fields
            .number("credit", 0..=u64::from(u32::MAX))?
            .unwrap_or(0),
        max_in_flight: max_in_flight.unwrap_or(64),
        invisible_ms: fields.duration(
            "invisibleFor",
            "invalid_invisible_for",
            1_000..=TWELVE_HOURS_MS,
        )?,
        auto_extend: fields.flag("autoExtend")?.unwrap_or(true),
        max_processing_ms: fields
            .duration("maxProcessing", "invalid_field", 1_000..=TWELVE_HOURS_MS)?
            .unwrap_or(15 * 60_000),
        body_format,
        linger_ms: fields
            .duration("linger", "invalid_field", 0..=200)?
            .unwrap_or(5),
        resume_window_ms: fields
            .duration("resumeWindow", "invalid_field", 0..=60_000)?
            .unwrap_or(5_000),
        resume,
    })))
}

fn read_settle(fields: &Fields<'_>, kind: SettleKind, own: &[&str]) -> Result<Op, FieldFault> {
    let sub = read_sub(fields);
    let items = match (
        fields.get("receipts").is_some(),
        fields.get("items").is_some(),
    ) {
        (true, false) => {
            fields.check(&[&["op", "id", "sub", "receipts"], own].concat())?;
            let shared = settle_fields(fields)?;
            let receipts = fields.texts("receipts", RECEIPTS_MAX)?.unwrap_or_default();
            receipts
                .into_iter()
                .map(|receipt| SettleItem {
                    receipt: receipt.into(),
                    ..shared.clone()
                })
                .collect()
        }
        (false, true) => {
            fields.check(&["op", "id", "sub", "items"])?;
            let items = fields.objects("items", RECEIPTS_MAX)?.unwrap_or_default();
            items
                .iter()
                .enumerate()
                .map(|(index, item)| settle_item(item, own).map_err(|fault| in_item(index, &fault)))
                .collect::<Result<_, _>>()?
        }
        _ => {
            fields.check(&[&["op", "id", "sub", "receipts", "items"], own].concat())?;
            return Err(FieldFault::new(
                "invalid_field",
                "either /receipts or /items",
            ));
        }
    };
    Ok(Op::Settle {
        sub: sub?,
        kind,
        items,
    })
}

fn in_item(index: usize, fault: &FieldFault) -> FieldFault {
    FieldFault::new(fault.code, format!("/items/{index}{}", fault.detail))
}

fn settle_item(item: &Fields<'_>, own: &[&str]) -> Result<SettleItem, FieldFault> {
    item.check(&[&["receipt"], own].concat())?;
    Ok(SettleItem {
        receipt: item.required_text("receipt")?.into(),
        ..settle_fields(item)?
    })
}

fn settle_fields(fields: &Fields<'_>) -> Result<SettleItem, FieldFault> {
    let short = |name: &str, max: usize| -> Result<Option<String>, FieldFault> {
        match fields.text(name)? {
            Some(text) if text.len() > max => {
                Err(FieldFault::invalid(name, &format!("at most {max} bytes")))
            }
            text => Ok(text.map(|text| text.into_owned())),
        }
    };
    Ok(SettleItem {
        receipt: "".into(),
        delay_ms: fields.duration("delay", "invalid_field", 0..=THIRTY_DAYS_MS)?,
        invisible_ms: fields.duration(
            "invisibleFor",
            "invalid_invisible_for",
            1_000..=TWELVE_HOURS_MS,
        )?,
        code: short("code", CODE_BYTES_MAX)?,
        reason: short("reason", REASON_BYTES_MAX)?,
        dead_letter: fields.flag("deadLetter")?.unwrap_or(false),
    })
}

fn read_publish(fields: &Fields<'_>) -> Result<Op, FieldFault> {
    fields.check(&["op", "id", "topic", "message", "ns", "idempotencyKey"])?;
    let message = fields
        .get("message")
        .ok_or_else(|| FieldFault::invalid("message", "an object"))?;
    let inner = fields.object("message")?;
    Ok(Op::Publish(Box::new(Publish {
        ns: read_ns(fields)?,
        topic: fields.required_text("topic")?.into_owned(),
        message: message.to_owned(),
        ordering_key: inner.and_then(|inner| {
            inner
                .text("orderingKey")
                .ok()
                .flatten()
                .map(|key| key.into_owned())
        }),
        idempotency_key: fields.text("idempotencyKey")?.map(|key| key.into_owned()),
        held: None,
    })))
}
