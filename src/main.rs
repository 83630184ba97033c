//! The one binary: `gantry up | namesrv | broker | gateway`.

fn main() {}
