//! `mqadmin` of Apache RocketMQ 5.4.0 on our name server and broker: the commands an operator uses most, column by column.
//! Every test passes on Apache RocketMQ itself too (`GANTRY_PEER`); what differs on purpose is looked at on ours alone.

use gantry_tests::doors::Doors;
use gantry_tests::java::Java;
use gantry_tests::native::Native;
use gantry_tests::wait::{SLOW, within};

/// Rows of a table as cells; the header, which begins with `#`, is first.
fn table(output: &str) -> Vec<Vec<String>> {
    let header = output
        .lines()
        .position(|line| line.starts_with('#'))
        .unwrap_or_else(|| panic!("no table in\n{output}"));
    let rows = output
        .lines()
        .skip(header)
        .take_while(|line| !line.trim().is_empty());
    rows.map(|line| {
        line.split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty())
            .map(str::to_owned)
            .collect()
    })
    .collect()
}

fn row<'a>(table: &'a [Vec<String>], first: &str) -> &'a [String] {
    table
        .iter()
        .find(|row| row[0] == first)
        .unwrap_or_else(|| panic!("no row {first} in {table:?}"))
}

#[test]
fn topics_are_made_listed_routed_measured_and_deleted() {
    within(SLOW, async {
        let doors = Doors::open().unwrap();
        let java = Java::new(doors.dir()).unwrap();
        let (namesrv, broker) = (doors.namesrv.to_string(), doors.broker.to_string());
        let admins = java.admins(&namesrv).await.unwrap();
        let admin = async |args: &[&str]| admins.run(args).await.unwrap();

        let clusters = table(&admin(&["clusterList"]).await);
        let header = [
            "#Cluster Name",
            "#Broker Name",
            "#BID",
            "#Addr",
            "#Version",
            "#InTPS(LOAD)",
            "#OutTPS(LOAD)",
            "#Timer(Progress)",
            "#PCWait(ms)",
            "#Hour",
            "#SPACE",
            "#ACTIVATED",
        ];
        assert_eq!(clusters[0], header);
        let cells = row(&clusters, "DefaultCluster");
        assert_eq!(&cells[1..4], ["broker-a", "0", &broker]);
        assert!(cells[4].starts_with("V5_"), "{cells:?}");
        assert_eq!(cells.last().unwrap(), "true");
        assert_eq!(cells.len(), header.len(), "{cells:?}");

        let topic = doors.name("admin");
        let made = admin(&[
            "updateTopic",
            "-c",
            "DefaultCluster",
            "-t",
            &topic,
            "-r",
            "3",
            "-w",
            "5",
        ])
        .await;
        assert!(
            made.contains(&format!("create topic to {broker} success.")),
            "{made}"
        );
        let config = format!(
            "TopicConfig [topicName={topic}, readQueueNums=3, writeQueueNums=5, perm=RW-, topicFilterType=SINGLE_TAG, \
            topicSysFlag=0, order=false, attributes={{}}]"
        );
        assert!(made.contains(&config), "{made}");

        let topics = admin(&["topicList"]).await;
        assert!(topics.lines().any(|line| line == topic), "{topics}");
        assert!(topics.lines().any(|line| line == "TBW102"), "{topics}");

        let route = admin(&["topicRoute", "-t", &topic]).await;
        for part in [
            format!("0:\"{broker}\""),
            "\"brokerName\":\"broker-a\"".into(),
            "\"readQueueNums\":3".into(),
            "\"writeQueueNums\":5".into(),
            "\"perm\":6".into(),
            "\"cluster\":\"DefaultCluster\"".into(),
        ] {
            assert!(route.contains(&part), "{part} is missing in {route}");
        }

        let client = Native::connect(doors.broker).await.unwrap();
        for _ in 0..7 {
            client
                .send(&topic, 2, b"hello", &[])
                .await
                .unwrap()
                .expect(0)
                .unwrap();
        }
        let status = table(&admin(&["topicStatus", "-t", &topic]).await);
        assert_eq!(
            status[0],
            [
                "#Broker Name",
                "#QID",
                "#Min Offset",
                "#Max Offset",
                "#Last Updated"
            ]
        );
        assert_eq!(status.len(), 1 + 5, "one row for each write queue");
        let cells = status.iter().find(|row| row[1] == "2").unwrap();
        assert_eq!(&cells[..4], ["broker-a", "2", "0", "7"]);
        assert!(
            cells[4].starts_with("20"),
            "the time of the last message: {cells:?}"
        );

        let changed = admin(&[
            "updateTopic",
            "-b",
            &broker,
            "-t",
            &topic,
            "-r",
            "6",
            "-w",
            "6",
            "-p",
            "4",
        ])
        .await;
        assert!(
            changed.contains("readQueueNums=6, writeQueueNums=6, perm=R--"),
            "{changed}"
        );
        // the topic's permission is for clients to heed, by the route
        let route = admin(&["topicRoute", "-t", &topic]).await;
        assert!(
            route.contains("\"perm\":4") && route.contains("\"writeQueueNums\":6"),
            "{route}"
        );

        let deleted = admin(&["deleteTopic", "-c", "DefaultCluster", "-t", &topic]).await;
        assert!(
            deleted.contains(&format!(
                "delete topic [{topic}] from cluster [DefaultCluster] success."
            )),
            "{deleted}"
        );
        assert!(
            deleted.contains(&format!("delete topic [{topic}] from NameServer success.")),
            "{deleted}"
        );
        let route = admin(&["topicRoute", "-t", &topic]).await;
        assert!(route.contains("CODE: 17"), "{route}");
        let topics = admin(&["topicList"]).await;
        assert!(!topics.lines().any(|line| line == topic), "{topics}");
    });
}

