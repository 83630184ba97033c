//! The master key: 32 random bytes in a file of its own (0600); seals the secrets in the metadata store.

use super::DbError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Opens and seals secrets (AES-256-GCM, random nonce before the text; the purpose is authenticated too).
pub struct MasterKey(LessSafeKey);

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterKey")
    }
}

impl MasterKey {
    /// Reads the key, or makes the file where there is none.
    ///
    /// # Errors
    /// [`DbError::MasterKey`]: unreadable, not 32 bytes of base64, or readable by others.
    pub fn open_or_create(path: &Path) -> Result<Self, DbError> {
        let fault = |why: String| DbError::MasterKey {
            path: path.display().to_string(),
            why,
        };
        let made = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        match made {
            Ok(mut file) => {
                let bytes = random::<32>().map_err(|e| fault(e.to_string()))?;
                let text = format!("{}\n", STANDARD.encode(bytes));
                file.write_all(text.as_bytes())
                    .and_then(|()| file.sync_all())
                    .map_err(|e| fault(e.to_string()))?;
                Self::of(&bytes).ok_or_else(|| fault("cannot be used as a key".into()))
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let mut file = std::fs::File::open(path).map_err(|e| fault(e.to_string()))?;
                let mode = file
                    .metadata()
                    .map_err(|e| fault(e.to_string()))?
                    .permissions()
                    .mode();
                if mode & 0o077 != 0 {
                    return Err(fault(format!(
                        "mode {:o} lets others read it; chmod 600",
                        mode & 0o777
                    )));
                }
                let mut text = String::new();
                (&mut file)
                    .take(1_024)
                    .read_to_string(&mut text)
                    .map_err(|e| fault(e.to_string()))?;
                let bytes = STANDARD
                    .decode(text.trim())
                    .map_err(|_| fault("is not base64".into()))?;
                Self::of(&bytes).ok_or_else(|| fault("holds no 32 bytes".into()))
            }
            Err(error) => Err(fault(error.to_string())),
        }
    }

    fn of(bytes: &[u8]) -> Option<Self> {
        UnboundKey::new(&AES_256_GCM, bytes)
            .ok()
            .map(|key| Self(LessSafeKey::new(key)))
    }

    /// The sealed form of a secret, base64.
    ///
    /// # Errors
    /// [`DbError::WrongMasterKey`] when the system has no random bytes.
    pub fn seal(&self, purpose: &str, secret: &[u8]) -> Result<String, DbError> {
        let nonce = random::<NONCE_LEN>().map_err(|_| DbError::WrongMasterKey)?;
        let mut sealed = secret.to_vec();
        self.0
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(purpose),
                &mut sealed,
            )
            .map_err(|_| DbError::WrongMasterKey)?;
        Ok(STANDARD.encode([&nonce[..], &sealed].concat()))
    }

    /// The secret of a sealed text.
    ///
    /// # Errors
    /// [`DbError::WrongMasterKey`].
    pub fn open(&self, purpose: &str, sealed: &str) -> Result<Vec<u8>, DbError> {
        let bytes = STANDARD
            .decode(sealed)
            .map_err(|_| DbError::WrongMasterKey)?;
        let (nonce, text) = bytes
            .split_at_checked(NONCE_LEN)
            .ok_or(DbError::WrongMasterKey)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| DbError::WrongMasterKey)?;
        let mut text = text.to_vec();
        let secret = self
            .0
            .open_in_place(nonce, Aad::from(purpose), &mut text)
            .map_err(|_| DbError::WrongMasterKey)?;
        Ok(secret.to_vec())
    }
}

/// Random bytes of the system.
pub(super) fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_made_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master-key");
        let sealed = MasterKey::open_or_create(&path)
            .unwrap()
            .seal("receipt:1", b"secret")
            .unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let again = MasterKey::open_or_create(&path).unwrap();
        assert_eq!(again.open("receipt:1", &sealed).unwrap(), b"secret");
        assert!(again.open("receipt:2", &sealed).is_err());
        assert!(
            MasterKey::open_or_create(&dir.path().join("other"))
                .unwrap()
                .open("receipt:1", &sealed)
                .is_err()
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(
            MasterKey::open_or_create(&path)
                .unwrap_err()
                .to_string()
                .contains("644")
        );
    }
}
