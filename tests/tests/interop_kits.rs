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

/// What becomes of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Pass,
    Fail,
    Skip,
}

impl Verdict {
    fn of(word: &str) -> Option<Verdict> {
        match word {
            "PASS" => Some(Verdict::Pass),
            "FAIL" => Some(Verdict::Fail),
            "SKIP" => Some(Verdict::Skip),
            _ => None,
        }
    }
}

/// Checks that must not pass, and what they must do instead.
type Exceptions = BTreeMap<String, Verdict>;

/// The exceptions of every kit.
fn exceptions() -> BTreeMap<String, Exceptions> {
    let text = std::fs::read_to_string(kits("exceptions.txt")).unwrap();
    let mut all: BTreeMap<String, Exceptions> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words.len() > 3, "verdict, kit, check and why: {line}");
        let verdict = Verdict::of(words[0]).unwrap_or_else(|| panic!("FAIL or SKIP: {line}"));
        let before = all
            .entry(words[1].to_owned())
            .or_default()
            .insert(words[2].to_owned(), verdict);
        assert_eq!(before, None, "listed twice: {line}");
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

/// What a kit did.
struct Outcome {
    printed: String,
    complained: String,
    /// The exit status; none where a signal ended it.
    status: Option<i32>,
}

async fn output(kit: &str, home: &Path, args: &[&str]) -> Outcome {
    let (program, first) = program(kit);
    let child = Command::new(program)
        .args(first)
        .args(args)
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
    Outcome {
        printed: String::from_utf8_lossy(&output.stdout).into_owned(),
        complained: String::from_utf8_lossy(&output.stderr).into_owned(),
        status: output.status.code(),
    }
}

/// Runs a kit against a cluster of its own, since some checks change the broker's settings, and judges it by the checks
/// that it lists.
async fn run(kit: &str, exceptions: &Exceptions) -> Vec<String> {
    let doors = Doors::open_fast().unwrap();
    let namesrv = ["--namesrv", &doors.namesrv.to_string()];
    let listed = output(kit, doors.dir(), &[&namesrv[..], &["--list"]].concat()).await;
    // The Java kit names the group of a check before it.
    let listed: BTreeSet<String> = (listed.printed.lines())
        .filter_map(|line| line.split(' ').next_back())
        .map(str::to_owned)
        .collect();
    let outcome = output(kit, doors.dir(), &namesrv).await;
    judge(kit, &listed, &outcome, exceptions)
}

/// What is wrong with the outcome of a kit, a line each.
fn judge(
    kit: &str,
    listed: &BTreeSet<String>,
    outcome: &Outcome,
    exceptions: &Exceptions,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    let (mut passed, mut failed) = (0, 0);
    for line in outcome.printed.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let Some(verdict) = Verdict::of(word) else {
            continue;
        };
        let name = rest.split([' ', ':']).next().unwrap_or("");
        match verdict {
            Verdict::Pass => passed += 1,
            Verdict::Fail => failed += 1,
            Verdict::Skip => {}
        }
        let expected = exceptions.get(name).copied().unwrap_or(Verdict::Pass);
        if verdict != expected {
            wrong.push(match verdict {
                Verdict::Pass => format!("{kit} {name} passes: take it off the exceptions"),
                Verdict::Fail | Verdict::Skip => format!("{kit} {line}"),
            });
        }
        if !seen.insert(name.to_owned()) {
            wrong.push(format!("{kit} {name} was judged twice"));
        }
    }
    if listed.is_empty() {
        wrong.push(format!("{kit} lists no checks"));
    }
    wrong.extend((listed.difference(&seen)).map(|name| format!("{kit} {name} was not judged")));
    wrong.extend(
        (seen.difference(listed)).map(|name| format!("{kit} {name} is not among its checks")),
    );
    wrong.extend(
        (exceptions.keys())
            .filter(|name| !listed.contains(*name))
            .map(|name| format!("{kit} has no check {name}")),
    );
    let closing = format!("{passed} passed, {failed} failed");
    let last = outcome.printed.lines().next_back().unwrap_or("");
    if last != closing {
        let complained: Vec<&str> = outcome.complained.lines().rev().take(20).collect();
        let complained: Vec<&str> = complained.into_iter().rev().collect();
        wrong.push(format!(
            "{kit} ended with {last:?}, not with {closing:?}:\n{}",
            complained.join("\n")
        ));
    }
    let status = i32::from(failed > 0);
    if outcome.status != Some(status) {
        wrong.push(format!(
            "{kit} exited with {:?}, not {status}",
            outcome.status
        ));
    }
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
                running.spawn(async move { run(kit, &excepted).await });
            } else {
                missing(&format!("kit {kit}"), "run `scripts/clients`").unwrap();
            }
        }
        let wrong: Vec<String> = running.join_all().await.into_iter().flatten().collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}

/// What [`judge`] says of a kit with the checks a, b, c and d, of which b must fail and c be skipped.
fn said(printed: &str, status: Option<i32>) -> Vec<String> {
    let listed = ["a", "b", "c", "d"].map(str::to_owned);
    let exceptions = [("b", Verdict::Fail), ("c", Verdict::Skip)];
    let outcome = Outcome {
        printed: printed.to_owned(),
        complained: "Killed\n".to_owned(),
        status,
    };
    judge(
        "go",
        &BTreeSet::from(listed),
        &outcome,
        &exceptions
            .map(|(name, verdict)| (name.to_owned(), verdict))
            .into(),
    )
}

#[test]
fn an_outcome_is_judged_by_the_exceptions() {
    let good = "PASS a (1.0s)\nFAIL b: expected 1 (2s)\nSKIP c: no\nPASS d (1s)\n9 s, 1 skipped\n";
    let whole = format!("{good}2 passed, 1 failed\n");
    assert_eq!(said(&whole, Some(1)), [""; 0]);

    let other = "FAIL a: saw 2\nPASS b (1s)\nPASS c (1s)\nSKIP d: no\n2 passed, 1 failed\n";
    assert_eq!(
        said(other, Some(1)),
        [
            "go FAIL a: saw 2",
            "go b passes: take it off the exceptions",
            "go c passes: take it off the exceptions",
            "go SKIP d: no",
        ]
    );
}

#[test]
fn a_kit_that_ends_early_or_leaves_checks_out_fails() {
    let good = "PASS a (1.0s)\nFAIL b: expected 1 (2s)\nSKIP c: no\n";
    assert_eq!(
        said(good, None),
        [
            "go d was not judged",
            "go ended with \"SKIP c: no\", not with \"1 passed, 1 failed\":\nKilled",
            "go exited with None, not 1",
        ]
    );
    let whole = format!("{good}PASS d (1s)\n2 passed, 1 failed\n");
    assert_eq!(said(&whole, Some(0)), ["go exited with Some(0), not 1"]);
    let early = format!("{good}FAIL run: ended early\n1 passed, 2 failed\n");
    assert_eq!(
        said(&early, Some(1)),
        [
            "go FAIL run: ended early",
            "go d was not judged",
            "go run is not among its checks"
        ]
    );
    let twice = format!("{good}PASS d (1s)\nPASS d (1s)\n2 passed, 1 failed\n");
    assert_eq!(
        said(&twice, Some(1)),
        [
            "go d was judged twice",
            "go ended with \"2 passed, 1 failed\", not with \"3 passed, 1 failed\":\nKilled"
        ]
    );
}
