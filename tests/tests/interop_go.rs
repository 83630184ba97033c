//! The unmodified Go client.

use gantry_tests::bulk::{Abilities, ten_thousand};
use gantry_tests::doors::Doors;
use gantry_tests::java::Java;
use gantry_tests::wait::{SLOW, within};

#[test]
fn ten_thousand_messages_of_every_send_mode_arrive_once_as_they_were_sent() {
    within(SLOW, async {
        let doors = Doors::open_fast().unwrap();
        let Some(client) = Java::go(doors.dir()).unwrap() else {
            return;
        };
        let can = Abilities {
            tells_places: true,
            lists_properties: true,
        };
        let namesrv = doors.namesrv.to_string();
        ten_thousand(&client, &namesrv, &doors.name("bulk"), can).await;
    });
}
