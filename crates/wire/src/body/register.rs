//! The body of REGISTER_BROKER (103) in its three forms: JSON, deflated, and the bare table of old brokers.
//!
//! ```text
//! deflated: zlib of  i32 n, DataVersion JSON | i32 topics, each i32 n, text | i32 n, filter list JSON
//!                    | i32 mappings, each i32 n, JSON (5.x)
//! text:     name readQueues writeQueues perm filterType attributesJSON
//! ```

use std::io::Write;

use serde::{Deserialize, Serialize};

use super::{DataVersion, FilterType, TopicConfig, TopicConfigTable};
use crate::inflate::inflate;
use crate::message::reader::Reader;
use crate::{WireError, json, version};

const WHAT: &str = "register body";

/// A deflated body may not grow beyond this, bytes.
const INFLATED_MAX_BYTES: usize = 64 << 20;

/// The topics of a broker, all of them or the ones that changed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RegisterBody {
    /// Filter servers; unused.
    pub filter_server_list: Vec<String>,
    /// The topics.
    pub topic_config_serialize_wrapper: TopicConfigTable,
}

impl RegisterBody {
    /// A body with these topics.
    pub fn new(topics: TopicConfigTable) -> Self {
        Self {
            filter_server_list: Vec::new(),
            topic_config_serialize_wrapper: topics,
        }
    }

    /// Reads a body in whichever form it came: Apache's header says `compressed=false` for deflated
    /// bodies too, so the first byte decides. An empty body is an empty table.
    ///
    /// # Errors
    /// [`WireError::Json`], [`WireError::Shape`], [`WireError::Truncated`], [`WireError::Malformed`],
    /// [`WireError::TooLong`] when it inflates beyond 64 MiB.
    pub fn decode(body: &[u8], frame_version: i32, compressed: bool) -> Result<Self, WireError> {
        if compressed || body.first() == Some(&0x78) {
            let inflated = inflate(body, INFLATED_MAX_BYTES, WHAT)?;
            return if inflated.first() == Some(&b'{') {
                Self::from_json(&inflated, frame_version)
            } else {
                from_parts(&inflated)
            };
        }
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        Self::from_json(body, frame_version)
    }

    fn from_json(body: &[u8], frame_version: i32) -> Result<Self, WireError> {
        let bare = frame_version < version::V3_0_11
            || json::parse(body)?.get("topicConfigTable").is_some();
        if bare {
            Ok(Self::new(json::from_slice(body)?))
        } else {
            json::from_slice(body)
        }
    }

    /// The JSON form.
    pub fn encode(&self) -> Vec<u8> {
        json::to_vec_apache(self)
    }

    /// The deflated form.
    ///
    /// # Errors
    /// [`WireError::Malformed`] when a part is longer than 2 GiB.
    pub fn encode_deflated(&self) -> Result<Vec<u8>, WireError> {
        let table = &self.topic_config_serialize_wrapper;
        let mut parts = Vec::new();
        put_sized(&mut parts, &json::to_vec(&table.data_version))?;
        put_count(&mut parts, table.topic_config_table.len())?;
        for topic in table.topic_config_table.values() {
            put_sized(&mut parts, topic_text(topic).as_bytes())?;
        }
        put_sized(&mut parts, &json::to_vec(&self.filter_server_list))?;
        put_count(&mut parts, 0)?;
        let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        deflate
            .write_all(&parts)
            .and_then(|()| deflate.finish())
            .map_err(|_| WireError::Malformed {
                what: WHAT,
                why: "cannot be deflated",
            })
    }
}

/// The sum in `bodyCrc32`: CRC-32 of the body as sent, without its top bit.
pub fn body_crc32(body: &[u8]) -> i64 {
    i64::from(crc32fast::hash(body) & 0x7fff_ffff)
}

/// Compares the sum in the header; 0 or a value out of range stands for none.
///
/// # Errors
/// [`WireError::Checksum`].
pub fn check_crc32(header_crc32: i64, body: &[u8]) -> Result<(), WireError> {
    let actual = crc32fast::hash(body) & 0x7fff_ffff;
    match u32::try_from(header_crc32) {
        Ok(0) | Err(_) => Ok(()),
        Ok(expected) if expected == actual => Ok(()),
        Ok(expected) => Err(WireError::Checksum {
            what: WHAT,
            expected,
            actual,
        }),
    }
}

