//! The master key: seals the secrets in the metadata store.

use super::DbError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// Marks a secret that was stored without a master key. No base64 text begins so.
const PLAIN: &str = "plain:";

/// Opens and seals secrets: AES-256-GCM, a random nonce before the text, base64. The name of table, column and row is
/// authenticated too, so that a sealed secret is of use in its own row only.
pub struct MasterKey(Option<LessSafeKey>);

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "MasterKey"
        } else {
            "MasterKey(none)"
        })
    }
}

impl MasterKey {
    /// A key; none where there are not 32 bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        UnboundKey::new(&AES_256_GCM, bytes)
            .ok()
            .map(|key| Self(Some(LessSafeKey::new(key))))
    }

    /// No key: secrets are stored in the clear.
    #[must_use]
    pub fn none() -> Self {
        Self(None)
    }

    /// The stored form of the secret of a row.
    ///
    /// # Errors
    /// [`DbError::Random`] when the system has no random bytes.
    pub fn seal(&self, row: &str, secret: &[u8]) -> Result<String, DbError> {
        let Some(key) = &self.0 else {
            return Ok(format!("{PLAIN}{}", STANDARD.encode(secret)));
        };
        let nonce = random::<NONCE_LEN>()?;
        let mut sealed = secret.to_vec();
        key.seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(row),
            &mut sealed,
        )
        .map_err(|_| DbError::Random)?;
        Ok(STANDARD.encode([&nonce[..], &sealed].concat()))
    }

    /// The secret of a row's stored form.
    ///
    /// # Errors
    /// [`DbError::WrongMasterKey`]; [`DbError::Plain`] when it is stored in the clear and there is a master key: whoever
    /// can write the store could else give the gateways a key of their own.
    pub fn open(&self, row: &str, stored: &str) -> Result<Vec<u8>, DbError> {
        let wrong = || DbError::WrongMasterKey { row: row.into() };
        match (&self.0, stored.strip_prefix(PLAIN)) {
            (None, Some(plain)) => STANDARD.decode(plain).map_err(|_| wrong()),
            (Some(_), Some(_)) => Err(DbError::Plain { row: row.into() }),
            (None, None) => Err(wrong()),
            (Some(key), None) => opened(key, row, stored).ok_or_else(wrong),
        }
    }
}

fn opened(key: &LessSafeKey, row: &str, stored: &str) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(stored).ok()?;
    let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut sealed = sealed.to_vec();
    let secret = key.open_in_place(nonce, Aad::from(row), &mut sealed).ok()?;
    Some(secret.to_vec())
}

/// Random bytes of the system.
pub(super) fn random<const N: usize>() -> Result<[u8; N], DbError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| DbError::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_with_its_key_in_its_row_unchanged() {
        let key = MasterKey::of(&[1; 32]).unwrap();
        let sealed = key.seal("keys.key_enc of receipt:1", b"secret").unwrap();
        assert_eq!(
            key.open("keys.key_enc of receipt:1", &sealed).unwrap(),
            b"secret"
        );
        let wrong = |result: Result<Vec<u8>, DbError>| {
            assert!(
                matches!(result, Err(DbError::WrongMasterKey { .. })),
                "{result:?}"
            );
        };
        wrong(key.open("keys.key_enc of receipt:2", &sealed));
        let other = MasterKey::of(&[2; 32]).unwrap();
        wrong(other.open("keys.key_enc of receipt:1", &sealed));
        wrong(MasterKey::none().open("keys.key_enc of receipt:1", &sealed));
        let mut changed = STANDARD.decode(&sealed).unwrap();
        changed[15] ^= 1;
        wrong(key.open("keys.key_enc of receipt:1", &STANDARD.encode(changed)));
        for junk in ["", "AAAA", "not base64"] {
            wrong(key.open("keys.key_enc of receipt:1", junk));
        }
        assert!(MasterKey::of(&[1; 31]).is_none());
    }

    #[test]
    fn a_secret_in_the_clear_opens_only_without_a_key() {
        let plain = MasterKey::none().seal("row", b"secret").unwrap();
        assert_eq!(MasterKey::none().open("row", &plain).unwrap(), b"secret");
        let key = MasterKey::of(&[1; 32]).unwrap();
        assert!(matches!(
            key.open("row", &plain),
            Err(DbError::Plain { .. })
        ));
    }
}
