//! What `gantry up` prints works as printed: the three lines, pasted into each common shell.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use gantry_tests::http::Rest;
use gantry_tests::needs::missing;
use gantry_tests::process::Gantry;
use gantry_tests::wait::{USUAL, eventually, within};
use serde_json::Value;

/// The lines, once they are all printed.
async fn curl_lines(gantry: &Gantry) -> Vec<String> {
    eventually(
        Duration::from_secs(5),
        "three curl lines on stdout",
        async || {
            let lines: Vec<String> = gantry
                .printed()
                .into_iter()
                .filter(|line| line.starts_with("curl "))
                .collect();
            (lines.len() == 3).then_some(lines)
        },
    )
    .await
}

/// The standard output of a shell that reads the text as if it were pasted at its prompt.
fn paste(shell: &[&str], text: &str, dir: &Path) -> String {
    let (program, args) = shell.split_first().unwrap();
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env("PS1", "")
        .env("PS2", "")
        .env_remove("ENV");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    String::from_utf8(output.stdout)
        .unwrap_or_else(|_| panic!("{program} printed no UTF-8: {errors}"))
}

fn installed(program: &str) -> bool {
    Command::new(program)
        .arg("-c")
        .arg(":")
        .status()
        .is_ok_and(|status| status.success())
}

#[test]
fn the_three_lines_work_pasted_as_one_block_in_bash_dash_and_zsh() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let gantry = Gantry::up(dir.path(), &[]).unwrap();
        let http = gantry.addr("gateway");
        let lines = curl_lines(&gantry).await;
        let expected = [
            format!(
                "curl --json '{{\"text\":\"hello\"}}' {http}/v1/ns/default/topics/hello/messages"
            ),
            format!(
                "curl -d '' -D h -w '\\n' '{http}/v1/ns/default/groups/me/receive?topic=hello&bodyFormat=raw'"
            ),
            format!(
                "curl -d '' \"{http}/v1/ns/default/groups/me/ack?receipt=$(grep -o 'mqr_[[:graph:]]*' h)\""
            ),
        ];
        assert_eq!(lines, expected);
        assert!(lines.iter().all(|line| line.len() <= 100), "{lines:#?}");

        let block = format!("{}\n", lines.join("\n"));
        let shells: [&[&str]; 6] = [
            &["bash"],
            &["bash", "--norc", "-i"],
            &["dash"],
            &["dash", "-i"],
            &["zsh"],
            &["zsh", "-f", "-i"],
        ];
        for (run, shell) in shells.iter().enumerate() {
            if !installed(shell[0]) {
                missing(shell[0], "apt-get install zsh dash").unwrap();
                continue;
            }
            let folder = dir.path().join(format!("shell-{run}"));
            std::fs::create_dir(&folder).unwrap();
            let printed = paste(shell, &block, &folder);
            let answers: Vec<&str> = printed
                .lines()
                .filter(|line| !line.trim().is_empty())
                .collect();
            assert_eq!(answers.len(), 3, "{shell:?} printed {printed}");
            let send: Value = serde_json::from_str(answers[0]).unwrap();
            assert_eq!(
                send["messageId"].as_str().unwrap().len(),
                26,
                "{shell:?}: {send}"
            );
            assert_eq!(answers[1], "hello", "{shell:?}");
            let ack: Value = serde_json::from_str(answers[2]).unwrap();
            assert_eq!(ack["results"][0]["status"], "acked", "{shell:?}: {ack}");
        }
    });
}

#[test]
fn without_the_third_line_the_message_comes_again() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let gantry = Gantry::up(dir.path(), &[]).unwrap();
        let lines = curl_lines(&gantry).await;
        let receive = lines[1].replace("bodyFormat=raw", "bodyFormat=raw&invisibleFor=1s");
        let block = format!(
            "{}\n{receive}\n{}\n",
            lines[0],
            receive.replace("-D h", "-D h2")
        );
        paste(&["bash"], &block, dir.path());
        let again = std::fs::read_to_string(dir.path().join("h2")).unwrap();
        assert!(again.to_lowercase().contains("mq-attempt: 2"), "{again}");
    });
}

#[test]
fn the_root_page_shows_the_lines() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let gantry = Gantry::up(dir.path(), &[]).unwrap();
        let http = gantry.addr("gateway");
        let url = format!("http://{http}");
        eventually(Duration::from_secs(5), "the URL on stdout", async || {
            let printed = gantry.printed();
            printed.iter().any(|line| line.contains(&url)).then_some(())
        })
        .await;
        let page = Rest::new(http).get("/").await.expect(200);
        assert!(
            page.header("content-type")
                .unwrap()
                .starts_with("text/html")
        );
        let text = String::from_utf8(page.body.to_vec()).unwrap();
        assert!(
            text.contains(&format!("{http}/v1/ns/default/topics/hello/messages")),
            "{text}"
        );
    });
}

#[test]
fn a_second_start_on_the_same_data_says_that_it_is_in_use() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let _first = Gantry::up(dir.path(), &[]).unwrap();
        let other = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let binary = gantry_tests::process::binary().unwrap();
        let mut command = Command::new(binary);
        command
            .arg("up")
            .arg("--data")
            .arg(&data)
            .current_dir(other.path());
        command.args([
            "--http",
            "127.0.0.1:0",
            "--namesrv-listen",
            "127.0.0.1:0",
            "--broker-listen",
            "127.0.0.1:0",
        ]);
        let output = command.output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(3),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("in use"),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    });
}

#[test]
fn sigterm_ends_the_process_cleanly_and_the_messages_are_there_again() {
    within(USUAL, async {
        let dir = tempfile::tempdir().unwrap();
        let mut gantry = Gantry::up(dir.path(), &[]).unwrap();
        let rest = Rest::new(gantry.addr("gateway"));
        let sent = rest
            .send("kept", &serde_json::json!({"text": "hello"}))
            .await
            .expect(201)
            .json();
        assert_eq!(
            gantry.stop().unwrap().code(),
            Some(0),
            "{}",
            gantry.logged()
        );
        gantry.start_again().unwrap();
        let got = rest
            .receive("me", "topic=kept&wait=5s")
            .await
            .expect(200)
            .messages();
        assert_eq!(got.len(), 1);
        assert_eq!(got[0]["messageId"], sent["messageId"]);
    });
}
