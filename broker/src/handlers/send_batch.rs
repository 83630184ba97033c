//! Several messages in one send: consecutive in their queue, all stored or none.

use std::net::SocketAddr;
use std::sync::Arc;

use store::MessageDraft;
use wire::Command;
use wire::inflate::inflate;
use wire::message::batch::decode_batch;
use wire::message::flags;
use wire::message::id::offset_msg_id;
use wire::message::properties::{PropertiesView, names as property, push};
use wire::message::record::RecordFields;

use super::send::{Stored, too_large};
use super::send_request::{SendRequest, Wishes, check_body, check_properties};
use crate::broker::Broker;
use crate::carry::CARRIED;
use crate::delay;
use crate::error::BrokerError;
use crate::names;
use crate::topic::TopicConfig;

/// Most messages of one batch.
const BATCH_MAX: usize = 16_384;

/// Checks and appends the entries. Each keeps exactly its own properties.
pub(crate) fn store(
    broker: &Arc<Broker>,
    cmd: &Command,
    request: &SendRequest<'_>,
    topic: &TopicConfig,
    queue_id: i32,
    peer: SocketAddr,
) -> Result<Stored, BrokerError> {
    if names::is_retry(request.topic) {
        return Err(BrokerError::MessageIllegal(format!(
            "batch request does not support retry group {}",
            names::shorten(request.topic)
        )));
    }
    let body = cmd.body.to_bytes();
    check_body(broker, body.len())?;
    let illegal = |error: wire::WireError| BrokerError::MessageIllegal(error.to_string());
    let unpacked;
    let mut sys_flag = request.client_sys_flag();
    let entries = match decode_batch(&body) {
        Ok(entries) => entries,
        Err(_) if is_packed(sys_flag) => {
            let limit = broker.live.message_size_bytes();
            unpacked = inflate(&body, limit, "compressed batch").map_err(illegal)?;
            sys_flag &= !(flags::COMPRESSED | flags::COMPRESSION_MASK);
            decode_batch(&unpacked).map_err(illegal)?
        }
        Err(error) => return Err(illegal(error)),
    };
    if entries.len() > BATCH_MAX {
        return Err(BrokerError::MessageIllegal(format!(
            "the batch has {} messages, the limit is {BATCH_MAX}",
            entries.len()
        )));
    }
    let mut properties = Vec::with_capacity(entries.len());
    for entry in &entries {
        let wishes = Wishes::of(entry.properties);
        wishes.check_supported()?;
        wishes.check_type(request, topic)?;
        if wishes.delay_level > 0 {
            return Err(BrokerError::MessageIllegal(
                "a batch cannot hold delayed messages".to_owned(),
            ));
        }
        let text = keep(entry.properties);
        check_properties(text.len())?;
        properties.push(text);
    }
    let drafts: Vec<MessageDraft<'_>> = entries
        .iter()
        .zip(&properties)
        .map(|(entry, properties)| {
            MessageDraft::from(RecordFields {
                topic: request.topic,
                queue_id,
                flag: entry.flag,
                sys_flag,
                born_ts_ms: request.born_ts_ms,
                born_host: peer,
                store_host: broker.store_host,
                reconsume_times: request.reconsume_times.max(0),
                prepared_offset: 0,
                body: entry.body,
                properties: properties.as_bytes(),
            })
        })
        .collect();
    let outcomes = broker
        .store
        .append_batch(&drafts)
        .map_err(|error| too_large(error.into()))?;
    let (Some(first), Some(last)) = (outcomes.first(), outcomes.last()) else {
        return Err(BrokerError::Internal("a batch without outcome"));
    };
    broker.metrics.put_messages.inc_by(outcomes.len() as u64);
    let bytes = outcomes
        .iter()
        .map(|outcome| u64::from(outcome.wrote_bytes))
        .sum();
    broker.metrics.put_bytes.inc_by(bytes);
    broker.stats.put(
        request.topic,
        outcomes.len() as u64,
        bytes,
        broker.clock.monotonic(),
    );
    let ids: Vec<String> = outcomes
        .iter()
        .map(|outcome| offset_msg_id(broker.store_host, outcome.physical_offset.to_wire()))
        .collect();
    Ok(Stored {
        last: *last,
        msg_id: ids.join(","),
        queue_id,
        queue_offset: first.queue_offset.to_wire(),
        transaction_id: PropertiesView::new(request.properties.as_bytes())
            .get(property::UNIQ_KEY)
            .map(str::to_owned),
        want_flushed: request.want_flushed,
    })
}

/// Whether the batch may be packed as a whole: the C++ client does so from 4 KiB on. Its messages are then stored unpacked,
/// since a consumer knows only messages with packed bodies.
fn is_packed(sys_flag: i32) -> bool {
    let kind = sys_flag & flags::COMPRESSION_MASK;
    sys_flag & flags::COMPRESSED != 0 && (kind == 0 || kind == flags::COMPRESSION_ZLIB)
}

/// An entry's own properties, less what only the broker may say.
fn keep(sent: &[u8]) -> String {
    let mut out = String::with_capacity(sent.len() + 1);
    for (name, value) in PropertiesView::new(sent).iter() {
        if !matches!(
            name,
            property::POP_CK | property::LEASE | delay::DELAYED_FROM | delay::DUE | CARRIED
        ) {
            push(&mut out, name, value);
        }
    }
    out
}
