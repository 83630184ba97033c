//! What a newcomer sees: where the page is, what a send promises, and three lines to try.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use broker::FlushMode;

/// Printed after the `listening` lines. The three lines are pasted as they stand, one by one or as
/// a block, in bash, zsh or dash, and fit into 100 columns.
pub(crate) fn print(http: SocketAddr, flush: FlushMode, data: &Path) {
    let mut out = std::io::stdout().lock();
    out.write_all(text(http, flush, data).as_bytes())
        .and_then(|()| out.flush())
        .ok();
}

fn text(http: SocketAddr, flush: FlushMode, data: &Path) -> String {
    let promise = match flush {
        FlushMode::Sync => {
            "sync: what was answered is on the disk and survives kill -9 and a power cut"
        }
        FlushMode::Async => {
            "async: what was answered survives kill -9; a power cut may take the last half second"
        }
    };
    let (data, lines) = (data.display(), gateway::curl_lines(&http.to_string()));
    format!(
        "\nPage        http://{http}/\nFlush mode  {promise}\nData        {data}\n\n\
         Send, receive, ack (the file h takes the receipt):\n\n{lines}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_lines_are_exact_and_fit() {
        let text = text(
            SocketAddr::from(([127, 0, 0, 1], 8080)),
            FlushMode::Sync,
            Path::new("d"),
        );
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("curl"))
            .collect();
        assert_eq!(
            lines,
            [
                r#"curl --json '{"text":"hello"}' 127.0.0.1:8080/v1/ns/default/topics/hello/messages"#,
                r"curl -d '' -D h -w '\n' '127.0.0.1:8080/v1/ns/default/groups/me/receive?topic=hello&bodyFormat=raw'",
                r#"curl -d '' "127.0.0.1:8080/v1/ns/default/groups/me/ack?receipt=$(grep -o 'mqr_[[:graph:]]*' h)""#,
            ]
        );
        assert!(
            lines.iter().all(|line| line.len() < 100),
            "one more digit of the port has to fit"
        );
        assert!(text.contains("http://127.0.0.1:8080/") && text.contains("power cut"));
    }
}
