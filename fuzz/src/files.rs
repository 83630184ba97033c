//! Files of the data directories that no other target reads: those of the store, the broker's tables, the name server's
//! table.

/// By the first byte.
const FILES: [fn(&[u8]); 17] = [
    store::fuzzing::checkpoint,
    store::fuzzing::checkpoint_slot,
    store::fuzzing::units,
    store::fuzzing::removed_topics,
    store::fuzzing::queue_ends,
    store::fuzzing::queue_end_lines,
    store::fuzzing::sizes,
    broker::fuzzing::topics,
    broker::fuzzing::groups,
    broker::fuzzing::offsets,
    broker::fuzzing::delay_offsets,
    broker::fuzzing::request_modes,
    broker::fuzzing::settings,
    broker::fuzzing::peers,
    broker::fuzzing::carried,
    broker::fuzzing::adopted,
    namesrv::fuzzing::kv_config,
];

/// First byte: which file; the rest is its content.
pub(crate) fn run(data: &[u8]) {
    if let Some((first, content)) = data.split_first()
        && let Some(read) = FILES.get(usize::from(*first))
    {
        read(content);
    }
}
