//! Every target on its whole corpus and on damaged inputs of it: an answer or an error, never a panic.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test program")]

use std::path::{Path, PathBuf};

/// Damaged inputs of each target; `scripts/fuzz` runs for as long as it is told.
const RUNS: usize = 2_000;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&dir)
        .unwrap_or_else(|error| panic!("{}: {error}", dir.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() > 10, "{}: a corpus", dir.display());
    files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect()
}

/// Changes some bytes of one input, or cuts it.
fn damage(inputs: &[Vec<u8>], (pick, edits): &(u16, Vec<(u16, u8)>)) -> Vec<u8> {
    let mut bytes = inputs[usize::from(*pick) % inputs.len()].clone();
    for (at, value) in edits.iter().take(8) {
        if bytes.is_empty() {
            break;
        }
        let at = usize::from(*at) % bytes.len();
        match value {
            0 => bytes.truncate(at),
            1..16 => bytes.insert(at, b"{}[]\"':,\\/*0-.e"[usize::from(*value - 1)]),
            value => bytes[at] = *value,
        }
    }
    bytes
}

fn every_day(name: &str) {
    let run = gantry_fuzz::target(name).unwrap();
    let inputs = corpus(name);
    for input in &inputs {
        run(input);
    }
    bolero::check!()
        .with_iterations(RUNS)
        .with_type()
        .for_each(|edits| run(&damage(&inputs, edits)));
}

macro_rules! targets {
    ($($name:ident),*) => {
        $(#[test] fn $name() { every_day(stringify!($name)); })*

        #[test]
        fn every_target_and_every_corpus_is_named_here() {
            let named = [$(stringify!($name)),*];
            assert_eq!(gantry_fuzz::TARGETS.map(|(name, _)| name), named);
            let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
            assert_eq!(std::fs::read_dir(dir).unwrap().count(), named.len());
        }
    };
}

targets!(
    frames, bodies, records, texts, leases, rest, sockets, files, handles
);
