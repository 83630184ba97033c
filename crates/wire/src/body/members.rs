//! Body of GROUP_MEMBERS (900008): who is in a group at one broker.

use serde::{Deserialize, Serialize};

/// The answer of GROUP_MEMBERS.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupMembers {
    /// By client, each once.
    pub members: Vec<GroupMember>,
}

/// One member of a group as a broker knows it. What it does not know is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupMember {
    /// Label at a gateway, or the id a RocketMQ client gives itself.
    pub client: String,
    /// How it consumes.
    pub kind: MemberKind,
    /// How it is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Name of the gateway of its last call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Address of its last call, without a port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// Language of a RocketMQ client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// When it last asked for messages, epoch ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_receive_at_ms: Option<i64>,
    /// Leases it holds; lease members only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Of its leases, acked in the last minute; lease members only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acks: Option<u64>,
    /// Of its leases, nacked or rejected in the last minute; lease members only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nacks: Option<u64>,
}

/// How a member consumes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MemberKind {
    /// It leases messages: REST, WebSocket, POP.
    #[default]
    Lease,
    /// It pulls.
    Native,
}

impl MemberKind {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Native => "native",
        }
    }
}

/// How a member is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// HTTP requests at a gateway.
    Rest,
    /// A socket at a gateway.
    WebSocket,
    /// RocketMQ remoting at the broker.
    Native,
}

impl Transport {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::WebSocket => "websocket",
            Self::Native => "native",
        }
    }

    /// Reads the word of a gateway's call; `None` = another one.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Rest, Self::WebSocket]
            .into_iter()
            .find(|transport| transport.as_str() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    #[test]
    fn words_are_the_same_in_bodies_and_headers() {
        for transport in [Transport::Rest, Transport::WebSocket, Transport::Native] {
            let text = String::from_utf8(json::to_vec(&transport)).unwrap();
            assert_eq!(text, format!("{:?}", transport.as_str()));
        }
        assert_eq!(Transport::parse("websocket"), Some(Transport::WebSocket));
        assert_eq!(Transport::parse("native"), None);
        let member = GroupMember {
            client: "w-1".into(),
            acks: Some(3),
            ..GroupMember::default()
        };
        let text = json::to_vec(&member);
        assert_eq!(
            String::from_utf8_lossy(&text),
            r#"{"client":"w-1","kind":"lease","acks":3}"#
        );
        assert_eq!(json::from_slice::<GroupMember>(&text).unwrap(), member);
    }
}
