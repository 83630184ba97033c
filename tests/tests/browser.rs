//! The ten lines of `tests/browser/page.html` in a real browser against a real `gantry up`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use gantry_tests::needs::missing;
use gantry_tests::process::Gantry;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

const BROWSER_LIMIT: Duration = Duration::from_secs(120);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("browser")
}

/// What is missing to run a browser, if anything is, and how to get it.
async fn lacking() -> Option<(String, &'static str)> {
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
    for (program, remedy) in [
        (chromium.as_str(), "apt-get install chromium"),
        ("node", "apt-get install nodejs"),
    ] {
        let answer = Command::new(program).arg("--version").output().await;
        if !answer.is_ok_and(|output| output.status.success()) {
            return Some((program.to_owned(), remedy));
        }
    }
    let module = folder().join("node_modules/playwright-core/package.json");
    if std::fs::metadata(module).is_err() {
        return Some(("playwright-core".into(), "npm ci --prefix tests/browser"));
    }
    None
}

/// Answers every request with the page.
async fn serve_page(listener: TcpListener, page: Vec<u8>) {
    while let Ok((stream, _)) = listener.accept().await {
        // A browser that hangs up early is its own affair.
        drop(answer(stream, &page).await);
    }
}

async fn answer(mut stream: TcpStream, page: &[u8]) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < 64 * 1024 {
        let mut chunk = [0; 4096];
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut chunk)).await??;
        if read == 0 {
            return Ok(());
        }
        request.extend_from_slice(&chunk[..read]);
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(page).await?;
    stream.shutdown().await
}

/// Whether a browser can run here; fails where it has to.
async fn can_run() -> Result<bool> {
    match lacking().await {
        Some((what, remedy)) => missing(&what, remedy).map(|()| false),
        None => Ok(true),
    }
}

/// Serves the page at an origin of its own, starts `gantry up` that allows it, runs `run.mjs` and returns its output.
async fn run(page: Vec<u8>, more: &[&str]) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let origin = format!("http://{}", listener.local_addr()?);
    let server = tokio::spawn(serve_page(listener, page));
    let dir = tempfile::tempdir()?;
    let path = dir.path().to_owned();
    let allowed = origin.clone();
    let gantry =
        tokio::task::spawn_blocking(move || Gantry::up(&path, &["--allow-origin", &allowed]))
            .await??;
    let run = Command::new("node")
        .arg("run.mjs")
        .args(["--gateway", &format!("http://{}", gantry.addr("gateway"))])
        .args(["--page", &format!("{origin}/")])
        .args(more)
        .current_dir(folder())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(BROWSER_LIMIT, run)
        .await
        .context("the browser run took too long")??;
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    println!("{out}");
    assert!(
        output.status.success(),
        "run.mjs: {}\n{out}\n{err}",
        output.status
    );
    server.abort();
    Ok(out.into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_ten_lines_receives_and_acks() -> Result<()> {
    if !can_run().await? {
        return Ok(());
    }
    let page = std::fs::read(folder().join("page.html"))?;
    let lines = String::from_utf8(page.clone())?;
    let script = lines
        .split("<script>\n")
        .nth(1)
        .and_then(|rest| rest.split("</script>").next())
        .context("page.html has one script")?;
    assert_eq!(script.lines().count(), 10, "the page promises ten lines");
    let out = run(page, &[]).await?;
    assert_eq!(
        out.lines().filter(|line| line.starts_with("ok ")).count(),
        3
    );
    Ok(())
}

/// The page is left alone for longer than two heartbeats, with the times as they are by default. Takes 65 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_stays_connected_and_receiving_after_an_idle_minute() -> Result<()> {
    if !can_run().await? {
        return Ok(());
    }
    let page = std::fs::read(folder().join("page.html"))?;
    let out = run(page, &["--idle", "65"]).await?;
    assert!(out.starts_with("ok idle: 65 s"), "{out}");
    Ok(())
}