#[test]
fn groups_are_made_and_their_progress_is_shown() {
    within(SLOW, async {
        let doors = Doors::open().unwrap();
        let java = Java::new(doors.dir()).unwrap();
        let (namesrv, broker) = (doors.namesrv.to_string(), doors.broker.to_string());
        let admins = java.admins(&namesrv).await.unwrap();
        let admin = async |args: &[&str]| admins.run(args).await.unwrap();
        let (topic, group) = (doors.name("progress"), doors.name("g"));

        let made = admin(&[
            "updateSubGroup",
            "-c",
            "DefaultCluster",
            "-g",
            &group,
            "-r",
            "3",
        ])
        .await;
        assert!(
            made.contains(&format!("create subscription group to {broker} success.")),
            "{made}"
        );
        for part in [
            format!("groupName={group}"),
            "retryMaxTimes=3".into(),
            "retryQueueNums=1".into(),
            "consumeEnable=true".into(),
        ] {
            assert!(made.contains(&part), "{part} is missing in {made}");
        }

        let produce = [
            "produce",
            "--namesrv",
            &namesrv,
            "--topic",
            &topic,
            "--count",
            "10",
        ];
        java.lines(&produce).await.unwrap();
        let consume = [
            "consume",
            "--namesrv",
            &namesrv,
            "--topic",
            &topic,
            "--group",
            &group,
            "--expect",
            "10",
            "--settle",
            "2500",
        ];
        let seen = java.consumer(&consume).await.unwrap().rest().await.unwrap();
        assert_eq!(seen.len(), 10);
        java.lines(&produce[..5]).await.unwrap();

        let progress = admin(&["consumerProgress", "-g", &group]).await;
        let rows = table(&progress);
        let header = [
            "#Topic",
            "#Broker Name",
            "#QID",
            "#Broker Offset",
            "#Consumer Offset",
            "#Diff",
            "#Inflight",
            "#LastTime",
        ];
        assert_eq!(rows[0], header);
        let mine: Vec<_> = rows.iter().filter(|row| row[0] == topic).collect();
        assert_eq!(mine.len(), 4, "{progress}");
        let sum = |column: usize| {
            mine.iter()
                .map(|row| row[column].parse::<i64>().unwrap())
                .sum::<i64>()
        };
        assert_eq!((sum(3), sum(4), sum(5)), (11, 10, 1), "{progress}");
        assert!(progress.contains("Consume Diff Total: 1"), "{progress}");

        let groups = table(&admin(&["consumerProgress"]).await);
        assert_eq!(
            groups[0],
            [
                "#Group",
                "#Count",
                "#Version",
                "#Type",
                "#Model",
                "#TPS",
                "#Diff Total"
            ]
        );
        let cells = row(&groups, &group);
        assert_eq!(
            (cells[1].as_str(), cells.last().unwrap().as_str()),
            ("0", "1"),
            "{cells:?}"
        );
    });
}

/// The value behind `name:` or `name=` at the beginning of a line.
fn value<'a>(output: &'a str, name: &str) -> &'a str {
    output
        .lines()
        .find_map(|line| {
            line.trim()
                .strip_prefix(name)?
                .trim_start()
                .strip_prefix([':', '='])
        })
        .unwrap_or_else(|| panic!("no {name} in\n{output}"))
        .trim()
}

