//! Versions, deletions, marks and registration views of a table.

use super::*;
use crate::topic::TopicConfig;

fn table() -> Table<TopicConfig> {
    Table::new(1)
}

fn put(table: &Table<TopicConfig>, name: &str, queues: i32) -> Change<TopicConfig> {
    table
        .modify(name, 2, |known| {
            let mut config = TopicConfig::new(name, queues, 6);
            if let Some(known) = known {
                config.attributes = known.attributes.clone();
            }
            Some(config)
        })
        .unwrap()
}

#[test]
fn a_change_raises_the_version_and_a_repeat_does_not() {
    let table = table();
    let first = put(&table, "t", 4);
    assert!(first.changed && first.config.version() == 1);
    assert!(
        !first.config.attributes.contains_key(ATTRIBUTE_VERSION),
        "as a native tool made it"
    );
    let before = table.all().0;
    assert!(!put(&table, "t", 4).changed);
    assert_eq!(table.all().0, before);
    assert_eq!(put(&table, "t", 8).config.version(), 2);
    assert_ne!(table.all().0, before);
}

#[test]
fn a_deletion_is_a_version_and_what_is_made_again_is_newer() {
    let table = table();
    put(&table, "t", 4);
    put(&table, "t", 8);
    assert!(table.remove("t", 3, 0));
    assert_eq!(table.deleted_in("t"), 3);
    assert!(!table.remove("t", 3, 0) && !table.remove("t", 3, 3));
    assert!(table.remove("t", 3, 7), "a peer deleted a later one");
    assert_eq!(put(&table, "t", 4).config.version(), 8);
    assert_eq!(table.deleted_in("t"), 0);
}

#[test]
fn deletions_are_forgotten_after_thirty_days() {
    let table = table();
    put(&table, "t", 4);
    table.remove("t", 5, 0);
    put(&table, "u", 4);
    table.remove("u", 5 + DELETION_KEPT_MS, 0);
    assert_eq!((table.deleted_in("t"), table.deleted_in("u")), (0, 2));
}

#[test]
fn what_belongs_to_one_broker_leaves_no_deletion_and_no_mark() {
    let table = table();
    put(&table, "%RETRY%g", 1);
    assert!(table.marks("", 10).0.is_empty());
    assert!(table.remove("%RETRY%g", 3, 0));
    assert_eq!(table.deleted_in("%RETRY%g"), 0);
}

#[test]
fn marks_come_in_pages_with_deletions_among_them() {
    let table = table();
    for name in ["c", "a", "d", "b"] {
        put(&table, name, 1);
    }
    table.remove("b", 3, 0);
    let (first, more) = table.marks("", 3);
    let names: Vec<&str> = first.iter().map(|mark| mark.name.as_str()).collect();
    assert_eq!((names, more), (vec!["a", "b", "c"], true));
    assert!(first[1].deleted && first[1].version == 2 && first[1].hash.is_empty());
    assert!(!first[0].deleted && first[0].hash.len() == 16);
    let (second, more) = table.marks("c", 3);
    assert_eq!((second.len(), more), (1, false));
}

#[test]
fn registration_is_incremental_only_while_nothing_is_missed() {
    let table = table();
    put(&table, "a", 1);
    let all = table.registration(None);
    assert!(all.full);
    put(&table, "b", 1);
    let part = table.registration(Some(all.sequence));
    assert!(!part.full);
    assert_eq!(part.entries.len(), 1);
    assert_ne!(part.version, all.version);
    table.remove("b", 3, 0);
    assert!(table.registration(Some(part.sequence)).full);
    for i in 0..600 {
        put(&table, &format!("t{i}"), 1);
    }
    assert!(table.registration(Some(part.sequence)).full);
    assert!(table.registration(Some(table.sequence())).full);
}
