//! A setting that cannot be used, and where it was set.

use std::fmt;

/// Where a value came from, weakest first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Built in.
    Default,
    /// A TOML file.
    File(String),
    /// An environment variable.
    Env(String),
    /// A flag on the command line.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => f.write_str(path),
            Self::Env(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The key with dots, `flush.mode`; empty when the fault is about the whole.
    pub key: String,
    /// What is wrong and what would be right.
    pub message: String,
    /// Where the value was set; filled in by [`load`](super::load()).
    pub source: Option<Source>,
}

impl Fault {
    /// A fault of a key; its source is found later.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            message: message.into(),
            source: None,
        }
    }

    /// The same fault with its key below `section`, for nested structures.
    #[must_use]
    pub fn within(mut self, section: &str) -> Self {
        self.key = if self.key.is_empty() {
            section.to_owned()
        } else {
            format!("{section}.{}", self.key)
        };
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = &self.source {
            write!(f, "{source}: ")?;
        }
        // A flag or variable names its key by itself.
        let named = matches!(self.source, Some(Source::Env(_) | Source::Flag(_)));
        if !self.key.is_empty() && !named {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// All faults of a process's settings; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