#[test]
fn messages_are_sent_read_and_found_by_id() {
    within(SLOW, async {
        let doors = Doors::open().unwrap();
        let java = Java::new(doors.dir()).unwrap();
        let (namesrv, broker) = (doors.namesrv.to_string(), doors.broker.to_string());
        let admins = java.admins(&namesrv).await.unwrap();
        let admin = async |args: &[&str]| admins.run(args).await.unwrap();
        let topic = doors.name("messages");
        admin(&[
            "updateTopic",
            "-b",
            &broker,
            "-t",
            &topic,
            "-r",
            "2",
            "-w",
            "2",
        ])
        .await;

        let sent = admin(&[
            "sendMessage",
            "-t",
            &topic,
            "-p",
            "hello",
            "-b",
            "broker-a",
            "-i",
            "1",
        ])
        .await;
        let rows = table(&sent);
        assert_eq!(rows[0], ["#Broker Name", "#QID", "#Send Result", "#MsgId"]);
        assert_eq!(&rows[1][..3], ["broker-a", "1", "SEND_OK"]);
        let unique = rows[1][3].clone();

        let read = admin(&[
            "consumeMessage",
            "-t",
            &topic,
            "-b",
            "broker-a",
            "-i",
            "1",
            "-c",
            "1",
        ])
        .await;
        assert!(
            read.contains(&format!("MSGID: {unique} ")) && read.contains("BODY: hello"),
            "{read}"
        );
        let printed = admin(&["printMsg", "-t", &topic, "-d", "true"]).await;
        assert!(
            printed.contains("minOffset=0, maxOffset=1") && printed.contains(&unique),
            "{printed}"
        );
        let printed = admin(&[
            "printMsgByQueue",
            "-t",
            &topic,
            "-a",
            "broker-a",
            "-i",
            "1",
            "-p",
            "true",
        ])
        .await;
        assert!(printed.contains(&unique), "{printed}");

        let found = admin(&[
            "queryMsgByOffset",
            "-t",
            &topic,
            "-b",
            "broker-a",
            "-i",
            "1",
            "-o",
            "0",
        ])
        .await;
        assert_eq!(value(&found, "Queue ID"), "1");
        assert!(value(&found, "Properties").contains(&unique), "{found}");
        let id = value(&found, "OffsetID").to_owned();
        let by_id = admin(&["queryMsgById", "-i", &id, "-t", &topic]).await;
        for name in [
            "OffsetID",
            "CommitLog Offset",
            "Born Timestamp",
            "Store Timestamp",
            "Born Host",
            "Store Host",
        ] {
            assert_eq!(value(&by_id, name), value(&found, name), "{name}");
        }

        let entries = admin(&[
            "queryCq", "-t", &topic, "-q", "1", "-i", "0", "-c", "5", "-b", &broker,
        ])
        .await;
        assert!(entries.contains("max: 1, min: 0"), "{entries}");
        let place = format!("physicOffset={},", value(&found, "CommitLog Offset"));
        assert!(entries.contains(&place), "{place} in {entries}");

        // the first of the three warms up and does not count
        let times = table(&admin(&["checkMsgSendRT", "-t", &topic, "-a", "3", "-s", "64"]).await);
        assert_eq!(times[0], ["#Broker Name", "#QID", "#Send Result", "#RT"]);
        assert!(times[1..=3].iter().all(|row| row[2] == "true"), "{times:?}");
        let status = admin(&["sendMsgStatus", "-b", "broker-a", "-s", "64", "-c", "2"]).await;
        assert_eq!(status.matches("sendStatus=SEND_OK").count(), 2, "{status}");
    });
}

