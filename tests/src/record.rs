//! Reads stored messages as brokers hand them out in the bodies of pull and pop answers.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes};

const MAGIC_V1: u32 = 0xDAA3_20A7;
const MAGIC_V2: u32 = 0xDAA3_20AB;

/// One message of an answer.
#[derive(Clone, Debug)]
pub struct Record {
    pub topic: String,
    pub queue: i32,
    pub offset: i64,
    pub reconsume_times: i32,
    pub stored_ms: i64,
    pub body: Bytes,
    pub properties: BTreeMap<String, String>,
}

/// All messages of a body.
pub fn records(mut body: Bytes) -> Result<Vec<Record>> {
    let mut all = Vec::new();
    while body.has_remaining() {
        let size = usize::try_from(body.clone().try_get_i32()?)?;
        if size < 4 || size > body.len() {
            bail!("a record of {size} bytes in {} that are left", body.len());
        }
        all.push(record(body.split_to(size)).context("record")?);
    }
    Ok(all)
}

fn record(mut from: Bytes) -> Result<Record> {
    from.try_get_i32()?; // size
    let magic = from.try_get_u32()?;
    if magic != MAGIC_V1 && magic != MAGIC_V2 {
        bail!("magic {magic:08x}");
    }
    from.try_get_i32()?; // CRC of the body
    let queue = from.try_get_i32()?;
    from.try_get_i32()?; // flag
    let offset = from.try_get_i64()?;
    from.try_get_i64()?; // physical offset
    let flags = from.try_get_i32()?;
    from.try_get_i64()?; // born at
    take(&mut from, host_bytes(flags & 0x10 != 0))?;
    let stored_ms = from.try_get_i64()?;
    take(&mut from, host_bytes(flags & 0x20 != 0))?;
    let reconsume_times = from.try_get_i32()?;
    from.try_get_i64()?; // prepared transaction
    let length = usize::try_from(from.try_get_i32()?)?;
    let body = take(&mut from, length)?;
    let length = if magic == MAGIC_V1 {
        usize::from(from.try_get_u8()?)
    } else {
        usize::from(from.try_get_u16()?)
    };
    let topic = String::from_utf8(take(&mut from, length)?.to_vec())?;
    let length = usize::from(from.try_get_u16()?);
    let properties = properties(std::str::from_utf8(&take(&mut from, length)?)?);
    if !from.is_empty() {
        bail!("{} bytes after the properties", from.len());
    }
    Ok(Record {
        topic,
        queue,
        offset,
        reconsume_times,
        stored_ms,
        body,
        properties,
    })
}

fn host_bytes(v6: bool) -> usize {
    if v6 { 20 } else { 8 }
}

fn take(from: &mut Bytes, length: usize) -> Result<Bytes> {
    if length > from.len() {
        bail!("{length} bytes wanted, {} left", from.len());
    }
    Ok(from.split_to(length))
}

fn properties(text: &str) -> BTreeMap<String, String> {
    let pairs = text
        .split('\u{2}')
        .filter_map(|item| item.split_once('\u{1}'));
    pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The property string of a send: `name 0x01 value 0x02` for each.
pub fn property_text(properties: &[(&str, &str)]) -> String {
    properties
        .iter()
        .map(|(name, value)| format!("{name}\u{1}{value}\u{2}"))
        .collect()
}
