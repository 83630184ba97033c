//! Where topics are in the whole cluster, asked of the name servers and kept for a moment.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use clock::Monotonic;
use parking_lot::Mutex;
use remoting::Client;
use wire::body::route::TopicRouteData;
use wire::{Command, RequestCode, ResponseCode};

/// Age at which a route, or a topic without one, is asked for again.
const FRESH: Duration = Duration::from_secs(2);
/// Longest wait for one name server.
const ASK_WAIT: Duration = Duration::from_secs(1);
/// Most topics kept; then all are dropped and asked for again.
const TOPICS_MAX: usize = 20_000;

/// When it was asked for, and what came; `None`: no name server knows it.
type Route = (Monotonic, Option<Arc<TopicRouteData>>);

/// Routes by topic.
#[derive(Debug)]
pub(crate) struct Routes {
    addrs: Vec<String>,
    client: Client,
    known: Mutex<HashMap<String, Route>>,
}

impl Routes {
    /// Asks these name servers.
    pub(crate) fn new(addrs: &[String], client: Client) -> Self {
        Self {
            addrs: addrs.to_vec(),
            client,
            known: Mutex::new(HashMap::new()),
        }
    }

    /// Whether there is a name server to ask: without one this broker is the whole cluster.
    pub(crate) fn is_alone(&self) -> bool {
        self.addrs.is_empty()
    }

    /// The route of a topic; the last known one where no name server answers, `None` where there is none.
    pub(crate) async fn get(&self, topic: &str, now: Monotonic) -> Option<Arc<TopicRouteData>> {
        let last = self.known.lock().get(topic).cloned();
        if let Some((at, route)) = &last
            && now.since(*at) < FRESH
        {
            return route.clone();
        }
        for addr in &self.addrs {
            let mut cmd = Command::request(RequestCode::GetRouteinfoByTopic);
            cmd.ext.put("topic", topic);
            match self.client.invoke(addr, cmd, ASK_WAIT).await {
                Ok(answer) if answer.response_code() == ResponseCode::Success => {
                    match wire::json::from_slice::<TopicRouteData>(&answer.body.to_bytes()) {
                        Ok(route) => return self.keep(topic, Some(Arc::new(route)), now),
                        Err(error) => tracing::warn!(namesrv = %addr, %error, "bad route"),
                    }
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(namesrv = %addr, %error, "no route"),
            }
        }
        self.keep(topic, last.and_then(|(_, route)| route), now)
    }

    fn keep(
        &self,
        topic: &str,
        route: Option<Arc<TopicRouteData>>,
        now: Monotonic,
    ) -> Option<Arc<TopicRouteData>> {
        let mut known = self.known.lock();
        if known.len() >= TOPICS_MAX {
            known.clear();
        }
        known.insert(topic.to_owned(), (now, route.clone()));
        route
    }
}