#[test]
fn consumers_are_shown_and_their_offsets_moved() {
    within(SLOW, async {
        let doors = Doors::open().unwrap();
        let java = Java::new(doors.dir()).unwrap();
        let (namesrv, broker) = (doors.namesrv.to_string(), doors.broker.to_string());
        let admins = java.admins(&namesrv).await.unwrap();
        let admin = async |args: &[&str]| admins.run(args).await.unwrap();
        let (topic, group, other) = (doors.name("moved"), doors.name("g"), doors.name("h"));
        admin(&[
            "updateTopic",
            "-b",
            &broker,
            "-t",
            &topic,
            "-r",
            "1",
            "-w",
            "1",
        ])
        .await;
        for group in [&group, &other] {
            admin(&["updateSubGroup", "-b", &broker, "-g", group]).await;
        }
        let client = Native::connect(doors.broker).await.unwrap();
        for text in ["1", "2", "3", "4"] {
            client
                .send(&topic, 0, text.as_bytes(), &[])
                .await
                .unwrap()
                .expect(0)
                .unwrap();
        }
        let consume = async |group: &str, expect: &str| {
            let args = [
                "consume",
                "--namesrv",
                &namesrv,
                "--topic",
                &topic,
                "--group",
                group,
                "--expect",
                expect,
                "--settle",
                "2500",
            ];
            java.consumer(&args).await.unwrap()
        };
        // One group is there, with a message still to come; the other comes and goes.
        let running = consume(&group, "5").await;
        assert_eq!(consume(&other, "4").await.rest().await.unwrap().len(), 4);

        let connected = admin(&["consumerConnection", "-g", &group]).await;
        for part in [
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_FIRST_OFFSET",
            "JAVA",
            "V5_4_0",
            &topic,
            &format!("%RETRY%{group}"),
        ] {
            assert!(connected.contains(part), "{part} is missing in {connected}");
        }
        let status = admin(&["consumerStatus", "-g", &group]).await;
        for part in [
            "V5_4_0",
            "Same subscription in the same group of consumer",
            "Rebalance OK",
        ] {
            assert!(status.contains(part), "{part} is missing in {status}");
        }
        let gone = admin(&["consumerConnection", "-g", &other]).await;
        assert!(gone.contains("CODE: 206"), "{gone}");
        client
            .send(&topic, 0, b"5", &[])
            .await
            .unwrap()
            .expect(0)
            .unwrap();
        assert_eq!(running.rest().await.unwrap().len(), 5);

        // The other group has one message to come: once by topic and group, once among all groups of the broker.
        let offsets = async |group: &str| {
            let rows = table(&admin(&["consumerProgress", "-g", group]).await);
            let mine = rows.iter().find(|row| row[0] == topic).unwrap();
            (mine[3].clone(), mine[4].clone(), mine[5].clone())
        };
        let three = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(offsets(&group).await, three("5", "5", "0"));
        assert_eq!(offsets(&other).await, three("5", "4", "1"));
        let all = table(&admin(&["brokerConsumeStats", "-b", &broker]).await);
        let mine = all
            .iter()
            .find(|row| row[0] == topic && row[1] == other)
            .unwrap();
        assert_eq!(&mine[2..7], ["broker-a", "0", "5", "4", "1"], "{mine:?}");
        let stats = table(&admin(&["statsAll", "-t", &topic]).await);
        assert_eq!(
            stats[0],
            [
                "#Topic",
                "#Consumer Group",
                "#Accumulation",
                "#InTPS",
                "#OutTPS",
                "#InMsg24Hour",
                "#OutMsg24Hour"
            ]
        );
        let mine = stats.iter().find(|row| row[1] == other).unwrap();
        assert_eq!(mine[2], "1", "{mine:?}");

        let reset =
            table(&admin(&["resetOffsetByTime", "-g", &other, "-t", &topic, "-s", "0"]).await);
        assert_eq!(
            (reset[0][0].as_str(), &reset[1][..]),
            (
                "#brokerName",
                &["broker-a", "0", "0"].map(str::to_owned)[..]
            )
        );
        assert_eq!(offsets(&other).await, three("5", "0", "5"));
        let skipped = table(&admin(&["skipAccumulatedMessage", "-g", &other, "-t", &topic]).await);
        assert_eq!(&skipped[1][..], ["broker-a", "0", "5"]);
        admin(&["resetOffsetByTime", "-g", &other, "-t", &topic, "-s", "0"]).await;
        // Not asserted: a server-side reset that no pull has seen yet is kept against the clone's commit.
        let cloned = admin(&[
            "cloneGroupOffset",
            "-s",
            &group,
            "-d",
            &other,
            "-t",
            &topic,
            "-o",
            "true",
        ])
        .await;
        assert!(cloned.contains("clone group offset success"), "{cloned}");
        let config = admin(&["getConsumerConfig", "-g", &group]).await;
        assert!(
            config.contains(&group) && config.contains("retryMaxTimes"),
            "{config}"
        );
        let deleted = admin(&["deleteSubGroup", "-b", &broker, "-g", &other, "-r", "true"]).await;
        assert!(deleted.contains("success"), "{deleted}");
    });
}

