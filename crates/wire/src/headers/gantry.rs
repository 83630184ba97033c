//! Headers of Gantry's own requests (900001 to 900010). The bodies are in [`crate::body::gantry`].

/// Ext field of error answers: a stable word for programs.
pub const REASON: &str = "reason";

super::header! {
    /// PUT_TOPIC 900001; the body is a TopicSpec.
    PutTopicRequest {
        /// Topic.
        topic: String = "topic",
        /// `0` must not exist, `n` must be version n, absent = any.
        expect: Option<u64> = "expect",
        /// Version to give it.
        version: Option<u64> = "version",
    }
}

super::header! {
    /// PUT_GROUP 900003; the body is a GroupSpec.
    PutGroupRequest {
        /// Group.
        group: String = "group",
        /// `0` must not exist, `n` must be version n, absent = any.
        expect: Option<u64> = "expect",
        /// Version to give it.
        version: Option<u64> = "version",
    }
}

super::header! {
    /// PUT_SUBSCRIPTION 900005 (the body is a SubscriptionSpec) and DELETE_SUBSCRIPTION 900006.
    SubscriptionRequest {
        /// Group.
        group: String = "group",
        /// Topic.
        topic: String = "topic",
        /// `0` must not exist, `n` must be version n, absent = any.
        expect: Option<u64> = "expect",
    }
}

pub use super::group::GroupRequest;
pub use super::topic::TopicRequest;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExtFields, Header, WireError};

    #[test]
    fn expectations_round_trip() {
        for expect in [None, Some(0), Some(u64::MAX)] {
            let put = PutTopicRequest {
                topic: "T".into(),
                expect,
                version: None,
            };
            let mut ext = ExtFields::new();
            put.encode(&mut ext);
            assert_eq!(PutTopicRequest::decode(&ext), Ok(put));
        }
        let mut ext = ExtFields::new();
        ext.put("group", "g");
        ext.put("expect", "-1");
        let refused = PutGroupRequest::decode(&ext).unwrap_err();
        assert!(
            matches!(
                refused,
                WireError::InvalidField {
                    field: "expect",
                    ..
                }
            ),
            "{refused}"
        );
    }
}
