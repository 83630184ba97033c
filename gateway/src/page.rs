//! Page tokens: where a list goes on, signed, bound to the list, valid for an hour.

use crate::error::{ApiError, Code};
use crate::params::Query;
use crate::receipt::ReceiptKeys;
use crate::signing::Signer;
use sha2::{Digest, Sha256};

/// Validity.
const HOUR_MS: i64 = 3_600_000;
/// `limit` of a list.
const LIMIT_MAX: u64 = 500;
const LIMIT_DEFAULT: u64 = 50;

/// Signs tokens with the keys all gateways share.
#[derive(Clone, Debug)]
pub struct PageKeys(Signer);

impl PageKeys {
    /// With the keys of the receipts.
    #[must_use]
    pub fn of(receipts: &ReceiptKeys) -> Self {
        Self(receipts.signer("page token"))
    }

    /// The token that goes on after `position`. `list` is path and filters.
    #[must_use]
    pub fn encode(&self, list: &str, position: &str, now_ms: i64) -> String {
        self.sign(list, position.as_bytes(), now_ms + HOUR_MS)
    }

    /// The token of a position that is written down, good until `until_ms`, epoch ms.
    pub(crate) fn sign(&self, list: &str, position: &[u8], until_ms: i64) -> String {
        let until = until_ms.to_be_bytes();
        self.0
            .seal(&[&until, &list_hash(list)[..], position].concat())
    }

    /// The position of a token of this list.
    ///
    /// # Errors
    /// `page_token_invalid`, `page_token_mismatch`, `page_token_expired`.
    pub fn decode(&self, list: &str, token: &str, now_ms: i64) -> Result<String, ApiError> {
        let invalid = || {
            ApiError::field(
                Code::PageTokenInvalid,
                "?pageToken",
                "this pageToken was not given by this cluster or was changed",
            )
        };
        let bytes = self.0.open(token).ok_or_else(invalid)?;
        let (until, rest) = bytes.split_first_chunk::<8>().ok_or_else(invalid)?;
        let (hash, position) = rest.split_first_chunk::<8>().ok_or_else(invalid)?;
        if *hash != list_hash(list) {
            let detail =
                "this pageToken belongs to another list or other filters; keep both while paging";
            return Err(ApiError::field(
                Code::PageTokenMismatch,
                "?pageToken",
                detail,
            ));
        }
        if i64::from_be_bytes(*until) < now_ms {
            return Err(ApiError::field(
                Code::PageTokenExpired,
                "?pageToken",
                "a pageToken is valid for an hour; begin again",
            ));
        }
        String::from_utf8(position.to_vec()).map_err(|_| invalid())
    }
}

fn list_hash(list: &str) -> [u8; 8] {
    let full = Sha256::digest(list.as_bytes());
    let mut hash = [0; 8];
    hash.copy_from_slice(&full[..8]);
    hash
}

/// `limit`, 1–500, default 50.
///
/// # Errors
/// `invalid_field`.
pub fn limit(query: &Query) -> Result<usize, ApiError> {
    let limit = query.integer("limit", 1..=LIMIT_MAX, LIMIT_DEFAULT, Code::InvalidField)?;
    Ok(usize::try_from(limit).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_bound_to_list_time_and_key() {
        let keys = PageKeys::of(&ReceiptKeys::new(&[(1, [5; 32])]));
        let token = keys.encode("/topics?prefix=a", "orders", 1_000);
        let code =
            |list: &str, token: &str, now| keys.decode(list, token, now).map_err(|e| e.code());
        assert_eq!(
            code("/topics?prefix=a", &token, 1_000),
            Ok("orders".to_owned())
        );
        assert_eq!(
            code("/topics?prefix=b", &token, 1_000),
            Err(Code::PageTokenMismatch)
        );
        assert_eq!(
            code("/topics?prefix=a", &token, 1_001 + HOUR_MS),
            Err(Code::PageTokenExpired)
        );
        for bad in ["", "x", "AAAA", &format!("A{token}")] {
            assert_eq!(
                code("/topics?prefix=a", bad, 1_000),
                Err(Code::PageTokenInvalid),
                "{bad}"
            );
        }
    }
}
