//! The fuzz program: built by `scripts/fuzz` it is a libFuzzer binary; else it runs the files it is given.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod engine {
    use std::sync::OnceLock;

    static TARGET: OnceLock<fn(&[u8])> = OnceLock::new();

    fn chosen() -> fn(&[u8]) {
        let name = std::env::var("GANTRY_FUZZ_TARGET").unwrap_or_default();
        gantry_fuzz::target(&name).unwrap_or(|_| std::process::abort())
    }

    libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET.get_or_init(chosen)(data));
}

#[cfg(not(fuzzing))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("usage: gantry-fuzz TARGET FILE...")?;
    let run = gantry_fuzz::target(&name).ok_or("no such target")?;
    for file in args {
        run(&std::fs::read(file)?);
    }
    Ok(())
}
