//! A broker killed with -9 at random moments under load keeps every promise it has answered.

use std::time::Duration;

use gantry_tests::fleet::Metadata;
use gantry_tests::kill9::campaign::{Plan, Report, Victim, run};
use gantry_tests::kill9::fleet::{FleetPlan, run as run_fleet};
use gantry_tests::wait::{SLOW, within};

/// `GANTRY_KILLS` sets the number of kills (3; a campaign is 30), `GANTRY_KILL_RATE` the sends a second. With
/// `GANTRY_KILLS` set, a load below 2,000 sends, deliveries and acks a second fails too.
fn plan(victim: Victim, flush: &'static str) -> Plan {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u32>().unwrap())
    };
    let rate = number("GANTRY_KILL_RATE").unwrap_or(1000);
    Plan {
        victim,
        flush,
        kills: number("GANTRY_KILLS").unwrap_or(3),
        between: (Duration::from_millis(600), Duration::from_millis(3000)),
        native_rate: rate * 4 / 5,
        rest_rate: rate / 5,
        seed: u64::from(std::process::id()) * 7919,
    }
}

fn judge(plan: &Plan) {
    let dir = tempfile::tempdir().unwrap();
    let limit = SLOW.max(Duration::from_secs(180) + 6 * plan.kills * Duration::from_secs(1));
    within(limit, async {
        let report: Report = run(plan, dir.path()).await.unwrap();
        let (sends, deliveries, acks) = report.rates();
        println!(
            "{} kills of {:?}, {} flush, seed {}: {} sends answered, {} deliveries, {} acks in {:.1} s \
             ({sends:.0}, {deliveries:.0}, {acks:.0} a second), slowest start {:?}",
            plan.kills,
            plan.victim,
            plan.flush,
            plan.seed,
            report.sends,
            report.deliveries,
            report.acks,
            report.lasted.as_secs_f64(),
            report.slowest_start
        );
        let shown: Vec<_> = report.faults.iter().take(10).collect();
        assert!(
            report.faults.is_empty(),
            "{} broken promises, such as {shown:?}\n{}",
            report.faults.len(),
            report.stories.join("\n")
        );
        assert!(
            report.sends > 0 && report.deliveries > 0 && report.acks > 0,
            "nothing happened: {report:?}"
        );
        if std::env::var_os("GANTRY_KILLS").is_some() {
            assert!(
                sends + deliveries + acks >= 6000.0,
                "the load was below 2,000 a second each"
            );
        }
    });
}

/// Everything in one process, each answered send flushed.
#[test]
fn killed_process_under_sync_flush_keeps_its_promises() {
    judge(&plan(Victim::Up, "sync"));
}

/// A process kill takes no page cache with it, so async flush promises the same here.
#[test]
fn killed_broker_under_async_flush_keeps_its_promises() {
    judge(&plan(Victim::Broker, "async"));
}

/// Two name servers, two brokers and two gateways on one metadata store, killed in turn; receipts of a killed gateway are
/// acked on the other one. `GANTRY_FLEET_FLUSH=async` sets the brokers' flush mode (sync), which promises the same here: see
/// above. `GANTRY_FLEET_KILLS=100 GANTRY_KILL_RATE=7000` is the campaign; it fails below 5,000 sends and acks a second.
#[test]
fn killed_brokers_gateways_and_name_servers_keep_their_promises() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u32>().unwrap())
    };
    let flush = match std::env::var("GANTRY_FLEET_FLUSH").as_deref() {
        Err(_) | Ok("sync") => "sync",
        Ok("async") => "async",
        Ok(other) => panic!("GANTRY_FLEET_FLUSH is sync or async, not {other}"),
    };
    let plan = FleetPlan {
        metadata: Metadata::Postgres,
        flush,
        kills: number("GANTRY_FLEET_KILLS").unwrap_or(6),
        between: (Duration::from_millis(500), Duration::from_millis(2500)),
        rate: number("GANTRY_KILL_RATE").unwrap_or(1000),
        seed: u64::from(std::process::id()) * 7919,
    };
    let limit = SLOW.max(Duration::from_secs(300) + 8 * plan.kills * Duration::from_secs(1));
    within(limit, async {
        let done = run_fleet(&plan).await.unwrap();
        let report = &done.report;
        let (sends, deliveries, acks) = report.rates();
        println!(
            "{} kills of brokers, gateways and name servers, {} flush, seed {}: {} sends answered, {} deliveries, {} acks in \
             {:.1} s ({sends:.0}, {deliveries:.0}, {acks:.0} a second), {} receipts of killed gateways acked on the other, \
             log files filled by each broker {:?}, slowest start {:?}",
            plan.kills,
            plan.flush,
            plan.seed,
            report.sends,
            report.deliveries,
            report.acks,
            report.lasted.as_secs_f64(),
            done.handed_over,
            done.filled,
            report.slowest_start
        );
        let shown: Vec<_> = report.faults.iter().take(10).collect();
        assert!(
            report.faults.is_empty(),
            "{} broken promises, such as {shown:?}\n{}",
            report.faults.len(),
            report.stories.join("\n")
        );
        assert!(
            done.handed_over > 0,
            "no gateway was killed with receipts out"
        );
        assert!(
            done.filled.iter().all(|filled| *filled > 0),
            "a broker that filled no log file: {:?}",
            done.filled
        );
        if std::env::var_os("GANTRY_FLEET_KILLS").is_some() {
            assert!(
                sends >= 5000.0 && acks >= 5000.0,
                "the load was below 5,000 a second"
            );
        }
    });
}
