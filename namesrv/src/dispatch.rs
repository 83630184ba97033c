//! Request code → handler: the one place where it is decided.

use std::sync::Arc;

use remoting::{Connection, Responder, Service};
use wire::{Command, RequestCode, ResponseCode};

use crate::error::NamesrvError;
use crate::handlers::{brokers, kv, register, route, settings, topics};
use crate::namesrv::NameServer;

/// How a request is answered.
pub(crate) enum Reply {
    /// With this.
    Now(Command),
    /// With success once the key-value table is on disk.
    WhenPersisted,
}

impl From<Command> for Reply {
    fn from(answer: Command) -> Self {
        Self::Now(answer)
    }
}

impl Service for NameServer {
    fn call(&self, cmd: Command, to: Responder) {
        let code = cmd.request_code();
        self.metrics.count(code);
        match dispatch(self, code, &cmd, to.conn().id()) {
            Ok(Reply::Now(answer)) => to.send(answer),
            Ok(Reply::WhenPersisted) => {
                let kv = Arc::clone(&self.kv);
                self.ctx.shutdown.tasks().spawn_blocking(move || {
                    to.send(
                        kv.persist()
                            .map_or_else(|error| refuse(code, &error), |()| success()),
                    );
                });
            }
            Err(error) => to.send(refuse(code, &error)),
        }
    }

    fn closed(&self, conn: &Arc<Connection>) {
        let gone = self.table.write().connection_closed(conn.id());
        for broker in &gone {
            tracing::warn!(broker, peer = %conn.peer(), "broker dropped: its connection has ended");
        }
        if !gone.is_empty() {
            self.update_sizes();
        }
    }
}

fn dispatch(
    ns: &NameServer,
    code: RequestCode,
    cmd: &Command,
    connection: u64,
) -> Result<Reply, NamesrvError> {
    Ok(match code {
        RequestCode::RegisterBroker => register::register(ns, cmd, connection)?.into(),
        RequestCode::UnregisterBroker => register::unregister(ns, cmd)?.into(),
        RequestCode::QueryDataVersion => register::query_data_version(ns, cmd)?.into(),
        RequestCode::BrokerHeartbeat => register::heartbeat(ns, cmd)?.into(),
        RequestCode::GetRouteinfoByTopic => route::route(ns, cmd)?.into(),
        RequestCode::GetBrokerClusterInfo => brokers::cluster_info(ns).into(),
        RequestCode::GetBrokerMemberGroup => brokers::member_group(ns, cmd)?.into(),
        RequestCode::WipeWritePermOfBroker => brokers::wipe_write(ns, cmd)?.into(),
        RequestCode::AddWritePermOfBroker => brokers::add_write(ns, cmd)?.into(),
        RequestCode::GetAllTopicListFromNameserver => topics::all(ns)?.into(),
        RequestCode::GetTopicsByCluster => topics::of_cluster(ns, cmd)?.into(),
        RequestCode::GetSystemTopicListFromNs => topics::system(ns).into(),
        RequestCode::GetUnitTopicList => topics::unit(ns, topics::UNIT, 0)?.into(),
        RequestCode::GetHasUnitSubTopicList => topics::unit(ns, topics::UNIT_SUB, 0)?.into(),
        RequestCode::GetHasUnitSubUnunitTopicList => {
            topics::unit(ns, topics::UNIT_SUB, topics::UNIT)?.into()
        }
        RequestCode::DeleteTopicInNamesrv => topics::delete(ns, cmd)?.into(),
        RequestCode::RegisterTopicInNamesrv => topics::register(ns, cmd)?.into(),
        RequestCode::PutKvConfig => kv::put(ns, cmd)?,
        RequestCode::GetKvConfig => kv::get(ns, cmd)?,
        RequestCode::DeleteKvConfig => kv::delete(ns, cmd)?,
        RequestCode::GetKvlistByNamespace => kv::list(ns, cmd)?,
        RequestCode::UpdateNamesrvConfig => settings::update(ns, cmd)?.into(),
        RequestCode::GetNamesrvConfig => settings::get(ns).into(),
        other => return Err(NamesrvError::Unknown(other.code())),
    })
}

/// Success without header or body.
pub(crate) fn success() -> Command {
    Command::response(ResponseCode::Success)
}

fn refuse(code: RequestCode, error: &NamesrvError) -> Command {
    tracing::debug!(request = code.name(), code = code.code(), %error, "request refused");
    let answer = Command::error(error.code(), error.to_string());
    match code {
        // Their answers have a typed header, also when there is nothing in it.
        RequestCode::GetKvConfig | RequestCode::RegisterBroker => {
            let mut answer = answer;
            answer.ext.mark_present();
            answer
        }
        _ => answer,
    }
}
