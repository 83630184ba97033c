//! House rules that a compiler does not check.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All files of the repository that end so, sorted; build output and dependencies left out.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !["target", "node_modules", ".git", "gantry-data"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn short(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

fn none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n{}", found.join("\n"));
}

#[test]
fn every_rust_file_begins_with_what_it_is_for() {
    let bare = files(&[".rs"])
        .into_iter()
        .filter(|path| !fs::read_to_string(path).unwrap().starts_with("//! "));
    none(
        "files without //! on line 1",
        &bare.map(|path| short(&path)).collect::<Vec<_>>(),
    );
}

/// Over 600 lines a file is named in the output, over 1,000 it has more than one job.
#[test]
fn files_are_small_enough_to_have_one_job() {
    let lines = |path: &Path| fs::read_to_string(path).unwrap().lines().count();
    let sized = files(&[".rs"])
        .into_iter()
        .map(|path| (lines(&path), short(&path)));
    let long: Vec<(usize, String)> = sized.filter(|(lines, _)| *lines > 600).collect();
    for (lines, path) in &long {
        println!("{path}: {lines} lines");
    }
    let too_long = long.iter().filter(|(lines, _)| *lines > 1000);
    none(
        "files over 1,000 lines",
        &too_long.map(|(_, path)| path.clone()).collect::<Vec<_>>(),
    );
}

/// What a manifest depends on; what only its tests need is left out.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest
        .split("\n[dependencies]\n")
        .nth(1)
        .unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    section
        .lines()
        .filter_map(|line| line.split(['.', '=', ' ']).next())
}

/// Silent crates have no runtime, no sockets and no global state.
#[test]
fn silent_crates_depend_on_no_runtime() {
    const LOUD: [&str; 8] = [
        "tokio",
        "tokio-util",
        "hyper",
        "axum",
        "tower",
        "futures-util",
        "sqlx",
        "tracing-subscriber",
    ];
    let mut found = Vec::new();
    for silent in ["crates/clock", "crates/wire", "crates/store", "openapi"] {
        let manifest = fs::read_to_string(root().join(silent).join("Cargo.toml")).unwrap();
        let loud = dependencies(&manifest).filter(|name| LOUD.contains(name));
        found.extend(loud.map(|name| format!("{silent}: {name}")));
    }
    none("silent crates with a runtime", &found);
}

/// An arrow points to a lower layer only.
#[test]
fn servers_never_depend_on_each_other() {
    const SERVERS: [&str; 3] = ["gateway", "broker", "namesrv"];
    let mut found = Vec::new();
    for server in SERVERS {
        let manifest = fs::read_to_string(root().join(server).join("Cargo.toml")).unwrap();
        let others = dependencies(&manifest).filter(|name| SERVERS.contains(name));
        found.extend(others.map(|other| format!("{server} -> {other}")));
    }
    none("servers that know each other", &found);
}

/// Nothing unfinished, nothing that only one machine has, nothing that speaks of documents a reader does not have.
#[test]
fn no_forbidden_words() {
    // put together here, so that this file does not name them
    let words: Vec<String> = [
        "to do!(",
        "unimple mented!(",
        "#[ig nore",
        "#[should_pa nic",
        "/wo rk/",
        "/ro ot/",
        "../sha red",
        "wi re.md",
        "desi gn.md",
        "gateway-a pi.md",
        "hou se.md",
        "sty le.md",
        "ca ses.md",
        "de ps.md",
        "FIX ME",
    ]
    .map(|word| word.replace(' ', ""))
    .to_vec();
    let mut found = Vec::new();
    for path in files(&[
        ".rs",
        ".md",
        ".toml",
        ".java",
        ".js",
        ".mjs",
        ".ts",
        ".html",
        ".yml",
        ".json",
        "/run",
        "scripts/test",
    ]) {
        if short(&path).starts_with("tests/kits/") || short(&path).ends_with("package-lock.json") {
            continue;
        }
        for (number, line) in fs::read_to_string(&path)
            .unwrap_or_default()
            .lines()
            .enumerate()
        {
            if let Some(word) = words.iter().find(|word| line.contains(word.as_str())) {
                found.push(format!("{}:{}: {word}", short(&path), number + 1));
            }
        }
    }
    none("forbidden words", &found);
}

/// Unsafe code has one place.
#[test]
fn unsafe_lives_in_one_file() {
    let allowed = "crates/store/src/disk/mmap.rs";
    let mut found = Vec::new();
    for path in files(&[".rs"]) {
        let text = fs::read_to_string(&path).unwrap();
        let code = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default());
        let word = "unsafe";
        let uses = code.filter(|line| {
            line.contains(&format!("{word} {{"))
                || line.contains(&format!("{word} fn"))
                || line.contains(&format!("{word} impl"))
        });
        if uses.count() > 0 && short(&path) != allowed {
            found.push(short(&path));
        }
    }
    none("unsafe outside its place", &found);
}

/// Every request code is handled by name in a dispatch table, or listed as unsupported there.
#[test]
fn every_request_code_has_a_place() {
    let codes = fs::read_to_string(root().join("crates/wire/src/codes/request.rs")).unwrap();
    let handled: String = files(&[".rs"])
        .iter()
        .filter(|path| {
            ["broker/src", "namesrv/src"]
                .iter()
                .any(|server| short(path).starts_with(server))
        })
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let listed = fs::read_to_string(root().join("docs/protocol.md")).unwrap_or_default();
    let mut missing = BTreeSet::new();
    for (name, upper) in codes.lines().filter_map(code_names) {
        if !handled.contains(&format!("RequestCode::{name}")) && !listed.contains(upper) {
            missing.insert(format!("{name} ({upper})"));
        }
    }
    none(
        "request codes neither handled nor listed in docs/protocol.md",
        &missing.into_iter().collect::<Vec<_>>(),
    );
}

/// `SendMessage = 10 "SEND_MESSAGE",` → both names.
fn code_names(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.trim().split_once(" = ")?;
    let (number, rest) = rest.split_once(" \"")?;
    number.parse::<i32>().ok()?;
    Some((name, rest.strip_suffix("\",")?))
}
