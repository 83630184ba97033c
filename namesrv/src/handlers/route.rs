//! GET_ROUTEINFO_BY_TOPIC 105: what every client asks first and most often.

use wire::Command;
use wire::body::TopicRouteData;
use wire::headers::topic::RouteRequest;

use super::header;
use crate::dispatch::success;
use crate::error::NamesrvError;
use crate::kv_config::ORDER_TOPICS;
use crate::namesrv::NameServer;

pub(crate) fn route(ns: &NameServer, cmd: &Command) -> Result<Command, NamesrvError> {
    let head: RouteRequest = header(cmd)?;
    let zone = cmd
        .ext
        .get("__ZONE_NAME")
        .filter(|zone| !zone.is_empty() && cmd.ext.bool("__ZONE_MODE"));
    let route = ns.table.read().route(&head.topic, zone);
    let route = route.ok_or_else(|| NamesrvError::NoRoute(head.topic.clone()))?;
    let mut body = TopicRouteData::from(route);
    if ns.settings.lock().is_on("orderMessageEnable") {
        body.order_topic_conf = ns.kv.get(ORDER_TOPICS, &head.topic);
    }
    Ok(success().with_body(body.encode(cmd.version, head.accept_standard_json_only == Some(true))))
}
