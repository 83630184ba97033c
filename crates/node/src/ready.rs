//! Bound addresses and readiness: the `listening` lines on stdout, `/readyz`, the ready file.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

/// Name of a listening socket or of a server, as in `role=gateway`.
pub type Role = &'static str;

/// Told by the servers, read by whoever waits for them. Clones share the state.
#[derive(Debug, Clone)]
pub struct Ready {
    state: Arc<watch::Sender<State>>,
    print: bool,
}

#[derive(Debug, Clone, Default)]
struct State {
    listening: BTreeMap<Role, SocketAddr>,
    /// Per server: serving, or why not.
    serving: BTreeMap<Role, Result<(), String>>,
}

impl Ready {
    /// Prints one line per socket on stdout.
    #[must_use]
    pub fn printing() -> Self {
        Self {
            state: Arc::default(),
            print: true,
        }
    }

    /// Prints nothing.
    #[must_use]
    pub fn quiet() -> Self {
        Self {
            state: Arc::default(),
            print: false,
        }
    }

    /// A socket is bound: prints `listening role=… addr=…` at once.
    pub fn listening(&self, role: Role, addr: SocketAddr) {
        self.state.send_modify(|state| {
            state.listening.insert(role, addr);
        });
        if self.print {
            say(format_args!("listening role={role} addr={addr}"));
        }
    }

    /// The server announces that it is about to start: until it serves, the process is not ready.
    pub fn expect(&self, role: Role) {
        self.state.send_modify(|state| {
            state
                .serving
                .entry(role)
                .or_insert_with(|| Err("starting".to_owned()));
        });
    }

    /// The server does its work.
    pub fn serving(&self, role: Role) {
        self.state.send_modify(|state| {
            state.serving.insert(role, Ok(()));
        });
    }

    /// The server does not do its work (any more), and why.
    pub fn not_serving(&self, role: Role, why: impl Into<String>) {
        let why = why.into();
        self.state.send_modify(|state| {
            state.serving.insert(role, Err(why));
        });
    }

    /// The bound address of a socket, once there is one.
    #[must_use]
    pub fn addr(&self, role: Role) -> Option<SocketAddr> {
        self.state.borrow().listening.get(role).copied()
    }

    /// Every bound address.
    #[must_use]
    pub fn addrs(&self) -> BTreeMap<Role, SocketAddr> {
        self.state.borrow().listening.clone()
    }

    /// Resolves when the server serves.
    pub async fn wait_serving(&self, role: Role) {
        let mut watch = self.state.subscribe();
        // The sender lives as long as `self`, so the wait ends only with the condition.
        watch
            .wait_for(|state| matches!(state.serving.get(role), Some(Ok(()))))
            .await
            .ok();
    }

    /// Resolves when every expected server serves.
    pub async fn wait_all(&self) {
        let mut watch = self.state.subscribe();
        let all =
            |state: &State| !state.serving.is_empty() && state.serving.values().all(Result::is_ok);
        watch.wait_for(all).await.ok();
    }

    /// Whether every expected server serves; otherwise who does not, and why.
    ///
    /// # Errors
    /// One `role: reason` per server that does not serve; "nothing started" when there is none.
    pub fn check(&self) -> Result<(), String> {
        let state = self.state.borrow();
        if state.serving.is_empty() {
            return Err("nothing started".to_owned());
        }
        let faults: Vec<String> = state
            .serving
            .iter()
            .filter_map(|(role, serving)| {
                serving.as_ref().err().map(|why| format!("{role}: {why}"))
            })
            .collect();
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults.join("; "))
        }
    }

    /// The bound addresses as one JSON object, role to address: what `--ready-file` holds.
    #[must_use]
    pub fn to_json(&self) -> String {
        let addrs = self.addrs();
        let members: Vec<String> = addrs
            .iter()
            .map(|(role, addr)| format!("\"{role}\":\"{addr}\""))
            .collect();
        format!("{{{}}}\n", members.join(","))
    }
}

/// One line on stdout, where supervisors and tests read; a closed stdout is not an error.
fn say(line: fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_when_every_expected_server_serves() {
        let ready = Ready::quiet();
        assert!(ready.check().is_err());
        ready.expect("broker");
        ready.serving("namesrv");
        assert_eq!(ready.check(), Err("broker: starting".to_owned()));
        ready.serving("broker");
        ready.wait_serving("broker").await;
        assert_eq!(ready.check(), Ok(()));
        ready.expect("broker");
        assert_eq!(ready.check(), Ok(()));
        ready.listening("broker", SocketAddr::from(([127, 0, 0, 1], 7)));
        assert_eq!(ready.to_json(), "{\"broker\":\"127.0.0.1:7\"}\n");
    }
}