fn from_parts(bytes: &[u8]) -> Result<RegisterBody, WireError> {
    let mut at = Reader::new(bytes, WHAT);
    let data_version: DataVersion = json::from_slice(at.sized_i32()?)?;
    let mut table = TopicConfigTable {
        data_version,
        ..TopicConfigTable::default()
    };
    for _ in 0..at.i32()? {
        let topic = topic_from_text(&String::from_utf8_lossy(at.sized_i32()?))?;
        table
            .topic_config_table
            .insert(topic.topic_name.clone(), topic);
    }
    let filters = at.sized_i32()?;
    let filter_server_list = if filters.is_empty() {
        Vec::new()
    } else {
        json::from_slice(filters)?
    };
    Ok(RegisterBody {
        filter_server_list,
        topic_config_serialize_wrapper: table,
    })
}

fn topic_from_text(text: &str) -> Result<TopicConfig, WireError> {
    let malformed = |why| WireError::Malformed {
        what: "topic text",
        why,
    };
    let mut parts = text.splitn(6, ' ');
    let name = parts
        .next()
        .filter(|name| !name.is_empty())
        .ok_or_else(|| malformed("no name"))?;
    let mut number = || {
        parts
            .next()
            .and_then(|n| n.parse::<i32>().ok())
            .ok_or_else(|| malformed("bad number"))
    };
    let (read_queue_nums, write_queue_nums, perm) = (number()?, number()?, number()?);
    let topic_filter_type = match parts.next() {
        Some("MULTI_TAG") => FilterType::MultiTag,
        _ => FilterType::SingleTag,
    };
    let attributes = match parts.next() {
        Some(attributes) if !attributes.is_empty() => json::from_slice(attributes.as_bytes())?,
        _ => Default::default(),
    };
    Ok(TopicConfig {
        attributes,
        perm,
        read_queue_nums,
        topic_filter_type,
        topic_name: name.to_owned(),
        write_queue_nums,
        ..TopicConfig::default()
    })
}

fn topic_text(topic: &TopicConfig) -> String {
    let filter = match topic.topic_filter_type {
        FilterType::SingleTag => "SINGLE_TAG",
        FilterType::MultiTag => "MULTI_TAG",
    };
    let attributes = json::to_vec(&topic.attributes);
    format!(
        "{} {} {} {} {filter} {}",
        topic.topic_name,
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        String::from_utf8_lossy(&attributes)
    )
}

fn put_count(out: &mut Vec<u8>, count: usize) -> Result<(), WireError> {
    let count = i32::try_from(count).map_err(|_| WireError::Malformed {
        what: WHAT,
        why: "a part is too long",
    })?;
    out.extend_from_slice(&count.to_be_bytes());
    Ok(())
}

fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), WireError> {
    put_count(out, bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> RegisterBody {
        let mut topic = TopicConfig::new("T", 4, 6);
        topic
            .attributes
            .insert("message.type".into(), "FIFO".into());
        let topics = [topic, TopicConfig::new("U", 1, 4)];
        let mut table = TopicConfigTable::with_mappings(
            DataVersion {
                counter: 2,
                state_version: 0,
                timestamp: 7,
            },
            topics,
        );
        table.mapping_data_version = None;
        table.topic_queue_mapping_detail_map = None;
        table.topic_queue_mapping_info_map = None;
        RegisterBody::new(table)
    }

    #[test]
    fn all_three_forms_are_read() {
        let given = body();
        assert_eq!(
            RegisterBody::decode(&given.encode(), 493, false).unwrap(),
            given
        );
        let deflated = given.encode_deflated().unwrap();
        for compressed in [false, true] {
            assert_eq!(
                RegisterBody::decode(&deflated, 493, compressed).unwrap(),
                given
            );
        }
        let bare = json::to_vec(&given.topic_config_serialize_wrapper);
        assert_eq!(RegisterBody::decode(&bare, 36, false).unwrap(), given);
        assert_eq!(
            RegisterBody::decode(b"", 493, false).unwrap(),
            RegisterBody::default()
        );
    }

    #[test]
    fn cuts_are_errors() {
        let deflated = body().encode_deflated().unwrap();
        for cut in 1..deflated.len() - 4 {
            assert!(
                RegisterBody::decode(deflated.get(..cut).unwrap(), 493, true).is_err(),
                "{cut}"
            );
        }
    }

    #[test]
    fn the_sum_is_checked_when_there_is_one() {
        let sum = body_crc32(b"abc");
        assert!(check_crc32(sum, b"abc").is_ok() && check_crc32(0, b"abc").is_ok());
        assert!(check_crc32(sum, b"abd").is_err());
    }
}
