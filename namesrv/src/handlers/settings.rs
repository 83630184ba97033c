//! The name server's own settings over the wire: 318, 319.

use wire::Command;

use crate::dispatch::success;
use crate::error::NamesrvError;
use crate::namesrv::NameServer;

/// UPDATE_NAMESRV_CONFIG 318.
pub(crate) fn update(ns: &NameServer, cmd: &Command) -> Result<Command, NamesrvError> {
    let body = cmd.body.to_bytes();
    let text = String::from_utf8_lossy(&body);
    ns.settings.lock().update(&text)?;
    tracing::info!(settings = %text.trim(), "settings changed");
    Ok(success())
}

/// GET_NAMESRV_CONFIG 319.
pub(crate) fn get(ns: &NameServer) -> Command {
    success().with_body(ns.settings.lock().text())
}
