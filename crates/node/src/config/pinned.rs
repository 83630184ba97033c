//! The keys that the environment or a flag sets: what is kept elsewhere does not hold against these.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::fault::Source;
use super::load::Loaded;

/// Names of keys. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Pinned(Arc<BTreeSet<String>>);

impl Pinned {
    /// Whether the key is one of them.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.0.contains(key)
    }

    /// Those of a section, without its name, and those that stand in no section.
    #[must_use]
    pub fn section(&self, name: &str) -> Self {
        self.0
            .iter()
            .filter_map(|key| match key.split_once('.') {
                Some((section, rest)) => (section == name).then(|| rest.to_owned()),
                None => Some(key.clone()),
            })
            .collect()
    }

    /// These and one more.
    #[must_use]
    pub fn with(&self, key: &str) -> Self {
        self.0
            .iter()
            .cloned()
            .chain(std::iter::once(key.to_owned()))
            .collect()
    }
}

impl FromIterator<String> for Pinned {
    fn from_iter<I: IntoIterator<Item = String>>(keys: I) -> Self {
        Self(Arc::new(keys.into_iter().collect()))
    }
}

impl<T> Loaded<T> {
    /// The keys that the environment or a flag sets.
    #[must_use]
    pub fn pinned(&self) -> Pinned {
        self.sources
            .iter()
            .filter(|(_, source)| matches!(source, Source::Env(_) | Source::Flag(_)))
            .map(|(key, _)| key.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_has_its_own_keys_by_their_short_names() {
        let all: Pinned = ["broker.create.topics", "gateway.listen", "log", "brokers"]
            .map(str::to_owned)
            .into_iter()
            .collect();
        let broker = all.section("broker");
        assert!(broker.contains("create.topics") && broker.contains("log"));
        assert!(broker.contains("brokers"), "no section");
        assert!(!broker.contains("gateway.listen") && !broker.contains("listen"));
    }
}
