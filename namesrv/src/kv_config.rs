//! The key-value table: namespaces of texts, kept in `kvConfig.json` when there is a data directory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use crate::error::{NamesrvError, RunError};

/// Namespace of the queue counts of ordered topics.
pub(crate) const ORDER_TOPICS: &str = "ORDER_TOPIC_CONFIG";
/// File name, as Apache RocketMQ's.
const FILE: &str = "kvConfig.json";
/// Keys in all namespaces together.
const KEYS_MAX: usize = 100_000;
/// Characters of one key and value together.
const ENTRY_MAX: usize = 64 * 1024;

pub(crate) type Table = BTreeMap<String, BTreeMap<String, String>>;

/// What the file holds.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    #[serde(default)]
    config_table: Table,
}

/// The table and its file.
#[derive(Debug)]
pub(crate) struct KvConfig {
    table: RwLock<Table>,
    /// Held while the file is written, so that the last change is the last written.
    file: Mutex<Option<PathBuf>>,
}

impl KvConfig {
    /// Reads the file, if a directory is given; a directory or file that is missing is made.
    pub(crate) fn open(dir: Option<&str>) -> Result<Self, RunError> {
        let Some(dir) = dir else {
            return Ok(Self {
                table: RwLock::default(),
                file: Mutex::new(None),
            });
        };
        let path = Path::new(dir).join(FILE);
        let failed = |source| RunError::KvFile {
            path: path.display().to_string(),
            source,
        };
        fs::create_dir_all(dir).map_err(failed)?;
        let table = match fs::read(&path) {
            Ok(bytes) => parse(&bytes).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Table::new(),
            Err(error) => return Err(failed(error)),
        };
        Ok(Self {
            table: RwLock::new(table),
            file: Mutex::new(Some(path)),
        })
    }

    /// Sets a key. [`persist`](Self::persist) comes next.
    pub(crate) fn put(&self, namespace: &str, key: &str, value: &str) -> Result<(), NamesrvError> {
        let mut table = self.table.write();
        let known = table
            .get(namespace)
            .is_some_and(|keys| keys.contains_key(key));
        if !known && table.values().map(BTreeMap::len).sum::<usize>() >= KEYS_MAX {
            return Err(NamesrvError::Storage(format!(
                "more than {KEYS_MAX} keys are not kept"
            )));
        }
        if namespace.len() + key.len() + value.len() > ENTRY_MAX {
            return Err(NamesrvError::Storage(format!(
                "key and value are longer than {ENTRY_MAX} bytes"
            )));
        }
        table
            .entry(namespace.to_owned())
            .or_default()
            .insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    /// Removes a key; its namespace stays, as with Apache's. `persist` comes next.
    pub(crate) fn delete(&self, namespace: &str, key: &str) {
        if let Some(keys) = self.table.write().get_mut(namespace) {
            keys.remove(key);
        }
    }

    pub(crate) fn get(&self, namespace: &str, key: &str) -> Option<String> {
        self.table.read().get(namespace)?.get(key).cloned()
    }

    /// All keys of a namespace that was ever used.
    pub(crate) fn namespace(&self, namespace: &str) -> Option<BTreeMap<String, String>> {
        self.table.read().get(namespace).cloned()
    }

    /// Writes the file and waits for the disk. Blocking.
    pub(crate) fn persist(&self) -> Result<(), NamesrvError> {
        let file = self.file.lock();
        let Some(path) = file.as_deref() else {
            return Ok(());
        };
        let text = text(self.table.read().clone());
        write_whole(path, &text).map_err(|error| {
            NamesrvError::Storage(format!("{} cannot be written: {error}", path.display()))
        })
    }
}

pub(crate) fn parse(bytes: &[u8]) -> io::Result<Table> {
    let stored = wire::json::from_slice::<Stored>(bytes);
    stored
        .map(|stored| stored.config_table)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

pub(crate) fn text(config_table: Table) -> Vec<u8> {
    wire::json::to_vec(&Stored { config_table })
}

/// Replaces the file as a whole: at any moment it is the old one or the new one.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("json.new");
    let mut file = File::create(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    let dir = path.parent().unwrap_or_else(|| Path::new("."));
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("made").display().to_string();
        let kv = KvConfig::open(Some(&dir)).unwrap();
        kv.put("n", "k", "v \"quoted\"").unwrap();
        kv.put("n", "gone", "x").unwrap();
        kv.delete("n", "gone");
        kv.delete("other", "x");
        kv.persist().unwrap();
        let again = KvConfig::open(Some(&dir)).unwrap();
        assert_eq!(again.get("n", "k").as_deref(), Some("v \"quoted\""));
        assert_eq!(again.namespace("n").unwrap().len(), 1);
        assert_eq!(again.namespace("other"), None);
        fs::write(Path::new(&dir).join(FILE), "not json").unwrap();
        assert!(KvConfig::open(Some(&dir)).is_err());
    }

    #[test]
    fn too_long_entries_are_refused() {
        let kv = KvConfig::open(None).unwrap();
        assert!(kv.put("n", "k", &"x".repeat(ENTRY_MAX)).is_err());
        assert_eq!(kv.namespace("n"), None);
    }
}
