//! Language: the sender's language in a frame header (RocketMQ 5.4.0 LanguageCode).

/// Language of the sender. Unknown names and ordinals become [`Language::Unknown`] and are written as
/// `OTHER`, which every receiver can parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Language {
    /// Also what Gantry writes into its own frames: old clients fail on names they do not list.
    #[default]
    Java,
    Cpp,
    Dotnet,
    Python,
    Delphi,
    Erlang,
    Ruby,
    Other,
    Http,
    Go,
    Php,
    Oms,
    Rust,
    NodeJs,
    /// Anything else.
    Unknown,
}

/// In ordinal order.
const ALL: [(Language, &str); 14] = [
    (Language::Java, "JAVA"),
    (Language::Cpp, "CPP"),
    (Language::Dotnet, "DOTNET"),
    (Language::Python, "PYTHON"),
    (Language::Delphi, "DELPHI"),
    (Language::Erlang, "ERLANG"),
    (Language::Ruby, "RUBY"),
    (Language::Other, "OTHER"),
    (Language::Http, "HTTP"),
    (Language::Go, "GO"),
    (Language::Php, "PHP"),
    (Language::Oms, "OMS"),
    (Language::Rust, "RUST"),
    (Language::NodeJs, "NODE_JS"),
];

impl Language {
    /// From the name in a JSON header.
    pub fn from_name(name: &str) -> Self {
        ALL.iter()
            .find(|(_, n)| *n == name)
            .map_or(Self::Unknown, |(l, _)| *l)
    }

    /// From the ordinal in a binary header.
    pub fn from_ordinal(ordinal: u8) -> Self {
        ALL.get(usize::from(ordinal))
            .map_or(Self::Unknown, |(l, _)| *l)
    }

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        ALL.iter()
            .find(|(l, _)| *l == self)
            .map_or("OTHER", |(_, n)| n)
    }

    /// The ordinal in a binary header.
    pub fn ordinal(self) -> u8 {
        ALL.iter()
            .position(|(l, _)| *l == self)
            .and_then(|i| u8::try_from(i).ok())
            .unwrap_or(7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ordinals_agree() {
        assert_eq!(Language::from_name("GO"), Language::Go);
        assert_eq!(Language::from_ordinal(9), Language::Go);
        assert_eq!(Language::Go.ordinal(), 9);
        assert_eq!(Language::from_name("COBOL"), Language::Unknown);
        assert_eq!(Language::from_ordinal(200).name(), "OTHER");
        assert_eq!(Language::NodeJs.ordinal(), 13);
    }
}
