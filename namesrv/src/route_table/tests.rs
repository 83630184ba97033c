//! Registration, liveness and routes, by example.

use std::time::Duration;

use clock::Monotonic;

use super::*;

const RW: Queues = Queues {
    read: 4,
    write: 4,
    perm: 6,
    sys_flag: 0,
};

fn at(seconds: u64) -> Monotonic {
    Monotonic::from_millis(seconds * 1000)
}

fn addr(addr: &str) -> BrokerAddr {
    BrokerAddr {
        cluster: "C".to_owned(),
        addr: addr.to_owned(),
    }
}

fn version(counter: i64) -> Version {
    Version {
        counter,
        state_version: 0,
        timestamp_ms: 1000 + counter,
    }
}

/// Broker `name` with the given id at `host`, telling the given topics over connection 1.
fn reg(name: &str, id: i64, host: &str, counter: i64, topics: &[(&str, Queues)]) -> Registration {
    Registration {
        addr: addr(host),
        broker_name: name.to_owned(),
        broker_id: id,
        ha_addr: format!("ha-{host}"),
        zone: None,
        expiry: None,
        acting_master: None,
        version: version(counter),
        topics: topics
            .iter()
            .map(|(topic, queues)| ((*topic).to_owned(), *queues))
            .collect(),
        complete: false,
        connection: 1,
    }
}

fn table(registrations: &[Registration]) -> RouteTable {
    let mut table = RouteTable::default();
    for registration in registrations {
        table.register(registration, at(0)).unwrap();
    }
    table
}

fn queues(table: &RouteTable, topic: &str, broker: &str) -> Option<Queues> {
    let route = table.route(topic, None)?;
    route
        .queues
        .into_iter()
        .find(|(name, _)| name == broker)
        .map(|(_, queues)| queues)
}

