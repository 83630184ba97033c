//! Where the master key comes from: a file of 32 random bytes in base64, mode 0600, made at the first start of an
//! embedded store; on Postgres given by the operator.

use super::master_key::{MasterKey, random};
use super::{Db, DbError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// How a gateway comes to its master key.
#[derive(Clone, Debug)]
pub struct SecretsConfig {
    /// The file; none = secrets in the clear.
    pub file: Option<PathBuf>,
    /// Whether the file is made where there is none and the store holds no secrets.
    pub create: bool,
}

impl SecretsConfig {
    /// The master key of a store.
    ///
    /// # Errors
    /// [`DbError::MasterKey`]: missing, unreadable, not 32 bytes of base64, or readable by others; [`DbError::Sql`].
    pub async fn master_key(&self, db: &Db) -> Result<MasterKey, DbError> {
        let Some(path) = &self.file else {
            return Ok(MasterKey::none());
        };
        // asked first: whoever has put secrets there has made the file before
        let used = db.holds_secrets().await?;
        match read(path, used)? {
            Some(key) => Ok(key),
            None if self.create && !used => create(path),
            None if used => Err(fault(path, &format!("is missing, and {PUT_BACK}"))),
            None => Err(fault(path, &format!("is missing: {}", how_to_make(path)))),
        }
    }
}

/// What to do about a key that is lost.
const PUT_BACK: &str = "the metadata store holds secrets that were sealed with it: put back the file this store was made with";

fn how_to_make(path: &Path) -> String {
    let path = path.display();
    format!(
        "make it once for all gateways of this store: (umask 077; head -c 32 /dev/urandom | base64 > {path})"
    )
}

fn fault(path: &Path, why: &str) -> DbError {
    DbError::MasterKey {
        path: path.display().to_string(),
        why: why.to_owned(),
    }
}

/// `used`: the store holds secrets that were sealed with the key.
fn read(path: &Path, used: bool) -> Result<Option<MasterKey>, DbError> {
    let failed = |error: io::Error| fault(path, &error.to_string());
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let why = format!(
            "mode {mode:o} lets others read it: chmod 600 {}",
            path.display()
        );
        return Err(fault(path, &why));
    }
    let mut text = Vec::new();
    (&mut file)
        .take(1_024)
        .read_to_end(&mut text)
        .map_err(failed)?;
    let wrong = |what: &str| {
        let then = if used {
            PUT_BACK.to_owned()
        } else {
            how_to_make(path)
        };
        fault(
            path,
            &format!("{what}; it must hold 32 random bytes in base64: {then}"),
        )
    };
    let bytes = STANDARD
        .decode(text.trim_ascii())
        .map_err(|_| wrong("is not base64"))?;
    let key =
        MasterKey::of(&bytes).ok_or_else(|| wrong(&format!("holds {} bytes", bytes.len())))?;
    Ok(Some(key))
}

/// Makes the file whole or not at all; where another gateway has made it meanwhile, takes that one.
fn create(path: &Path) -> Result<MasterKey, DbError> {
    let failed = |error: io::Error| fault(path, &error.to_string());
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(format!(".{:016x}.new", u64::from_ne_bytes(random()?)));
    let fresh = PathBuf::from(fresh);
    let text = format!("{}\n", STANDARD.encode(random::<32>()?));
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| match std::fs::hard_link(&fresh, path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        });
    std::fs::remove_file(&fresh).ok();
    made.map_err(failed)?;
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        File::open(folder)
            .and_then(|folder| folder.sync_all())
            .map_err(failed)?;
    }
    read(path, false)?.ok_or_else(|| fault(path, "was removed as soon as it was made"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_made_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master-key");
        let sealed = create(&path).unwrap().seal("row", b"secret").unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = create(&path).unwrap();
        assert_eq!(again.open("row", &sealed).unwrap(), b"secret");
        let files = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(files, 1, "nothing but the key is left");
    }

    #[test]
    fn a_wrong_file_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master-key");
        assert!(read(&path, false).unwrap().is_none());
        let short = STANDARD.encode([1; 31]);
        for (text, mode, words) in [
            ("!", 0o600, ["is not base64", "head -c 32 /dev/urandom"]),
            (
                short.as_str(),
                0o600,
                ["holds 31 bytes", "head -c 32 /dev/urandom"],
            ),
            ("", 0o600, ["holds 0 bytes", "head -c 32 /dev/urandom"]),
            (short.as_str(), 0o644, ["mode 644", "chmod 600"]),
        ] {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let why = read(&path, false).unwrap_err().to_string();
            for word in words.iter().chain(["--master-key-file"].iter()) {
                assert!(why.contains(word), "{text}: {why}");
            }
            let used = read(&path, true).unwrap_err().to_string();
            assert_eq!(
                used.contains("put back the file"),
                mode == 0o600,
                "{text}: {used}"
            );
        }
    }
}
