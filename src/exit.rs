//! Exit codes, and the last words on stderr.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// Why the process ends otherwise than well.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    error: anyhow::Error,
}

impl Failure {
    /// 1: it failed while running.
    pub(crate) fn running(error: impl Into<anyhow::Error>) -> Self {
        Self {
            code: 1,
            error: error.into(),
        }
    }

    /// 3 and 4 among others: the part that failed knows.
    pub(crate) fn with_code(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Self {
            code,
            error: error.into(),
        }
    }

    /// 2: the command line or the configuration cannot be used.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self {
            code: 2,
            error: anyhow::anyhow!("{message}"),
        }
    }

    /// Says why on stderr and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        let mut causes = self.error.chain().map(ToString::to_string);
        let first = causes.next().unwrap_or_default();
        let text = causes.fold(first, |text, cause| {
            // Some errors say their cause themselves.
            if text.ends_with(&cause) {
                text
            } else {
                format!("{text}: {cause}")
            }
        });
        let mut stderr = std::io::stderr().lock();
        for line in text.lines() {
            writeln!(stderr, "gantry: {line}").ok();
        }
        ExitCode::from(self.code)
    }
}
