//! The three forms a registration's body comes in (RocketMQ 5.4.0 RegisterBrokerBody).
//!
//! ```text
//! version < 37   TopicConfigSerializeWrapper as JSON
//! plain          RegisterBrokerBody as JSON
//! deflated       zlib of: i32 n, DataVersion JSON | i32 count | count × (i32 n, "name read write perm filter attributes")
//!                         | i32 n, filter servers JSON | (from 5.0.0) i32 count, static topics
//! ```

use std::io::Read;

use bytes::{Buf, Bytes};
use flate2::read::ZlibDecoder;
use wire::Command;
use wire::headers::register_broker::RegisterBrokerRequest;

use crate::bodies::{DataVersion, RegisterBody, TopicConfigs};
use crate::error::NamesrvError;
use crate::route_table::{Queues, Version};

/// Before this version (3.0.11) the body is the bare topic table.
const BARE_TABLE_BELOW: i32 = wire::version::V3_0_11;
/// Inflated size at which a body is refused.
const INFLATED_MAX_BYTES: u64 = 128 << 20;
/// First byte of a zlib stream; JSON never starts with it.
const ZLIB: u8 = 0x78;

/// What a broker tells about its topics.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) version: Version,
    pub(crate) topics: Vec<(String, Queues)>,
}

/// Reads the body; none at all is an empty table of version 0.
pub(crate) fn read(cmd: &Command, head: &RegisterBrokerRequest) -> Result<Told, NamesrvError> {
    let body = cmd.body.to_bytes();
    let expected = head.body_crc32;
    // Java keeps the sum in 31 bits.
    if expected != 0 && expected != i64::from(crc32fast::hash(&body) & 0x7fff_ffff) {
        return Err(NamesrvError::Checksum);
    }
    let unreadable = |error: wire::WireError| NamesrvError::Body(error.to_string());
    match body.first() {
        None => Ok(Told::default()),
        // Apache brokers deflate and say `compressed=false`, so the bytes decide.
        Some(&ZLIB) => inflate(&body),
        Some(_) if cmd.version < BARE_TABLE_BELOW => wire::json::from_slice(&body).map(table).map_err(unreadable),
        Some(_) => {
            let body: RegisterBody = wire::json::from_slice(&body).map_err(unreadable)?;
            Ok(table(body.topic_config_serialize_wrapper.unwrap_or_default()))
        }
    }
}

fn table(configs: TopicConfigs) -> Told {
    let topics = configs.topic_config_table.unwrap_or_default();
    Told {
        version: configs.data_version.unwrap_or_default().into(),
        topics: topics.iter().map(|(name, config)| (name.clone(), Queues::from(config))).collect(),
    }
}

fn inflate(deflated: &[u8]) -> Result<Told, NamesrvError> {
    let broken = |why: &str| NamesrvError::Body(format!("deflated body: {why}"));
    let mut plain = Vec::new();
    let mut decoder = ZlibDecoder::new(deflated).take(INFLATED_MAX_BYTES + 1);
    decoder.read_to_end(&mut plain).map_err(|error| broken(&error.to_string()))?;
    if plain.len() as u64 > INFLATED_MAX_BYTES {
        return Err(broken("too large"));
    }
    let mut rest = Bytes::from(plain);
    let version = sized(&mut rest).ok_or_else(|| broken("cut in the data version"))?;
    let version: DataVersion = wire::json::from_slice(&version).map_err(|error| broken(&error.to_string()))?;
    let count = rest.try_get_i32().map_err(|_| broken("cut before the topics"))?;
    let mut topics = Vec::new();
    for _ in 0..count {
        let line = sized(&mut rest).ok_or_else(|| broken("cut in a topic"))?;
        let line = String::from_utf8_lossy(&line);
        topics.push(topic(&line).ok_or_else(|| broken(&format!("topic {line:?}")))?);
    }
    Ok(Told { version: version.into(), topics })
}

/// Bytes behind their length.
fn sized(rest: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(rest.try_get_i32().ok()?).ok()?;
    (length <= rest.len()).then(|| rest.split_to(length))
}

fn topic(line: &str) -> Option<(String, Queues)> {
    let mut parts = line.split(' ');
    let name = parts.next().filter(|name| !name.is_empty())?;
    let mut number = || parts.next()?.parse().ok();
    let (read, write, perm) = (number()?, number()?, number()?);
    Some((name.to_owned(), Queues { read, write, perm, sys_flag: 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use wire::RequestCode;

    fn told(body: Vec<u8>, version: i32, crc: i64) -> Result<Told, NamesrvError> {
        let mut cmd = Command::request(RequestCode::RegisterBroker).with_body(body);
        cmd.version = version;
        read(&cmd, &RegisterBrokerRequest { body_crc32: crc, ..RegisterBrokerRequest::default() })
    }

    const TABLE: &str = r#"{"dataVersion":{"counter":2,"stateVersion":0,"timestamp":7},"topicConfigTable":{"T":{"attributes":{},"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":1,"writeQueueNums":3}}}"#;

    fn expected(sys_flag: i32) -> Told {
        Told {
            version: Version { counter: 2, state_version: 0, timestamp_ms: 7 },
            topics: vec![("T".to_owned(), Queues { read: 4, write: 3, perm: 6, sys_flag })],
        }
    }

    #[test]
    fn the_three_forms_say_the_same() {
        assert_eq!(told(TABLE.into(), 36, 0).unwrap(), expected(1));
        let whole = format!("{{\"filterServerList\":[],\"topicConfigSerializeWrapper\":{TABLE}}}");
        assert_eq!(told(whole.into(), 493, 0).unwrap(), expected(1));

        let mut plain = Vec::new();
        for part in [r#"{"counter":2,"stateVersion":0,"timestamp":7}"#, "T 4 3 6 SINGLE_TAG {}"] {
            plain.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
            plain.extend(part.bytes());
            if part.starts_with('{') {
                plain.extend(1_i32.to_be_bytes());
            }
        }
        let deflate = |plain: &[u8]| {
            let mut out = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
            out.write_all(plain).unwrap();
            out.finish().unwrap()
        };
        assert_eq!(told(deflate(&plain), 493, 0).unwrap(), expected(0));
        for cut in 0..plain.len() {
            assert!(told(deflate(&plain[..cut]), 493, 0).is_err(), "{cut}");
        }
        assert!(told(deflate(&plain)[..20].to_vec(), 493, 0).is_err());
    }

    #[test]
    fn nothing_and_nulls_are_an_empty_table() {
        assert_eq!(told(Vec::new(), 493, 0).unwrap(), Told::default());
        let nulls = r#"{"topicConfigSerializeWrapper":{"dataVersion":null,"topicConfigTable":null}}"#;
        assert_eq!(told(nulls.into(), 493, 0).unwrap(), Told::default());
        assert!(told("{{{{".into(), 493, 0).is_err());
    }

    #[test]
    fn the_checksum_is_of_the_raw_body_in_31_bits() {
        let sum = i64::from(crc32fast::hash(TABLE.as_bytes()) & 0x7fff_ffff);
        assert!(told(TABLE.into(), 36, sum).is_ok());
        assert!(matches!(told(TABLE.into(), 36, sum ^ 1), Err(NamesrvError::Checksum)));
    }
}
