//! What becomes of a configuration when a peer shows its own: pure decisions, the same on every broker.

use crate::group::GroupConfig;
use crate::table::Entry;
use crate::topic::TopicConfig;

/// The topic as it shall be here; `None` = it stays as it is. `deleted` is the version of a deletion here, 0 without.
///
/// A topic comes to the brokers of its queue map only. Each broker speaks for its own number of queues and permission:
/// what another says of them counts where the other's version is higher, or where this broker has no such topic yet.
pub(crate) fn topic(
    mine: Option<&TopicConfig>,
    deleted: u64,
    theirs: &TopicConfig,
    peer: &str,
    own: &str,
) -> Option<TopicConfig> {
    let mut map = theirs.queue_map()?;
    let Some(mine) = mine else {
        let count = map.counts.get(own).copied().filter(|count| *count > 0)?;
        return (theirs.version() >= deleted).then(|| TopicConfig {
            read_queue_nums: count,
            write_queue_nums: count,
            ..theirs.clone()
        });
    };
    let (newer, same) = (
        theirs.version() > mine.version(),
        theirs.version() == mine.version(),
    );
    if newer {
        let count = *map
            .counts
            .entry(own.to_owned())
            .or_insert(mine.write_queue_nums);
        let mut config = TopicConfig {
            // What was written to a queue stays readable.
            read_queue_nums: count.max(mine.read_queue_nums),
            write_queue_nums: count,
            perm: mine.perm,
            ..theirs.clone()
        };
        map.put(&mut config.attributes);
        return Some(config);
    }
    if !same {
        return None;
    }
    let base = if shared(theirs).content_hash() > shared(mine).content_hash() {
        theirs
    } else {
        mine
    };
    let mut merged = mine.queue_map().unwrap_or_default();
    merged.version = merged.version.max(map.version);
    for (name, count) in map.counts {
        if name == peer || !merged.counts.contains_key(&name) {
            merged.counts.insert(name, count);
        }
    }
    merged.counts.insert(own.to_owned(), mine.write_queue_nums);
    let mut config = TopicConfig {
        read_queue_nums: mine.read_queue_nums,
        write_queue_nums: mine.write_queue_nums,
        perm: mine.perm,
        ..base.clone()
    };
    merged.put(&mut config.attributes);
    (config != *mine).then_some(config)
}

fn shared(config: &TopicConfig) -> TopicConfig {
    let mut shared = config.clone();
    shared.attributes.remove(wire::body::queue_map::ATTRIBUTE);
    shared
}

/// The group as it shall be here; `None` = it stays as it is. `deleted` is the version of a deletion here, 0 without.
pub(crate) fn group(
    mine: Option<&GroupConfig>,
    deleted: u64,
    theirs: &GroupConfig,
) -> Option<GroupConfig> {
    let newer = match mine {
        None => theirs.version() >= deleted,
        Some(mine) => {
            (theirs.version(), theirs.content_hash()) > (mine.version(), mine.content_hash())
        }
    };
    newer.then(|| theirs.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::body::queue_map::QueueMap;

    fn at(version: u64, queues: i32, map: &str, label: &str) -> TopicConfig {
        let mut config = TopicConfig::new("t", queues, 6);
        config.set_version(version);
        config
            .attributes
            .insert("gantry.label.x".to_owned(), label.to_owned());
        QueueMap::parse(map).unwrap().put(&mut config.attributes);
        config
    }

    fn counts(config: &TopicConfig) -> String {
        config.queue_map().unwrap().to_string()
    }

    #[test]
    fn a_topic_comes_only_to_the_brokers_of_its_queue_map() {
        let theirs = at(3, 4, "3 a:4 b:2 d:0", "x");
        let here = topic(None, 0, &theirs, "a", "b").unwrap();
        assert_eq!(
            (here.write_queue_nums, here.read_queue_nums, here.version()),
            (2, 2, 3)
        );
        assert_eq!(topic(None, 0, &theirs, "a", "c"), None);
        assert_eq!(topic(None, 0, &theirs, "a", "d"), None);
        let native = TopicConfig::new("t", 4, 6);
        assert_eq!(
            topic(None, 0, &native, "a", "b"),
            None,
            "made on one broker"
        );
    }

    #[test]
    fn only_a_higher_version_is_taken_and_a_deletion_is_one() {
        let mine = at(3, 2, "3 a:4 b:2", "old");
        assert_eq!(
            topic(Some(&mine), 0, &at(2, 4, "2 a:4 b:9", "x"), "a", "b"),
            None
        );
        let taken = topic(Some(&mine), 0, &at(4, 4, "4 a:4 b:5", "new"), "a", "b").unwrap();
        assert_eq!((taken.write_queue_nums, taken.version()), (5, 4));
        assert_eq!(taken.attributes["gantry.label.x"], "new");
        assert_eq!(topic(None, 5, &at(4, 4, "4 a:4 b:5", "x"), "a", "b"), None);
        assert!(topic(None, 5, &at(6, 4, "4 a:4 b:5", "x"), "a", "b").is_some());
    }

    #[test]
    fn a_broker_left_out_of_a_map_keeps_its_queues_and_their_messages() {
        let mine = at(1, 8, "1 b:8", "x");
        let taken = topic(Some(&mine), 0, &at(4, 4, "4 a:4", "x"), "a", "b").unwrap();
        assert_eq!(taken.write_queue_nums, 8);
        assert_eq!(counts(&taken), "4 a:4 b:8");
    }

    #[test]
    fn queues_that_shrink_stay_readable() {
        let mine = at(1, 8, "1 a:8 b:8", "x");
        let taken = topic(Some(&mine), 0, &at(2, 4, "2 a:4 b:4", "x"), "a", "b").unwrap();
        assert_eq!((taken.write_queue_nums, taken.read_queue_nums), (4, 8));
    }

    #[test]
    fn at_an_equal_version_both_sides_come_to_the_same_whatever_the_order() {
        let at_a = at(2, 8, "2 a:8 b:4", "one");
        let at_b = at(2, 6, "2 a:4 b:6", "two");
        let new_a = topic(Some(&at_a), 0, &at_b, "b", "a").unwrap_or(at_a.clone());
        let new_b = topic(Some(&at_b), 0, &at_a, "a", "b").unwrap_or(at_b.clone());
        assert_eq!(counts(&new_a), "2 a:8 b:6");
        assert_eq!(new_a.attributes, new_b.attributes);
        assert_eq!((new_a.write_queue_nums, new_b.write_queue_nums), (8, 6));
        assert_eq!(topic(Some(&new_a), 0, &new_b, "b", "a"), None);
        assert_eq!(topic(Some(&new_b), 0, &new_a, "a", "b"), None);
    }

    #[test]
    fn of_two_groups_of_one_version_the_greater_hash_stays() {
        let mut one = GroupConfig::new("g");
        one.set_version(2);
        let mut two = GroupConfig {
            retry_max_times: 3,
            ..one.clone()
        };
        assert_eq!(group(Some(&one), 0, &one), None);
        let (first, second) = (group(Some(&one), 0, &two), group(Some(&two), 0, &one));
        assert!(first.is_some() != second.is_some());
        two.set_version(3);
        assert_eq!(group(Some(&one), 0, &two), Some(two.clone()));
        assert_eq!(group(Some(&two), 0, &one), None);
        assert_eq!(group(None, 4, &two), None);
        assert_eq!(group(None, 3, &two), Some(two));
    }
}
