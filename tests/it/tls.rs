//! TLS of the agent's own listener, with the certificates of openssl and the requests of curl.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use tokio::time::{Duration, Instant, sleep};

use crate::{
    ports::free_port,
    program::{LIMIT, Program},
};

const TOKEN: &str = "correct-horse-battery";

/// Writes a certificate for this machine that is its own authority, and its key.
fn certificate(program: &Program, name: &str) -> (String, String) {
    self_signed(program, name, "CA:FALSE")
}

/// Writes a certificate that signed itself, and its key.
fn self_signed(program: &Program, name: &str, constraints: &str) -> (String, String) {
    let place = |end: &str| program.path(&format!("{name}.{end}")).display().to_string();
    let (cert, key) = (place("crt"), place("key"));
    let mut openssl = Command::new("openssl");
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=agent";
    openssl.args(arguments.split(' '));
    openssl.args(["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]);
    openssl.args([
        "-addext",
        &format!("basicConstraints=critical,{constraints}"),
        "-keyout",
        &key,
        "-out",
        &cert,
    ]);
    let made = openssl.stderr(Stdio::null()).status().unwrap();
    assert!(made.success(), "openssl could not make a certificate");
    (cert, key)
}

/// Writes a file as `certbot` replaces one.
fn replace(from: &str, to: &Path) {
    let next = to.with_extension("next");
    fs::copy(from, &next).unwrap();
    fs::set_permissions(&next, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(&next, to).unwrap();
}

/// The answer of curl with its headers, and its exit code.
async fn curl(arguments: &[&str]) -> (i32, String) {
    let mut command = tokio::process::Command::new("curl");
    let output = command.args(["-si", "--max-time", "20"]).args(arguments).output().await.unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// An agent with TLS and a token, and the address of its API.
pub(crate) async fn start(program: &mut Program) -> String {
    let (cert, key) = certificate(program, "first");
    let (in_use, in_use_key) = (program.path("tls.crt"), program.path("tls.key"));
    replace(&cert, &in_use);
    replace(&key, &in_use_key);
    fs::write(program.path("token"), TOKEN).unwrap();
    program.configure(&format!(
        "- {{url: /srv/none/infra.git}}\ntokenFile: {}\ntls: {{certFile: {}, keyFile: {}}}\n",
        program.path("token").display(),
        in_use.display(),
        in_use_key.display()
    ));
    let config = program.path("driftless.yaml").display().to_string();
    program.start(&["run", "--config", &config], &[]);
    assert_eq!(program.notified(), "READY=1\nSTATUS=following 1 repository");
    format!("https://localhost:{}", program.port)
}

/// Runs a command of the client with the token, and returns its exit code and its output.
async fn client(program: &Program, arguments: &[&str]) -> (i32, String) {
    let token = program.path("token").display().to_string();
    program.client(&[arguments, &["--token-file", &token]].concat()).await
}

#[tokio::test]
async fn listener_with_a_certificate_speaks_https() {
    let mut program = Program::new();
    let url = start(&mut program).await;
    let first = program.path("first.crt").display().to_string();
    let health = format!("{url}/healthz");
    let (code, answer) = curl(&["--cacert", &first, &health]).await;
    assert!(code == 0 && answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok\n"), "{code} {answer}");
    let (code, answer) = curl(&[&health]).await;
    assert_eq!((code, answer.as_str()), (60, ""), "nobody knows the authority");
    let (_, answer) = curl(&["--cacert", &first, "--tlsv1.2", "--tls-max", "1.2", &health]).await;
    assert!(answer.ends_with("ok\n"), "{answer}");
    let (code, _) =
        curl(&["--cacert", &first, "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0", &health]).await;
    assert_eq!(code, 35, "TLS 1.1 is refused");

    // A request without TLS learns what is missing.
    let plain = url.replace("https:", "http:");
    let (_, answer) = curl(&[&format!("{plain}/api/v1/applications")]).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("needs https instead of http"), "{answer}");
    let (code, text) = client(&program, &["status", "--server", &plain]).await;
    assert!(code == 2 && text.contains("needs https instead of http"), "{text}");

    // The cookie of a browser is for https only, and works.
    let form = format!("token={TOKEN}");
    let (_, answer) = curl(&["--cacert", &first, "-d", &form, &format!("{url}/login")]).await;
    let cookie = answer.lines().find(|line| line.starts_with("set-cookie: ")).unwrap_or(&answer);
    assert!(cookie.contains("; Secure") && cookie.contains("; HttpOnly"), "{cookie}");
    let cookie = cookie.trim_start_matches("set-cookie: ").split(';').next().unwrap();
    let (_, answer) = curl(&["--cacert", &first, "-b", cookie, &format!("{url}/api/v1/whoami")]).await;
    assert!(answer.contains("tokenFile"), "{answer}");

    // The commands verify the certificate.
    let (code, text) = client(&program, &["status", "--server", &url, "--server-ca-file", &first]).await;
    assert!(code == 0 && text.contains("/srv/none/infra.git"), "{code} {text}");
    let (code, text) = client(&program, &["status", "--server", &url]).await;
    assert!(code == 2 && text.contains("certificate") && text.contains("--server-ca-file"), "{code} {text}");
    let wrong = program.path("token").display().to_string();
    let (code, text) = client(&program, &["status", "--server", &url, "--server-ca-file", &wrong]).await;
    assert!(code == 2 && text.contains("has no valid PEM certificate"), "{code} {text}");
    let healthy = tokio::process::Command::new(env!("CARGO_BIN_EXE_driftless"))
        .arg("healthcheck")
        .env_clear()
        .env("DRIFTLESS_CONFIG", program.path("driftless.yaml"))
        .output();
    assert_eq!(healthy.await.unwrap().status.code(), Some(0));
    program.end().await;
}

/// Waits until the log has these words.
async fn log_says(program: &Program, words: &str) {
    let end = Instant::now() + LIMIT;
    while !program.log().contains(words) {
        assert!(Instant::now() < end, "no `{words}`: {}", program.log());
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn new_certificate_is_used_and_a_broken_one_is_not() {
    let mut program = Program::new();
    let url = start(&mut program).await;
    let first = program.path("first.crt").display().to_string();
    let (second, second_key) = certificate(&program, "second");
    let health = format!("{url}/healthz");
    let connection = ["--server", &url, "--server-ca-file", &first];

    // The new certificate is there, and its key is not yet.
    replace(&second, &program.path("tls.crt"));
    log_says(&program, "the new certificate is refused, the old one stays").await;
    assert_eq!(curl(&["--cacert", &first, &health]).await.0, 0);
    let (_, status) = client(&program, &[&["status", "--wide"], &connection[..]].concat()).await;
    assert!(status.contains("agent: tls\n  the new certificate is refused"), "{status}");
    let (_, events) = client(&program, &[&["events"], &connection[..]].concat()).await;
    assert!(events.contains("CertificateRefused"), "{events}");

    // The key makes it a pair. Others can read it.
    replace(&second_key, &program.path("tls.key"));
    fs::set_permissions(program.path("tls.key"), fs::Permissions::from_mode(0o644)).unwrap();
    log_says(&program, "the certificate has changed").await;
    log_says(&program, "every user of this machine can read the private key").await;
    assert_eq!(curl(&["--cacert", &second, &health]).await.0, 0);
    assert_eq!(curl(&["--cacert", &first, &health]).await.0, 60);
    let connection = ["--server", &url, "--server-ca-file", &second];
    let (code, status) = client(&program, &[&["status"], &connection[..]].concat()).await;
    assert!(code == 0 && !status.contains("agent: tls"), "{status}");
    program.end().await;

    // At the start a broken pair is an error.
    replace(&first, &program.path("tls.crt"));
    let refused = refused_start(&program);
    assert!(refused.0 == 2 && refused.1.contains("cannot be used together"), "{refused:?}");
}

/// Starts an agent that does not start, and returns its exit code and its output.
fn refused_start(program: &Program) -> (i32, String) {
    let config = program.path("driftless.yaml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
    let output = command.args(["run", "--config"]).arg(config).env_clear().output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn self_signed_authority_is_trusted_as_the_servers_own() {
    let mut program = Program::new();
    let url = start(&mut program).await;
    // As `openssl req -x509` writes it without further options.
    let (own, own_key) = self_signed(&program, "own", "CA:TRUE");
    replace(&own_key, &program.path("tls.key"));
    replace(&own, &program.path("tls.crt"));
    log_says(&program, "the certificate has changed").await;
    let (code, text) = client(&program, &["status", "--server", &url, "--server-ca-file", &own]).await;
    assert!(code == 0, "{code} {text}");
    let (other, _) = self_signed(&program, "other", "CA:TRUE");
    let (code, text) = client(&program, &["status", "--server", &url, "--server-ca-file", &other]).await;
    assert!(code == 2 && text.contains("certificate"), "{code} {text}");
    program.end().await;
}

#[tokio::test]
async fn own_listeners_have_certificates_of_their_own() {
    let mut program = Program::new();
    let (hooks, metrics) = (free_port(), free_port());
    let (cert, key) = certificate(&program, "first");
    let folder = program.folder.path().to_owned();
    let place = |name: &str| folder.join(name);
    for name in ["hooks", "metrics"] {
        replace(&cert, &place(&format!("{name}.crt")));
        replace(&key, &place(&format!("{name}.key")));
    }
    let section = |name: &str, port: u16, of: &str| {
        let file = |end: &str| place(&format!("{of}.{end}")).display().to_string();
        format!(
            "{name}: {{listen: 127.0.0.1:{port}, tls: {{certFile: {}, keyFile: {}}}}}\n",
            file("crt"),
            file("key")
        )
    };
    let sections = section("webhooks", hooks, "hooks") + &section("metrics", metrics, "metrics");
    program.configure(&format!("- {{url: /srv/none/infra.git}}\n{sections}"));
    let config = program.path("driftless.yaml").display().to_string();
    program.start(&["run", "--config", &config], &[]);
    assert_eq!(program.notified(), "READY=1\nSTATUS=following 1 repository");

    let (hook, metric) =
        (format!("https://localhost:{hooks}/hook/none"), format!("https://localhost:{metrics}/metrics"));
    let (code, answer) = curl(&["--cacert", &cert, "-X", "POST", &hook]).await;
    assert!(code == 0 && answer.starts_with("HTTP/1.1 404"), "{code} {answer}");
    let (code, answer) = curl(&["--cacert", &cert, &metric]).await;
    assert!(code == 0 && answer.contains("driftless_build_info"), "{code} {answer}");
    let (_, answer) = curl(&[&metric.replace("https:", "http:")]).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("needs https"), "{answer}");

    // Each one is read again alone, and a broken one stays as it was.
    let (second, second_key) = certificate(&program, "second");
    replace(&second, &place("metrics.crt"));
    log_says(&program, "the new certificate is refused, the old one stays").await;
    let (code, status) = program.client(&["status", "--wide"]).await;
    assert!(code == 0 && status.contains("agent: metrics.tls"), "{status}");
    replace(&second_key, &place("metrics.key"));
    log_says(&program, "the certificate has changed").await;
    assert_eq!(curl(&["--cacert", &second, &metric]).await.0, 0);
    assert_eq!(curl(&["--cacert", &cert, "-X", "POST", &hook]).await.0, 0, "the other one is as before");
    program.end().await;

    // A certificate without an address has no use.
    program.configure("- {url: /srv/none/infra.git}\nmetrics: {tls: {certFile: /c, keyFile: /k}}\n");
    let refused = refused_start(&program);
    assert!(
        refused.0 == 2 && refused.1.contains("the certificate of `listen`, which is missing"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn certificate_that_has_expired_is_a_problem_of_the_agent() {
    let mut program = Program::new();
    let metrics = free_port();
    // It expired in 2021.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/git/tests/it/tls");
    let (cert, key) = (format!("{folder}/expired.pem"), format!("{folder}/server.key"));
    program.configure(&format!(
        "- {{url: /srv/none/infra.git}}\nmetrics: {{listen: 127.0.0.1:{metrics}, tls: {{certFile: {cert}, keyFile: {key}}}}}\n"
    ));
    let config = program.path("driftless.yaml").display().to_string();
    program.start(&["run", "--config", &config], &[]);
    assert_eq!(program.notified(), "READY=1\nSTATUS=following 1 repository");
    let end = Instant::now() + LIMIT;
    let status = loop {
        let (_, status) = program.client(&["status", "--wide"]).await;
        if status.contains("agent: expiry") {
            break status;
        }
        assert!(Instant::now() < end, "{status}");
        sleep(Duration::from_millis(50)).await;
    };
    assert!(
        status.contains(&format!("the certificate {cert} (metrics.tls) has expired at 2021-")),
        "{status}"
    );
    let (_, text) = curl(&["--insecure", &format!("https://localhost:{metrics}/metrics")]).await;
    let line = format!(
        "driftless_credential_expiry_timestamp_seconds{{credential=\"the certificate {cert}\",subject=\"metrics.tls\"}} "
    );
    assert!(text.contains(&line), "{text}");
    program.end().await;
}
