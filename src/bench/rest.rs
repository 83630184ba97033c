//! Load over REST: one keep-alive HTTP/1.1 connection for each message in flight.

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::args::SendArgs;
use super::outcome::Outcome;
use super::pace::Pace;

/// Largest head of an answer.
const HEAD_MAX: usize = 64 * 1024;

/// Runs the load.
pub(crate) async fn measure(addr: &str, args: &SendArgs) -> anyhow::Result<Outcome> {
    let path = format!("/v1/ns/default/topics/{}/raw", args.topic);
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {addr}\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
        args.size
    );
    let mut request = head.into_bytes();
    request.extend((0..args.size).map(|i| b'a' + u8::try_from(i % 26).unwrap_or(0)));
    let pace = Pace::new(args, args.in_flight);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..args.in_flight {
        let stream = TcpStream::connect(addr)
            .await
            .with_context(|| format!("cannot connect to {addr}"))?;
        stream.set_nodelay(true)?;
        tasks.spawn(drive(stream, request.clone(), pace.clone()));
    }
    let mut total = Outcome::new()?;
    pace.watch(args.pid, &mut total).await;
    while let Some(done) = tasks.join_next().await {
        total.add(&done??)?;
    }
    Ok(total)
}

async fn drive(mut stream: TcpStream, request: Vec<u8>, pace: Pace) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::new()?;
    let mut bytes = Vec::new();
    for n in 0.. {
        let now = pace.now();
        let due = pace.due(n, now);
        tokio::time::sleep(now.until(due)).await;
        if pace.is_over(pace.now()) {
            break;
        }
        stream
            .write_all(&request)
            .await
            .context("the gateway closed the connection")?;
        let status = read_answer(&mut stream, &mut bytes).await?;
        let now = pace.now();
        if pace.counts(now) {
            match status {
                200 | 201 => outcome.success(now.since(due)),
                other => outcome.error(format!("status {other}")),
            }
        }
    }
    Ok(outcome)
}

/// Reads one answer with a Content-Length and returns its status.
async fn read_answer(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> anyhow::Result<u32> {
    loop {
        if let Some((head, status, length)) = parse_head(bytes)? {
            if bytes.len() >= head + length {
                bytes.drain(..head + length);
                return Ok(status);
            }
        } else if bytes.len() > HEAD_MAX {
            bail!("the answer's head is too long");
        }
        if stream.read_buf(bytes).await? == 0 {
            bail!("the gateway closed the connection");
        }
    }
}

/// Length of the head, status, length of the body; none while the head is not whole.
fn parse_head(bytes: &[u8]) -> anyhow::Result<Option<(usize, u32, usize)>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.lines();
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|status| status.parse().ok());
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find_map(|(name, value)| {
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.trim().parse().ok())
                .flatten()
        });
    let status = status.context("no HTTP answer")?;
    match length {
        Some(length) => Ok(Some((end + 4, status, length))),
        None if status == 204 => Ok(Some((end + 4, status, 0))),
        None => bail!("an answer without Content-Length (status {status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_once_they_are_whole() {
        let answer = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(
            parse_head(answer).unwrap(),
            Some((answer.len() - 2, 201, 2))
        );
        assert_eq!(parse_head(&answer[..20]).unwrap(), None);
        assert!(parse_head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
        assert!(parse_head(b"nonsense\r\n\r\n").is_err());
    }
}
