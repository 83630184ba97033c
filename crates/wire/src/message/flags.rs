//! Bits of a message's sysFlag (RocketMQ 5.4.0 MessageSysFlag) and of a pull's (PullSysFlag).

/// The body is compressed.
pub const COMPRESSED: i32 = 0x1;
/// The message has several tags.
pub const MULTI_TAGS: i32 = 0x2;
/// Mask of the transaction kind.
pub const TRANSACTION_MASK: i32 = 0xc;
/// Half message of a transaction.
pub const TRANSACTION_PREPARED: i32 = 0x4;
/// Committed message of a transaction.
pub const TRANSACTION_COMMIT: i32 = 0x8;
/// Rolled-back message of a transaction.
pub const TRANSACTION_ROLLBACK: i32 = 0xc;
/// The born host is IPv6.
pub const BORN_HOST_V6: i32 = 0x10;
/// The store host is IPv6.
pub const STORE_HOST_V6: i32 = 0x20;
/// An inner batch that must be unwrapped for the consumer.
pub const NEED_UNWRAP: i32 = 0x40;
/// The body is several encoded messages.
pub const INNER_BATCH: i32 = 0x80;
/// Mask of the compression kind; none of the bits means ZLIB too.
pub const COMPRESSION_MASK: i32 = 0x700;
/// LZ4 frame.
pub const COMPRESSION_LZ4: i32 = 0x100;
/// ZSTD frame.
pub const COMPRESSION_ZSTD: i32 = 0x200;
/// ZLIB stream (RFC 1950).
pub const COMPRESSION_ZLIB: i32 = 0x300;

/// Pull: the request carries an offset to commit.
pub const PULL_COMMIT_OFFSET: i32 = 0x1;
/// Pull: wait for messages.
pub const PULL_SUSPEND: i32 = 0x2;
/// Pull: the subscription is in the request.
pub const PULL_SUBSCRIPTION: i32 = 0x4;
/// Pull: class filter.
pub const PULL_CLASS_FILTER: i32 = 0x8;
/// Pull: lite pull.
pub const PULL_LITE: i32 = 0x10;

/// The transaction bits alone.
pub fn transaction_kind(sys_flag: i32) -> i32 {
    sys_flag & TRANSACTION_MASK
}
