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
    assert!(table.remove("t", 3, true));
    assert_eq!(table.deleted_in("t"), 3);
    assert!(!table.remove("t", 3, true));
    assert_eq!(put(&table, "t", 4).config.version(), 4);
    assert_eq!(table.deleted_in("t"), 0);
}

#[test]
fn deletions_are_forgotten_after_thirty_days() {
    let table = table();
    put(&table, "t", 4);
    table.remove("t", 5, true);
    put(&table, "u", 4);
    table.remove("u", 5 + DELETION_KEPT_MS, true);
    assert_eq!((table.deleted_in("t"), table.deleted_in("u")), (0, 2));
}

#[test]
fn what_belongs_to_one_broker_leaves_no_deletion_and_no_mark() {
    let table = table();
    put(&table, "%RETRY%g", 1);
    assert!(table.marks("", 10).0.is_empty());
    assert!(table.remove("%RETRY%g", 3, true));
    assert_eq!(table.deleted_in("%RETRY%g"), 0);
}

#[test]
fn marks_come_in_pages_with_deletions_among_them() {
    let table = table();
    for name in ["c", "a", "d", "b"] {
        put(&table, name, 1);
    }
    table.remove("b", 3, true);
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
    table.remove("b", 3, true);
    assert!(table.registration(Some(part.sequence)).full);
    for i in 0..600 {
        put(&table, &format!("t{i}"), 1);
    }
    assert!(table.registration(Some(part.sequence)).full);
    assert!(table.registration(Some(table.sequence())).full);
}

#[test]
fn what_was_made_after_a_deletion_elsewhere_outlives_it_and_what_is_older_goes() {
    let table = table();
    put(&table, "t", 4);
    assert_eq!(table.get("t").unwrap().made_ms(), 2);
    assert_eq!(table.bury("t", 9, 1, 1), Buried::Known);
    assert_eq!(table.bury("t", 9, 7, 1), Buried::Outlived);
    assert_eq!(table.get("t").unwrap().version(), 8);
    assert_eq!(table.bury("t", 9, 8, 1), Buried::Known, "said again");
    assert_eq!(
        table.bury("t", 9, 9, 2),
        Buried::Removed,
        "at the same moment"
    );
    assert!(!table.contains("t"));
    let noted = Deletion {
        version: 9,
        at_ms: 2,
        here_ms: 9,
        clean: true,
    };
    assert_eq!(table.deletion("t"), Some(noted));
    assert_eq!(table.bury("u", 9, 3, 1), Buried::Remembered);
    assert_eq!(table.bury("u", 9, 3, 1), Buried::Known);
    let clean = |name| table.deletion(name).unwrap().clean;
    assert!(!clean("u"), "there was nothing here");
    assert_eq!(put(&table, "u", 1).config.version(), 4);
}

#[test]
fn the_time_it_was_made_stays_with_an_entry_wherever_it_goes() {
    let (here, there) = (table(), table());
    put(&here, "t", 4);
    let later = here.modify("t", 50, |_| Some(TopicConfig::new("t", 8, 6)));
    let config = later.unwrap().config.as_ref().clone();
    assert_eq!(config.made_ms(), 2);
    there
        .batch(99, |batch| batch.take("t", |_, _| Some(config.clone())))
        .unwrap();
    assert_eq!(there.get("t").unwrap().made_ms(), 2);
    let mut other = config.clone();
    other
        .attributes
        .insert(ATTRIBUTE_MADE.to_owned(), "7".to_owned());
    assert_eq!(config.content_hash(), other.content_hash());
}

#[test]
fn what_is_made_or_grows_is_unsaved_until_a_write_of_the_file_succeeds() {
    let table = table();
    let unsaved = || ["t", "u"].map(|name| table.is_unsaved(name));
    put(&table, "t", 4);
    assert_eq!(table.save(|| Err("full")), Err("full"));
    assert!(!put(&table, "t", 4).changed);
    assert_eq!(unsaved(), [true, false], "also when it is put again");
    let while_writing = || {
        put(&table, "u", 4);
        Ok::<(), &str>(())
    };
    assert_eq!(table.save(while_writing), Ok(true));
    assert_eq!(unsaved(), [false, true]);
    assert_eq!(table.save(|| Ok::<(), &str>(())), Ok(true));
    assert_eq!(table.save(|| Err("not called")), Ok(false));
    put(&table, "t", 2);
    assert_eq!(unsaved(), [false, false], "what is left is in the file");
    put(&table, "t", 8);
    assert_eq!(unsaved(), [true, false]);
    table.remove("t", 3, true);
    assert_eq!(unsaved(), [false, false], "there is nothing to use");
    table.save(|| Ok::<(), &str>(())).unwrap();
    table.touch(4);
    assert_eq!(table.save(|| Ok::<(), &str>(())), Ok(true));
    let two = |queues| {
        table.batch(5, |batch| {
            for name in ["t", "u"] {
                batch.modify(name, |_| Some(TopicConfig::new(name, queues, 6)));
            }
        });
    };
    two(16);
    let while_writing = || {
        two(32);
        Ok::<(), &str>(())
    };
    table.save(while_writing).unwrap();
    assert_eq!(unsaved(), [true, true], "each of a batch");
    table.save(|| Ok::<(), &str>(())).unwrap();
    assert_eq!(unsaved(), [false, false]);
}

#[test]
fn a_batch_is_seen_as_a_whole_and_each_change_in_it_counts() {
    let table = table();
    put(&table, "a", 1);
    let before = table.registration(None);
    table.batch(3, |batch| {
        for name in ["b", "c"] {
            let made = batch.modify(name, |_| Some(TopicConfig::new(name, 1, 6)));
            assert!(made.unwrap().changed);
            assert!(batch.get(name).is_some() && !table.contains(name));
        }
        let again = batch.modify("b", |known| known.cloned());
        assert!(!again.unwrap().changed);
    });
    assert_eq!(table.len(), 3);
    let after = table.registration(Some(before.sequence));
    assert_eq!((after.entries.len(), after.full), (2, false));
    table.batch(4, |_| ());
    assert_eq!(table.sequence(), after.sequence, "nothing was changed");
}

#[test]
fn versions_neither_wrap_nor_pass_two_to_the_53() {
    let table = table();
    table.bury("t", 3, VERSION_MAX, 3);
    assert_eq!(put(&table, "t", 1).config.version(), VERSION_MAX);
    assert_eq!(put(&table, "t", 2).config.version(), VERSION_MAX);
    assert!(table.remove("t", 3, true));
    assert_eq!(table.deleted_in("t"), VERSION_MAX);
    // As a native tool may write it.
    let mut wild = TopicConfig::new("u", 1, 6);
    wild.set_version(u64::MAX);
    table.modify("u", 2, |_| Some(wild));
    assert_eq!(table.get("u").unwrap().version(), 1);
    assert_eq!(put(&table, "u", 2).config.version(), 2);
    assert!(table.remove("u", 3, true));
    assert_eq!(table.deleted_in("u"), 3);
}
