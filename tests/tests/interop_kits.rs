//! The conformance kits of `tests/kits` against Gantry: every check passes but those of `tests/kits/exceptions.txt`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use gantry_tests::doors::Doors;
use gantry_tests::java::interop;
use gantry_tests::needs::missing;
use gantry_tests::wait::within;
use tokio::process::Command;

/// Longest run of one kit; they run side by side.
const LIMIT: Duration = Duration::from_secs(400);

fn kits(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("kits")
        .join(path)
}

/// Checks that must fail, by kit.
fn exceptions() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(kits("exceptions.txt")).unwrap();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.len() > 2, "kit, check and why: {line}");
        let fresh = all
            .entry(words[0].to_owned())
            .or_default()
            .insert(words[1].to_owned());
        assert!(fresh, "listed twice: {line}");
    }
    all
}

/// The program of a kit and what must be there to run it.
fn program(kit: &str) -> (PathBuf, Vec<String>) {
    let text = |path: PathBuf| path.display().to_string();
    match kit {
        "go" => (interop("target/go/kit"), Vec::new()),
        "cpp" => (
            interop("target/python/bin/python"),
            vec![text(kits("clients/python-cpp/kit.py"))],
        ),
        java => {
            let home = interop("target").join(format!("kit-{java}"));
            let (classes, lib) = (home.join("target/classes"), home.join("lib"));
            let args = [
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Xmx384m",
                "-cp",
            ];
            let mut args: Vec<String> = args.map(str::to_owned).to_vec();
            args.push(format!("{}:{}/*", text(classes), text(lib)));
            args.extend(["kit.Kit", "--parallel", "6"].map(str::to_owned));
            ("java".into(), args)
        }
    }
}

fn is_built(kit: &str) -> bool {
    let (program, _) = program(kit);
    let needed = match kit {
        "go" | "cpp" => program,
        java => interop("target").join(format!("kit-{java}/target/classes/kit/Kit.class")),
    };
    needed.try_exists().unwrap()
}

/// Runs a kit against a cluster of its own: some checks change the broker's settings. The answer is what it printed.
async fn run(kit: &str) -> String {
    let doors = Doors::open_fast().unwrap();
    let home = doors.dir();
    let (program, args) = program(kit);
    let child = Command::new(program)
        .args(args)
        .args(["--namesrv", &doors.namesrv.to_string()])
        .current_dir(home)
        .env("HOME", home)
        .env(
            "JAVA_TOOL_OPTIONS",
            format!("-Duser.home={}", home.display()),
        )
        .env("rocketmq.client.localOffsetStoreDir", home.join("offsets"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, child)
        .await
        .unwrap_or_else(|_| panic!("kit {kit} did not end"))
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What is wrong with the outcome of a kit, a line each.
fn judge(kit: &str, printed: &str, excepted: &BTreeSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    for line in printed.lines() {
        let (verdict, rest) = line.split_once(' ').unwrap_or((line, ""));
        let name = rest.split([' ', ':']).next().unwrap_or("").to_owned();
        match verdict {
            "PASS" if excepted.contains(&name) => {
                wrong.push(format!("{kit} {name} passes: take it off the exceptions"));
            }
            "FAIL" if !excepted.contains(&name) => wrong.push(format!("{kit} {line}")),
            "PASS" | "FAIL" => {}
            _ => continue,
        }
        seen.insert(name);
    }
    if seen.len() < 20 {
        wrong.push(format!("{kit} ran {} checks only:\n{printed}", seen.len()));
    }
    wrong.extend(
        excepted
            .difference(&seen)
            .map(|name| format!("{kit} has no check {name}")),
    );
    wrong
}

#[test]
fn every_check_of_the_kits_passes_but_the_named_ones() {
    within(LIMIT + Duration::from_secs(20), async {
        let exceptions = exceptions();
        let mut running = tokio::task::JoinSet::new();
        for kit in ["go", "cpp", "java5", "java4"] {
            if is_built(kit) {
                let excepted = exceptions.get(kit).cloned().unwrap_or_default();
                running.spawn(async move { judge(kit, &run(kit).await, &excepted) });
            } else {
                missing(&format!("kit {kit}"), "run `scripts/clients`").unwrap();
            }
        }
        let wrong: Vec<String> = running.join_all().await.into_iter().flatten().collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

#[test]
fn an_outcome_is_judged_by_the_exceptions() {
    let passes: String = (0..20).map(|n| format!("PASS ok-{n} (1.0s)\n")).collect();
    let excepted = BTreeSet::from(["late".to_owned(), "works".to_owned(), "gone".to_owned()]);
    let printed = format!(
        "{passes}FAIL late: expected 1 (2s)\nPASS works (1s)\nFAIL new: saw 2\nSKIP it: no\n"
    );
    let wrong = judge("go", &printed, &excepted);
    assert_eq!(
        wrong,
        [
            "go works passes: take it off the exceptions",
            "go FAIL new: saw 2",
            "go has no check gone"
        ]
    );
    assert_eq!(judge("go", "FAIL late: no\n", &excepted).len(), 3);
}
