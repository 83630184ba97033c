//! Settings that are read and changed over the wire (318, 319), as Java properties text.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::error::NamesrvError;

/// Keys that nobody may change from afar.
const BLACK_LIST: [&str; 3] = ["configBlackList", "configStorePath", "kvConfigPath"];
/// Keys that may be changed, under RocketMQ's names; all but the last are switches.
const CHANGEABLE: [&str; 5] = [
    "enableAllTopicList",
    "enableTopicList",
    "orderMessageEnable",
    "returnOrderTopicConfigToBroker",
    "productEnvName",
];

/// The values in force.
#[derive(Debug, Clone)]
pub(crate) struct RuntimeConfig {
    values: BTreeMap<String, String>,
}

impl RuntimeConfig {
    pub(crate) fn new(config: &Config) -> Self {
        let values = [
            ("bindAddress", config.listen.ip().to_string()),
            ("configBlackList", BLACK_LIST.join(";")),
            ("enableAllTopicList", "true".to_owned()),
            ("enableTopicList", "true".to_owned()),
            (
                "kvConfigPath",
                config
                    .data
                    .as_ref()
                    .map(|dir| format!("{dir}/kvConfig.json"))
                    .unwrap_or_default(),
            ),
            ("listenPort", config.listen.port().to_string()),
            ("orderMessageEnable", "false".to_owned()),
            ("productEnvName", "center".to_owned()),
            ("returnOrderTopicConfigToBroker", "true".to_owned()),
            (
                "scanNotActiveBrokerInterval",
                config.scan_interval.millis().to_string(),
            ),
        ];
        Self {
            values: values
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        }
    }

    pub(crate) fn is_on(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(|value| value == "true")
    }

    /// GET_NAMESRV_CONFIG (319).
    pub(crate) fn text(&self) -> String {
        self.values
            .iter()
            .map(|(key, value)| format!("{key}={value}\n"))
            .collect()
    }

    /// UPDATE_NAMESRV_CONFIG (318): all of the text's keys or none. Lines without `=` are ignored.
    pub(crate) fn update(&mut self, text: &str) -> Result<(), NamesrvError> {
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with(['#', '!']));
        let given: Vec<(&str, &str)> = lines
            .filter_map(|line| line.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim()))
            .collect();
        for (key, value) in &given {
            if BLACK_LIST.contains(key) {
                return Err(NamesrvError::NotAllowed(
                    "Can not update config in black list.".to_owned(),
                ));
            }
            let same = self.values.get(*key).is_some_and(|now| now == value);
            if !CHANGEABLE.contains(key) && !same {
                let may = CHANGEABLE.join(", ");
                return Err(NamesrvError::NotAllowed(format!(
                    "{key} cannot be changed at run time; these can: {may}"
                )));
            }
            if *key != "productEnvName" && !same && !matches!(*value, "true" | "false") {
                return Err(NamesrvError::NotAllowed(format!(
                    "{key} must be true or false"
                )));
            }
        }
        self.values.extend(
            given
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_all_or_nothing() {
        let mut settings = RuntimeConfig::new(&Config::default());
        settings
            .update("orderMessageEnable=true\n\nno equals sign\nproductEnvName = lab\n")
            .unwrap();
        assert!(settings.is_on("orderMessageEnable"));
        assert!(settings.text().contains("productEnvName=lab\n"));
        for refused in [
            "kvConfigPath=/x",
            "enableTopicList=false\nlistenPort=1",
            "enableTopicList=maybe",
        ] {
            assert!(settings.update(refused).is_err(), "{refused}");
        }
        assert!(settings.is_on("enableTopicList"));
        settings.update("listenPort=9876").unwrap();
    }
}
