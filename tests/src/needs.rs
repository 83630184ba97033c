//! What a machine may lack.

use anyhow::{Result, bail};

/// Something a test needs and does not find: an error with CI set (to anything but nothing), where nothing is left out;
/// a line about it elsewhere. `remedy` is how to get it.
pub fn missing(what: &str, remedy: &str) -> Result<()> {
    if std::env::var_os("CI").is_some_and(|value| !value.is_empty()) {
        bail!("{what} is missing: {remedy}");
    }
    println!("skipped: {what} is missing: {remedy}");
    Ok(())
}
