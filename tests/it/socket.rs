//! The Unix socket of the API: who may connect, as whom, and what stays of it.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use nix::sys::signal::Signal;
use tokio::process::Command;

use crate::program::Program;

/// A number that no group of this machine has.
const GROUP: u32 = 424_242;

/// A user without rights.
const NOBODY: u32 = 65_534;

/// Starts an agent with these lines in its configuration, and a token, which beyond the socket every client needs.
fn start(program: &mut Program, lines: &str, environment: &[(&str, &str)]) {
    fs::write(program.path("token"), "correct-horse-battery").unwrap();
    let token = program.path("token");
    program.configure(&format!("- {{url: /srv/none/infra.git}}\ntokenFile: {}\n{lines}", token.display()));
    let config = program.path("driftless.yaml").display().to_string();
    program.start(&["run", "--config", &config], environment);
    assert_eq!(program.notified(), "READY=1\nSTATUS=following 1 repository");
}

/// The answer to curl over a socket as a user with a group, and its exit code.
async fn curl_as(user: u32, group: u32, socket: &Path, path: &str) -> (i32, String) {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned()]);
    command.args(["curl", "-s", "--max-time", "20", "--unix-socket"]).arg(socket);
    let output = command.arg(format!("http://localhost{path}")).output().await.unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn socket_knows_its_users_and_needs_no_token() {
    let mut program = Program::new();
    let socket = program.path("agent.sock");
    let server = format!("unix://{}", socket.display());
    start(&mut program, &format!("socket: {}\n", socket.display()), &[]);
    assert_eq!(mode(&socket), 0o600, "only root and the user of the agent");
    let (code, text) = program.client(&["status"]).await;
    assert!(code == 2 && text.contains("requires a token"), "{text}");
    let (code, text) = program.client(&["status", "--server", &server]).await;
    assert!(code == 0 && text.contains("/srv/none/infra.git"), "{code} {text}");
    let create = ["token", "create", "ci", "--scope", "read", "--server", &server];
    let (code, text) = program.client(&create).await;
    assert_eq!(code, 0, "{text}");
    let user = fs::metadata("/proc/self").unwrap().uid();
    let (_, audit) = program.client(&["audit", "-o", "json", "--server", &server]).await;
    let entry: serde_json::Value = serde_json::from_str(audit.lines().last().unwrap()).unwrap();
    assert_eq!(entry["action"], "create token");
    assert_eq!((&entry["actor"]["kind"], &entry["from"]), (&"localUser".into(), &"socket".into()));
    if user == 0 {
        assert_eq!(entry["actor"]["name"], "root");
    }
    let (code, text) = program.client(&["status", "--server", &format!("{server}.gone")]).await;
    assert!(code == 2 && text.contains("no agent answers at unix://"), "{text}");
    program.end().await;
    assert!(!socket.exists(), "the agent removes its socket");
}

#[tokio::test]
async fn members_of_the_group_get_its_scopes() {
    // Only root can become another user.
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return;
    }
    let mut program = Program::new();
    fs::set_permissions(program.folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
    // Service managers make such a folder for the agent alone.
    let folder = program.path("driftless-api");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let socket = folder.join("agent.sock");
    let lines = format!("socket: {{path: {}, group: '{GROUP}', scopes: [act]}}\n", socket.display());
    start(&mut program, &lines, &[("RUNTIME_DIRECTORY", &folder.display().to_string())]);
    assert_eq!((mode(&socket), fs::metadata(&socket).unwrap().gid()), (0o660, GROUP));
    let (code, who) = curl_as(NOBODY, GROUP, &socket, "/api/v1/whoami").await;
    assert!(code == 0 && who.contains(r#""name":"nobody""#) && who.contains(r#"["act"]"#), "{code} {who}");
    let (_, audit) = curl_as(NOBODY, GROUP, &socket, "/api/v1/audit").await;
    assert!(audit.contains("local user nobody has no scope `admin`"), "{audit}");
    let (code, answer) = curl_as(NOBODY, NOBODY, &socket, "/api/v1/whoami").await;
    assert_eq!((code, answer.as_str()), (7, ""), "others cannot connect");
    let (_, who) = curl_as(0, 0, &socket, "/api/v1/whoami").await;
    assert!(who.contains(r#"["admin"]"#), "{who}");
    program.end().await;
}

#[tokio::test]
async fn socket_of_an_agent_that_was_killed_is_replaced() {
    let mut program = Program::new();
    let folder = program.path("driftless-api");
    fs::create_dir(&folder).unwrap();
    let folders = format!("{}:{}", program.path("driftless").display(), folder.display());
    let socket = folder.join("agent.sock");
    // The service manager says where its folders are.
    start(&mut program, "", &[("RUNTIME_DIRECTORY", &folders)]);
    assert_eq!(mode(&socket), 0o600);

    let mut other = Program::new();
    other.configure(&format!("- {{url: /srv/none/infra.git}}\nsocket: {}\n", socket.display()));
    let config = other.path("driftless.yaml");
    let refused = Command::new(env!("CARGO_BIN_EXE_driftless"))
        .args(["run", "--config"])
        .arg(&config)
        .env_clear()
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(2) && text.contains("another agent uses"), "{text}");

    program.signal(Signal::SIGKILL);
    program.child.take().unwrap().wait().await.unwrap();
    assert!(socket.exists());
    other.start(&["run", "--config", config.to_str().unwrap()], &[]);
    assert_eq!(other.notified(), "READY=1\nSTATUS=following 1 repository");
    let server = format!("unix://{}", socket.display());
    let (code, text) = other.client(&["status", "--server", &server]).await;
    assert_eq!(code, 0, "{text}");
    other.end().await;
    assert!(!socket.exists());
}

#[test]
fn mistakes_about_the_socket_are_found() {
    for (lines, message) in [
        ("socket: agent.sock\n", "must be an absolute path"),
        ("socket: {group: ops}\n", "needs `scopes`"),
        ("socket: {scopes: [act]}\n", "has no effect without `group`"),
        ("socket: {path: none, group: ops, scopes: [act]}\n", "has no effect with `path: none`"),
        ("socket: {group: 'a b', scopes: [act]}\n", "name or number of a group"),
        ("socket: {group: ops, scopes: [write]}\n", "is no scope"),
    ] {
        let text = format!("repositories:\n- url: https://git.example.com/me/infra.git\n{lines}");
        let findings = driftless_config::Settings::parse("driftless.yaml", &text).unwrap_err();
        assert!(findings.iter().any(|finding| finding.message.contains(message)), "{lines}: {findings:?}");
    }
}
