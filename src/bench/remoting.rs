//! Load over remoting: each connection keeps its share of messages in flight.

use std::time::Duration;

use anyhow::{Context, bail};
use clock::{Clock, Monotonic, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::args::SendArgs;
use super::outcome::Outcome;
use super::pace::Pace;
use super::template::{Template, take_answer};

/// After the end, for answers that are still on their way.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// Runs the load.
pub(crate) async fn measure(broker: &str, args: &SendArgs) -> anyhow::Result<Outcome> {
    let body: Vec<u8> = (0..args.size)
        .map(|i| b'a' + u8::try_from(i % 26).unwrap_or(0))
        .collect();
    let born = SystemClock::new().now_ms();
    let templates =
        (0..args.queues).map(|queue| Template::send(&args.topic, queue, args.queues, &body, born));
    let templates: Vec<Template> = templates
        .collect::<Option<_>>()
        .context("cannot encode a send")?;
    let pace = Pace::new(args, args.connections);
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..args.connections {
        let slots =
            args.in_flight / args.connections + usize::from(i < args.in_flight % args.connections);
        let stream = TcpStream::connect(broker)
            .await
            .with_context(|| format!("cannot connect to {broker}"))?;
        stream.set_nodelay(true)?;
        tasks.spawn(drive(Connection::new(
            stream,
            slots,
            i,
            templates.clone(),
            pace.clone(),
        )?));
    }
    let mut total = Outcome::new()?;
    pace.watch(args.pid, &mut total).await;
    while let Some(done) = tasks.join_next().await {
        total.add(&done??)?;
    }
    Ok(total)
}

struct Connection {
    stream: TcpStream,
    templates: Vec<Template>,
    pace: Pace,
    /// When the message in each slot was sent (or due); none when the slot is free.
    slots: Vec<Option<Monotonic>>,
    free: Vec<u32>,
    sent: u64,
    queue: usize,
    out: Vec<u8>,
    outcome: Outcome,
}

impl Connection {
    fn new(
        stream: TcpStream,
        slots: usize,
        queue: usize,
        templates: Vec<Template>,
        pace: Pace,
    ) -> anyhow::Result<Self> {
        let free = (0..u32::try_from(slots)?).rev().collect();
        let (slots, out) = (vec![None; slots], Vec::new());
        Ok(Self {
            stream,
            templates,
            pace,
            slots,
            free,
            sent: 0,
            queue,
            out,
            outcome: Outcome::new()?,
        })
    }

    /// Encodes every message that is due and has a free slot; says when the next one is due.
    fn fill(&mut self) -> Option<Monotonic> {
        let now = self.pace.now();
        while !self.pace.is_over(now) {
            let due = self.pace.due(self.sent, now);
            if due > now {
                return (!self.free.is_empty()).then_some(due);
            }
            let slot = self.free.pop()?;
            self.slots[slot as usize] = Some(due);
            self.queue = (self.queue + 1) % self.templates.len();
            self.templates[self.queue].append(slot, &mut self.out);
            self.sent += 1;
        }
        None
    }

    fn answers(&mut self, bytes: &mut Vec<u8>) {
        let mut at = 0;
        let now = self.pace.now();
        while let Some((length, answer)) = take_answer(&bytes[at..]) {
            at += length;
            let Some(answer) = answer else { continue };
            let Some(since) = self.slots.get_mut(answer.n as usize).and_then(Option::take) else {
                continue;
            };
            self.free.push(answer.n);
            if !self.pace.counts(now) {
                continue;
            }
            match answer.code {
                0 => self.outcome.success(now.since(since)),
                code => self.outcome.error(format!("code {code}")),
            }
        }
        bytes.drain(..at);
    }
}

async fn drive(mut conn: Connection) -> anyhow::Result<Outcome> {
    let mut bytes = Vec::with_capacity(64 * 1024);
    let total = conn.slots.len();
    loop {
        let next = conn.fill();
        if !conn.out.is_empty() {
            conn.stream
                .write_all(&conn.out)
                .await
                .context("the broker closed the connection")?;
            conn.out.clear();
        }
        if conn.pace.is_over(conn.pace.now()) && conn.free.len() == total {
            return Ok(conn.outcome);
        }
        let wait = next.map_or(LAST_ANSWERS, |next| conn.pace.now().until(next));
        match tokio::time::timeout(wait, conn.stream.read_buf(&mut bytes)).await {
            Ok(Ok(0)) => bail!("the broker closed the connection"),
            Ok(read) => _ = read?,
            Err(_) if next.is_some() => {}
            Err(_) => {
                let lost = total - conn.free.len();
                (0..lost).for_each(|_| conn.outcome.error("no answer".to_owned()));
                return Ok(conn.outcome);
            }
        }
        conn.answers(&mut bytes);
    }
}