#[test]
fn a_route_lists_each_queue_with_its_broker() {
    let table = table(&[
        reg("a", 0, "h1:1", 1, &[("T", RW), ("U", RW)]),
        reg("a", 1, "h2:1", 1, &[("T", RW), ("U", RW)]),
        reg(
            "b",
            0,
            "h3:1",
            1,
            &[("T", Queues { perm: 4, ..RW }), ("V", RW)],
        ),
    ]);
    let route = table.route("T", None).unwrap();
    let names: Vec<&str> = route
        .brokers
        .iter()
        .map(|broker| broker.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(
        route.brokers[0].addrs,
        [(0, "h1:1".to_owned()), (1, "h2:1".to_owned())].into()
    );
    assert_eq!(
        route
            .queues
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>(),
        names
    );
    assert_eq!(table.route("none", None), None);
    assert_eq!(table.topics(), ["T", "U", "V"]);
}

#[test]
fn a_single_topic_from_an_unknown_broker_is_refused_and_leaves_no_trace() {
    let mut table = RouteTable::default();
    assert_eq!(
        table.register(&reg("a", 0, "h:1", 1, &[("T", RW)]), at(0)),
        Err(Refused::IncrementFirst)
    );
    assert_eq!(table.sizes(), (0, 0));
    assert!(table.brokers().is_empty());
    // No topics at all is a whole table, and so is one that says it is complete.
    table.register(&reg("a", 0, "h:1", 1, &[]), at(0)).unwrap();
    let complete = Registration {
        complete: true,
        ..reg("b", 0, "h:2", 1, &[("T", RW)])
    };
    table.register(&complete, at(0)).unwrap();
    assert_eq!(table.topics(), ["T"]);
}

#[test]
fn one_changed_topic_adds_to_the_others() {
    let mut table = table(&[reg("a", 0, "h:1", 1, &[("T", RW), ("U", RW)])]);
    table
        .register(
            &reg("a", 0, "h:1", 2, &[("V", Queues { write: 9, ..RW })]),
            at(1),
        )
        .unwrap();
    assert_eq!(table.topics(), ["T", "U", "V"]);
    assert_eq!(queues(&table, "V", "a").unwrap().write, 9);
}

#[test]
fn two_changes_with_the_same_data_version_are_both_taken() {
    let mut table = table(&[reg("a", 0, "h:1", 1, &[("T", RW), ("U", RW)])]);
    for topic in ["T", "U"] {
        table
            .register(
                &reg("a", 0, "h:1", 3, &[(topic, Queues { read: 8, ..RW })]),
                at(1),
            )
            .unwrap();
    }
    assert_eq!(queues(&table, "T", "a").unwrap().read, 8);
    assert_eq!(queues(&table, "U", "a").unwrap().read, 8);
}

#[test]
fn a_table_older_than_a_change_does_not_undo_it() {
    let mut table = table(&[reg("a", 0, "h:1", 1, &[("T", RW), ("U", RW)])]);
    table
        .register(
            &reg("a", 0, "h:1", 3, &[("T", Queues { read: 8, ..RW })]),
            at(1),
        )
        .unwrap();
    let late = Registration {
        complete: true,
        ..reg("a", 0, "h:1", 2, &[("U", RW), ("W", RW)])
    };
    table.register(&late, at(1)).unwrap();
    assert_eq!(queues(&table, "T", "a").unwrap().read, 8);
    assert_eq!(table.topics(), ["T", "U", "W"]);
}

#[test]
fn a_complete_table_removes_what_it_does_not_name() {
    let mut table = table(&[
        reg("a", 0, "h:1", 1, &[("T", RW), ("U", RW)]),
        reg("b", 0, "h:2", 1, &[("T", RW), ("U", RW)]),
    ]);
    table
        .register(
            &Registration {
                complete: true,
                ..reg("a", 0, "h:1", 2, &[("U", RW)])
            },
            at(1),
        )
        .unwrap();
    assert_eq!(queues(&table, "T", "a"), None);
    assert_eq!(queues(&table, "T", "b"), Some(RW));
}

#[test]
fn a_replica_changes_no_topics_and_learns_its_master() {
    let mut table = table(&[reg("a", 0, "h1:1", 1, &[("T", RW), ("U", RW)])]);
    let other = [("T", Queues { read: 1, ..RW }), ("X", RW)];
    let answer = table
        .register(&reg("a", 1, "h2:1", 9, &other), at(0))
        .unwrap();
    assert_eq!(answer.master_addr.as_deref(), Some("h1:1"));
    assert_eq!(answer.ha_addr.as_deref(), Some("ha-h1:1"));
    assert_eq!(queues(&table, "T", "a"), Some(RW));
    assert_eq!(table.topics(), ["T", "U"]);
}

#[test]
fn an_address_that_changes_its_id_is_listed_once() {
    let mut table = table(&[reg("a", 1, "h:1", 1, &[("T", RW), ("U", RW)])]);
    table
        .register(&reg("a", 0, "h:1", 2, &[("T", RW), ("U", RW)]), at(1))
        .unwrap();
    assert_eq!(
        table.broker("C", "a").unwrap().addrs,
        [(0, "h:1".to_owned())].into()
    );
}

#[test]
fn an_older_state_version_does_not_take_a_place_over() {
    let newer = Version {
        counter: 1,
        state_version: 5,
        timestamp_ms: 1,
    };
    let mut table = table(&[Registration {
        version: newer,
        ..reg("a", 0, "h1:1", 1, &[])
    }]);
    let older = reg("a", 0, "h2:1", 7, &[]);
    assert_eq!(table.register(&older, at(0)), Err(Refused::Superseded));
    assert_eq!(table.broker("C", "a").unwrap().addrs[&0], "h1:1");
    let newest = Registration {
        version: Version {
            state_version: 6,
            ..newer
        },
        ..older
    };
    table.register(&newest, at(0)).unwrap();
    assert_eq!(table.broker("C", "a").unwrap().addrs[&0], "h2:1");
    assert_eq!(table.sizes().1, 1);
}

#[test]
fn a_broker_that_falls_silent_is_dropped_after_its_limit() {
    let mut table = table(&[
        reg("a", 0, "h:1", 1, &[("T", RW), ("U", RW)]),
        Registration {
            expiry: Some(Duration::from_secs(5)),
            ..reg("b", 0, "h:2", 1, &[("T", RW), ("V", RW)])
        },
    ]);
    assert!(table.expire(at(5)).is_empty());
    assert_eq!(table.expire(at(6)), ["b"]);
    assert_eq!(table.topics(), ["T", "U"]);
    table.heartbeat(&addr("h:1"), at(100));
    assert!(table.expire(at(220)).is_empty());
    assert_eq!(table.expire(at(221)), ["a"]);
    assert_eq!(table.sizes(), (0, 0));
    assert!(table.brokers().is_empty());
}

#[test]
fn a_closed_connection_drops_its_broker_at_once_but_never_a_fresher_registration() {
    let mut table = table(&[reg("a", 0, "h:1", 1, &[("T", RW), ("U", RW)])]);
    table
        .register(
            &Registration {
                connection: 2,
                ..reg("a", 0, "h:1", 1, &[])
            },
            at(1),
        )
        .unwrap();
    assert!(table.connection_closed(1).is_empty());
    assert!(table.route("T", None).is_some());
    assert_eq!(table.connection_closed(2), ["a"]);
    assert_eq!(table.route("T", None), None);
}

#[test]
fn unregistering_needs_the_right_id_and_drops_only_that_address() {
    let mut table = table(&[
        reg("a", 0, "h1:1", 1, &[("T", RW), ("U", RW)]),
        reg("a", 1, "h2:1", 1, &[]),
    ]);
    table.unregister(&addr("h1:1"), "a", 1);
    assert_eq!(table.broker("C", "a").unwrap().addrs.len(), 2);
    table.unregister(&addr("h1:1"), "a", 0);
    assert_eq!(
        table.broker("C", "a").unwrap().addrs,
        [(1, "h2:1".to_owned())].into()
    );
    assert!(table.route("T", None).is_some());
    table.unregister(&addr("h2:1"), "a", 1);
    assert_eq!((table.brokers().len(), table.topics().len()), (0, 0));
}

#[test]
fn a_wiped_permission_survives_until_the_broker_changes() {
    let mut table = table(&[reg(
        "a",
        0,
        "h:1",
        1,
        &[("T", RW), ("U", Queues { perm: 7, ..RW })],
    )]);
    assert_eq!(table.wipe_write("a"), 2);
    assert_eq!(table.wipe_write("none"), 0);
    let perm = |table: &RouteTable, topic| queues(table, topic, "a").unwrap().perm;
    assert_eq!((perm(&table, "T"), perm(&table, "U")), (4, 5));
    table
        .register(
            &reg(
                "a",
                0,
                "h:1",
                1,
                &[("T", RW), ("U", Queues { perm: 7, ..RW })],
            ),
            at(30),
        )
        .unwrap();
    assert_eq!(perm(&table, "T"), 4);
    assert_eq!(table.add_write("a"), 2);
    assert_eq!((perm(&table, "T"), perm(&table, "U")), (6, 6));
    table
        .register(
            &reg(
                "a",
                0,
                "h:1",
                2,
                &[("T", RW), ("U", Queues { perm: 7, ..RW })],
            ),
            at(60),
        )
        .unwrap();
    assert_eq!(perm(&table, "U"), 7);
}

#[test]
fn an_acting_master_makes_its_topics_read_only() {
    let acting = |id, host: &str| Registration {
        acting_master: Some(true),
        ..reg("a", id, host, 1, &[("T", RW), ("U", RW)])
    };
    let mut table = table(&[acting(0, "h1:1"), acting(1, "h2:1")]);
    table.unregister(&addr("h1:1"), "a", 0);
    assert_eq!(queues(&table, "T", "a").unwrap().perm, 4);
    table.register(&acting(1, "h2:1"), at(1)).unwrap();
    assert_eq!(queues(&table, "T", "a").unwrap().perm, 4);
}

#[test]
fn topics_are_deleted_everywhere_or_in_one_cluster() {
    let other = BrokerAddr {
        cluster: "D".to_owned(),
        addr: "h:2".to_owned(),
    };
    let mut table = table(&[
        reg("a", 0, "h:1", 1, &[("T", RW), ("U", RW)]),
        Registration {
            addr: other,
            ..reg("b", 0, "h:2", 1, &[("T", RW), ("U", RW)])
        },
    ]);
    table.delete_topic("T", Some("C"));
    assert_eq!(
        (queues(&table, "T", "a"), queues(&table, "T", "b")),
        (None, Some(RW))
    );
    assert_eq!(table.topics_of_cluster("C"), ["U"]);
    table.delete_topic("U", None);
    table.delete_topic("never", None);
    assert_eq!(table.topics(), ["T"]);
    table.register_topic("N", &[("a".to_owned(), RW), ("ghost".to_owned(), RW)]);
    assert_eq!(table.route("N", None).unwrap().queues.len(), 1);
}

#[test]
fn zones_and_system_topics() {
    let east = Registration {
        zone: Some("east".to_owned()),
        ..reg("a", 0, "h:1", 1, &[("T", RW), ("U", RW)])
    };
    let table = table(&[
        east,
        reg(
            "b",
            0,
            "h:2",
            1,
            &[("T", RW), ("W", Queues { sys_flag: 1, ..RW })],
        ),
    ]);
    assert_eq!(table.route("T", Some("east")).unwrap().brokers.len(), 1);
    assert!(table.route("T", Some("west")).unwrap().queues.is_empty());
    let (names, some_addr) = table.system_topics();
    assert_eq!(
        (names, some_addr.as_deref()),
        (
            vec!["C".to_owned(), "a".to_owned(), "b".to_owned()],
            Some("h:1")
        )
    );
    assert_eq!(table.unit_topics(1, 0), ["W"]);
    assert!(table.unit_topics(2, 0).is_empty());
}

#[test]
fn versions_are_told_to_brokers_that_ask() {
    let mut table = table(&[reg("a", 0, "h:1", 4, &[])]);
    assert_eq!(table.touch_version(&addr("h:1"), at(100)), Some(version(4)));
    assert!(table.expire(at(200)).is_empty());
    assert_eq!(table.touch_version(&addr("h:9"), at(100)), None);
}
