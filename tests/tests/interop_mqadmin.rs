//! `mqadmin` of Apache RocketMQ 5.4.0 on our name server and broker: the commands an operator uses most, column by column.

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
        let admin = async |args: &[&str]| {
            let mut all = args.to_vec();
            all.extend(["-n", &namesrv]);
            java.admin(&all).await.unwrap()
        };

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
        let admin = async |args: &[&str]| {
            let mut all = args.to_vec();
            all.extend(["-n", &namesrv]);
            java.admin(&all).await.unwrap()
        };
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
