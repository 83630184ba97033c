//! MQVersion ordinals: what `version` in a frame header means (RocketMQ 5.4.0 MQVersion).

/// What Gantry puts into its own frames: the ordinal of V5_4_0, the release it follows.
pub const OURS: i32 = V5_4_0;

/// From here on a register body is wrapped (RegisterBrokerBody).
pub const V3_0_11: i32 = 37;
/// From here on a client answers running-info and consume-directly calls.
pub const V3_1_8_SNAPSHOT: i32 = 62;
/// From here on CONSUMER_SEND_MSG_BACK carries maxReconsumeTimes.
pub const V3_4_9: i32 = 121;
/// From here on a client may check SQL92 filters on the broker.
pub const V4_1_0_SNAPSHOT: i32 = 232;
/// The last version whose ACL content rule leaves no field out.
pub const V4_9_3: i32 = 399;
/// From here on a client reads quoted integer keys in route JSON.
pub const V4_9_4: i32 = 401;
/// 4.9.8.
pub const V4_9_8: i32 = 409;
/// 5.0.0.
pub const V5_0_0: i32 = 413;
/// Clients above this understand GO_AWAY.
pub const V5_3_1: i32 = 475;
/// 5.4.0.
pub const V5_4_0: i32 = 493;