#[test]
fn settings_rights_and_clean_ups() {
    within(SLOW, async {
        let doors = Doors::open().unwrap();
        let java = Java::new(doors.dir()).unwrap();
        let (namesrv, broker) = (doors.namesrv.to_string(), doors.broker.to_string());
        let admins = java.admins(&namesrv).await.unwrap();
        let admin = async |args: &[&str]| admins.run(args).await.unwrap();
        let topic = doors.name("rights");
        let list = doors.dir().join("topics.json");
        std::fs::write(
            &list,
            format!(r#"[{{"topicName":"{topic}","readQueueNums":2,"writeQueueNums":2,"perm":6}}]"#),
        )
        .unwrap();
        let made = admin(&[
            "updateTopicList",
            "-b",
            &broker,
            "-f",
            list.to_str().unwrap(),
        ])
        .await;
        assert!(made.contains("success"), "{made}");
        for (now, next) in [("6", "4"), ("4", "6")] {
            let changed =
                admin(&["updateTopicPerm", "-b", &broker, "-t", &topic, "-p", next]).await;
            let text = format!("update topic perm from {now} to {next} in {broker} success.");
            assert!(
                changed.contains(&text),
                "the route was read too early: {changed}"
            );
        }

        let shown = async |name: &str| {
            value(&admin(&["getBrokerConfig", "-b", &broker]).await, name).to_owned()
        };
        assert_eq!(shown("brokerName").await, "broker-a");
        let before = shown("maxMessageSize").await;
        for size in ["4194303", &before] {
            let changed = admin(&[
                "updateBrokerConfig",
                "-b",
                &broker,
                "-k",
                "maxMessageSize",
                "-v",
                size,
            ])
            .await;
            assert!(
                changed.contains(&format!("update broker config success, {broker}")),
                "{changed}"
            );
            assert_eq!(shown("maxMessageSize").await, size);
        }
        let status = admin(&["brokerStatus", "-b", &broker]).await;
        for name in [
            "bootTimestamp",
            "brokerVersionDesc",
            "putTps",
            "commitLogMaxOffset",
            "putMessageDistributeTime",
        ] {
            assert!(!value(&status, name).is_empty());
        }

        for (command, perm) in [("wipeWritePerm", "4"), ("addWritePerm", "6")] {
            let changed = admin(&[command, "-b", "broker-a"]).await;
            assert!(
                changed.contains("write perm of broker[broker-a] in name server"),
                "{changed}"
            );
            let route = admin(&["topicRoute", "-t", &topic]).await;
            assert!(
                route.contains(&format!("\"perm\":{perm}")),
                "{command}: {route}"
            );
        }
        let (space, topic) = (doors.name("space"), &topic);
        let put = admin(&["updateKvConfig", "-s", &space, "-k", "k", "-v", "v"]).await;
        assert!(
            put.contains("create or update kv config to namespace success."),
            "{put}"
        );
        let gone = admin(&["deleteKvConfig", "-s", &space, "-k", "k"]).await;
        assert!(
            gone.contains("delete kv config from namespace success."),
            "{gone}"
        );
        admin(&[
            "updateOrderConf",
            "-t",
            topic,
            "-m",
            "put",
            "-v",
            "broker-a:2",
        ])
        .await;
        let order = admin(&["updateOrderConf", "-t", topic, "-m", "get"]).await;
        assert!(order.contains("orderConf=[broker-a:2]"), "{order}");
        let config = admin(&["getNamesrvConfig"]).await;
        assert!(config.contains("orderMessageEnable"), "{config}");

        for command in ["cleanExpiredCQ", "cleanUnusedTopic"] {
            let done = admin(&[command, "-b", &broker]).await;
            assert!(done.contains("success"), "{command}: {done}");
        }
        let reset = admin(&["resetMasterFlushOffset", "-b", &broker, "-o", "0"]).await;
        assert!(
            reset.contains("reset master flush offset to 0 success"),
            "{reset}"
        );
        let clusters = admin(&["topicClusterList", "-t", topic]).await;
        assert_eq!(clusters.trim(), "DefaultCluster");
        let shares = admin(&["allocateMQ", "-t", topic, "-i", "127.0.0.1,127.0.0.2"]).await;
        assert_eq!(
            shares.matches(r#""brokerName":"broker-a""#).count(),
            2,
            "{shares}"
        );

        if doors.gateway().is_some() {
            let refused = admin(&[
                "updateBrokerConfig",
                "-b",
                &broker,
                "-k",
                "listenPort",
                "-v",
                "1",
            ])
            .await;
            assert!(
                refused.contains("CODE: 16") && refused.contains("maxMessageSize"),
                "{refused}"
            );
            for (command, why) in [
                (["haStatus", "-b", &broker], "replication is not built yet"),
                (
                    ["listUser", "-b", &broker],
                    "access control of the native port is not built yet",
                ),
            ] {
                let refused = admin(&command).await;
                assert!(
                    refused.contains("CODE: 3") && refused.contains(why),
                    "{refused}"
                );
            }
            let to = doors.dir().join("export");
            for command in ["exportMetadata", "exportConfigs", "exportMetrics"] {
                let done =
                    admin(&[command, "-c", "DefaultCluster", "-f", to.to_str().unwrap()]).await;
                assert!(done.contains("success"), "{command}: {done}");
            }
        }
    });
}
