//! Before the load: a broker that has the topic.

use std::time::Duration;

use anyhow::{Context, bail};
use remoting::{Client, ClientOptions};
use wire::body::TopicRouteData;
use wire::{Command, RequestCode, ResponseCode};

use super::args::SendArgs;

const WAIT: Duration = Duration::from_secs(10);
/// A new topic is known to the name server after its broker has registered it.
const ROUTE_TRIES: u32 = 50;
const ROUTE_PAUSE: Duration = Duration::from_millis(100);

/// The broker's address; the topic is made there if no broker has it.
pub(crate) async fn find_broker(args: &SendArgs) -> anyhow::Result<String> {
    let client = Client::new(ClientOptions::default());
    if let Some(broker) = &args.broker {
        create(&client, broker, args).await?;
        return Ok(broker.clone());
    }
    if let Some(broker) = route(&client, args, &args.topic).await? {
        return Ok(broker);
    }
    let template = route(&client, args, "TBW102").await?;
    let broker =
        template.with_context(|| format!("the name server {} knows no broker", args.namesrv))?;
    create(&client, &broker, args).await?;
    for _ in 0..ROUTE_TRIES {
        if let Some(broker) = route(&client, args, &args.topic).await? {
            return Ok(broker);
        }
        tokio::time::sleep(ROUTE_PAUSE).await;
    }
    bail!("the topic was made but the name server does not know it")
}

async fn route(client: &Client, args: &SendArgs, topic: &str) -> anyhow::Result<Option<String>> {
    let request = Command::request(RequestCode::GetRouteinfoByTopic).with_ext("topic", topic);
    let answer = client.invoke(&args.namesrv, request, WAIT).await?;
    match answer.response_code() {
        ResponseCode::Success => {
            let route: TopicRouteData = wire::json::from_slice(&answer.body.to_bytes())?;
            Ok(route
                .broker_datas
                .iter()
                .find_map(|broker| broker.broker_addrs.get(&0).cloned()))
        }
        ResponseCode::TopicNotExist => Ok(None),
        other => bail!(
            "the name server answered {other:?}: {}",
            answer.remark.unwrap_or_default()
        ),
    }
}

async fn create(client: &Client, broker: &str, args: &SendArgs) -> anyhow::Result<()> {
    let request = Command::request(RequestCode::UpdateAndCreateTopic)
        .with_ext("topic", args.topic.as_str())
        .with_ext("defaultTopic", "TBW102")
        .with_ext("readQueueNums", args.queues)
        .with_ext("writeQueueNums", args.queues)
        .with_ext("perm", 6)
        .with_ext("topicFilterType", "SINGLE_TAG")
        .with_ext("topicSysFlag", 0)
        .with_ext("order", false);
    let answer = client.invoke(broker, request, WAIT).await?;
    if answer.response_code() != ResponseCode::Success {
        bail!(
            "topic {} cannot be made: {}",
            args.topic,
            answer.remark.unwrap_or_default()
        );
    }
    Ok(())
}
