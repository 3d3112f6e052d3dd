//! The commands of the first minutes: `init`, `config check`, `config schema`, `doctor`, `completion`, `man`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read as _, Write as _},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

/// Runs the program with nothing of this environment but `PATH`, which has the program of Git.
fn driftless(arguments: &[&str]) -> (i32, String, String) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
    let command = command.args(arguments).env_clear().env("PATH", path).env("HOME", "/nonexistent");
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// A bare repository with one commit.
fn repository(folder: &Path) -> String {
    let work = folder.join("work");
    let bare = folder.join("infra.git");
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"];
        let done = command.args(identity).args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null").output();
        let done = done.unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let (work, bare) = (work.to_str().unwrap(), bare.to_str().unwrap());
    git(&["init", "--quiet", "--initial-branch", "main", work]);
    git(&["-C", work, "commit", "--quiet", "--allow-empty", "--message", "Begin"]);
    git(&["clone", "--quiet", "--bare", work, bare]);
    bare.to_owned()
}

#[test]
fn init_writes_a_configuration_that_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("etc/driftless.yaml");
    let token = folder.path().join("token");
    let (file, token) = (file.to_str().unwrap(), token.to_str().unwrap());
    fs::write(token, "t").unwrap();
    let url = "https://git.example.com/me/infra.git";
    let arguments = ["init", url, "--path", "sites", "--token-file", token, "--output", file, "--no-check"];
    let (code, text, error) = driftless(&arguments);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(text.contains(&format!("driftless run --config {file}")), "{text}");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let written = fs::read_to_string(file).unwrap();
    assert!(
        written.contains("    path: \"sites\"\n") && written.contains("    # branch: main\n"),
        "{written}"
    );
    let (code, text, _) = driftless(&["config", "check", file]);
    assert_eq!((code, text), (0, format!("{file}: valid, follows infra\n")));

    let (code, _, error) = driftless(&arguments);
    assert!(code == 2 && error.contains("exists and is not replaced"), "{error}");
    let (code, _, error) = driftless(&["init", "--output", file, "--force"]);
    assert!(code == 2 && error.contains("nobody to ask"), "{error}");
    let secret =
        driftless(&["init", "https://me:hunter2@git.example.com/a.git", "--output", file, "--force"]);
    assert!(secret.0 == 2 && !secret.2.contains("hunter2"), "{secret:?}");
    assert_eq!(fs::read_to_string(file).unwrap(), written, "it was not touched");

    let (code, text, error) = driftless(&["init", "/no/such/infra.git", "--output", file, "--force"]);
    assert_eq!((code, error.as_str()), (1, ""), "{text}");
    assert!(text.starts_with(&format!("wrote {file}\n")) && text.contains("correct `url`"), "{text}");
    assert!(text.contains(&format!("driftless doctor --config {file}")), "{text}");
}

#[test]
fn config_check_names_the_place_of_each_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("driftless.yaml");
    let path = file.to_str().unwrap();
    fs::write(&file, "listen: here\nrepositories:\n- {url: /srv/a, pol: 60s}\n").unwrap();
    let (code, _, error) = driftless(&["config", "check", path]);
    assert_eq!(code, 1);
    assert!(
        error.contains("listen: `here` is not an address") && error.contains(&format!("{path}:1:9\n")),
        "{error}"
    );
    assert!(error.contains("unknown key `pol`") && error.contains(&format!("{path}:3:17\n")), "{error}");

    fs::write(&file, "listen: 0.0.0.0:8484\nrepositories: [{url: /srv/a}]\n").unwrap();
    let (code, _, error) = driftless(&["config", "check", path]);
    assert!(code == 1 && error.contains("there is no token"), "{error}");
    fs::write(&file, "sops: {keyFiles: [/no/such/key]}\nrepositories: [{url: /srv/a}]\n").unwrap();
    let (code, _, error) = driftless(&["config", "check", path]);
    assert!(code == 1 && error.contains("/no/such/key"), "{error}");
    assert_eq!(driftless(&["config", "check", "--syntax", path]).0, 0);
    let over_http = "repositories: [{url: 'http://example.com/a.git', auth: {tokenEnv: T}}]\n";
    fs::write(&file, over_http).unwrap();
    let (code, _, error) = driftless(&["config", "check", "--syntax", path]);
    assert!(code == 1 && error.contains("error: repositories[0].auth: over `http` anybody"), "{error}");
}

/// The agent starts without them, and each is missed only when Git is asked or a message is sent.
#[test]
fn config_check_warns_of_each_file_that_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("driftless.yaml");
    let path = file.to_str().unwrap();
    let (key, secret) = (folder.path().join("key"), folder.path().join("secret"));
    let text = format!(
        "repositories:\n- url: git@example.com:me/infra.git\n  auth: {{sshKeyFile: {}, knownHosts: /no/hosts}}\n  webhook: \
         {{secretFile: {}}}\n- url: https://example.com/me/site.git\n  auth:\n    tokenFile: /no/token\nregistries:\n- host: \
         example.com\n  username: me\n  passwordFile: /no/password\n",
        key.display(),
        secret.display(),
    );
    fs::write(&file, text).unwrap();
    fs::write(&secret, "s".repeat(40)).unwrap();
    let (code, text, error) = driftless(&["config", "check", path]);
    assert!(code == 0 && text.contains("valid, follows infra, site"), "{text}{error}");
    for (key, missing, place) in [
        ("repositories[0].auth.sshKeyFile", key.to_str().unwrap(), "3:22"),
        ("repositories[0].auth.knownHosts", "/no/hosts", "3:"),
        ("repositories[1].auth.tokenFile", "/no/token", "7:16"),
        ("registries[0].passwordFile", "/no/password", "11:17"),
    ] {
        let message = format!("{key}: could not open {missing}: No such file or directory");
        assert!(error.contains(&message) && error.contains(&format!("{path}:{place}")), "{key}: {error}");
    }
    assert_eq!(error.matches("could not open").count(), 4, "{error}");

    let (code, _, error) = driftless(&["config", "check", "--syntax", path]);
    assert_eq!((code, error.as_str()), (0, ""));
    fs::write(&key, "").unwrap();
    let (_, _, error) = driftless(&["config", "check", path]);
    assert_eq!(error.matches("could not open").count(), 3, "{error}");
}

#[test]
fn config_example_is_the_reference_and_valid() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("driftless.yaml");
    let (code, text, _) = driftless(&["config", "example"]);
    assert_eq!(code, 0);
    fs::write(&file, &text).unwrap();
    let (code, text, error) = driftless(&["config", "check", "--syntax", file.to_str().unwrap()]);
    assert_eq!((code, error.as_str()), (0, ""), "{text}");
}

/// Every key of the example, so that the schema and the reader cannot know different ones; and every key of the schema, so that the
/// example explains all.
#[test]
fn schema_accepts_every_key_of_the_example() {
    let (_, text, _) = driftless(&["config", "schema"]);
    let schema: Value = serde_json::from_str(&text).unwrap();
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/driftless.schema.json");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&committed, &text).unwrap();
    }
    let written = fs::read_to_string(committed).unwrap_or_default();
    assert!(
        written == text,
        "config/driftless.schema.json is out of date: UPDATE_DOCS=1 cargo test --test it setup::"
    );
    let (_, text, _) = driftless(&["config", "schema", "--repository"]);
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/repository.schema.json");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&committed, &text).unwrap();
    }
    assert!(
        fs::read_to_string(committed).unwrap_or_default() == text,
        "config/repository.schema.json is out of date"
    );
    let example = fs::read_to_string("config/driftless.yaml").unwrap();
    let mut keys = BTreeSet::new();
    names_of_keys(&schema, &mut keys);
    let is_explained =
        |key: &&String| example.contains(&format!("{key}:")) || example.contains(&format!("`{key}`"));
    let unexplained: Vec<&String> = keys.iter().filter(|key| !is_explained(key)).collect();
    assert_eq!(unexplained, [""; 0], "it is the reference of all keys");
    let example: Value = serde_yaml::from_str(&example).unwrap();
    let mut unknown = Vec::new();
    check(&example, &schema, "", &mut unknown);
    assert_eq!(unknown, [""; 0]);
    let wrong: Value =
        serde_json::from_str(r#"{"repositories": [{"url": "/a", "pol": "1s", "verify": {"mode": "x"}}]}"#)
            .unwrap();
    check(&wrong, &schema, "", &mut unknown);
    assert_eq!(unknown, [".repositories[].pol", ".repositories[].verify.mode: \"x\""]);
}

/// The names of all keys of a schema.
fn names_of_keys(schema: &Value, names: &mut BTreeSet<String>) {
    match schema {
        Value::Object(rules) => {
            let properties = rules.get("properties").and_then(Value::as_object);
            names.extend(properties.into_iter().flat_map(|keys| keys.keys().cloned()));
            rules.values().for_each(|rule| names_of_keys(rule, names));
        }
        Value::Array(rules) => rules.iter().for_each(|rule| names_of_keys(rule, names)),
        _ => {}
    }
}

/// The keys and values that a schema does not accept, as far as our schema has rules.
fn check(value: &Value, schema: &Value, at: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                let at = format!("{at}.{key}");
                match (schema["properties"].get(key), schema.get("additionalProperties")) {
                    (Some(below), _) => check(value, below, &at, unknown),
                    (None, Some(Value::Object(_))) => {}
                    (None, _) => unknown.push(at),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                check(item, &schema["items"], &format!("{at}[]"), unknown);
            }
        }
        Value::String(text) => {
            let is_word = schema.get("enum").is_none_or(|words| words.as_array().unwrap().contains(value));
            let is_path = schema.get("pattern") != Some(&Value::from("^/")) || text.starts_with('/');
            if !is_word || !is_path {
                unknown.push(format!("{at}: {value}"));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The results of `doctor`, by name.
fn doctor(arguments: &[&str]) -> (i32, BTreeMap<String, Value>) {
    let (code, text, error) = driftless(&[&["doctor", "-o", "json"], arguments].concat());
    let checks: Vec<Value> = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{error}"));
    (code, checks.into_iter().map(|check| (check["name"].as_str().unwrap().to_owned(), check)).collect())
}

#[test]
fn doctor_names_each_problem_with_its_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
    let socket = format!("unix://{}/docker.sock", folder.path().display());
    let url = repository(folder.path());
    let run = |url: &str, branch: &str| {
        doctor(&[
            url,
            "--branch",
            branch,
            "--state-dir",
            state.to_str().unwrap(),
            "--runtime-dir",
            "/dev/shm/driftless-doctor",
            "--listen",
            &address,
            "--docker-host",
            &socket,
        ])
    };
    let (code, checks) = run(&url, "main");
    assert_eq!(code, 1);
    let result = |name: &str| {
        let check = &checks[name];
        (check["result"].as_str().unwrap(), format!("{} {}", check["message"], check["help"]))
    };
    let engine = result("engine");
    assert!(
        engine.0 == "fail" && engine.1.contains(&format!("{}/docker.sock", folder.path().display())),
        "{engine:?}"
    );
    let port = result(&format!("address {address}"));
    assert!(port.0 == "fail" && port.1.contains("ss -ltnp"), "{port:?}");
    let directory = result("state directory");
    assert!(directory.0 == "warn" && directory.1.contains("chmod 0700"), "{directory:?}");
    assert_eq!(result("runtime directory").0, "ok");
    assert_eq!(result("access").0, "ok");
    let git = result("repository infra");
    assert!(git.0 == "ok" && git.1.contains("the newest commit is"), "{git:?}");
    assert!(!state.join("lock").exists() && !state.join("mirrors").exists(), "nothing was changed");

    let empty = result("applications of infra");
    assert!(empty.0 == "warn" && empty.1.contains("push a folder"), "{empty:?}");

    for (url, branch, cause, remedy) in [
        (&*url, "nothing", "BranchNotFound", "git ls-remote --heads"),
        ("/no/such/infra.git", "main", "RepositoryNotFound", "correct `url`"),
        ("https://git.invalid/infra.git", "main", "UnknownHost", "getent hosts"),
        ("ssh://git@localhost/infra.git", "main", "HostKeyUnknown", "auth.hostKeys"),
    ] {
        let (_, checks) = run(url, branch);
        let git = &checks["repository infra"];
        assert_eq!(git["result"], "fail", "{git}");
        assert_eq!(git["explained"], format!("docs/troubleshooting.md#{cause}"), "{git}");
        assert!(git["help"].as_str().unwrap().contains(remedy), "{git}");
    }
}

#[test]
fn doctor_misses_the_state_directory_of_an_agent_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let url = repository(folder.path());
    let state = folder.path().join("state");
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let checks = || doctor(&[&url, "--state-dir", state.to_str().unwrap(), "--listen", &address]).1;
    // It answers as the agent does, once.
    let agent = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).unwrap() > 0, "nobody asks");
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    });
    let found = checks();
    // It ends also if nobody has asked.
    drop(std::net::TcpStream::connect(&address));
    agent.join().unwrap();
    let (missing, port) = (&found["state directory"], &found[&format!("address {address}")]);
    assert_eq!(missing["result"], "fail", "{missing}");
    assert!(missing["message"].as_str().unwrap().contains("is missing"), "{missing}");
    assert_eq!(port["result"], "ok", "{port}");
    assert_eq!(checks()["state directory"]["result"], "ok");
}

#[test]
fn doctor_checks_the_file_of_the_audit() {
    let folder = tempfile::tempdir().unwrap();
    let (log, file) = (folder.path().join("log"), folder.path().join("driftless.yaml"));
    let url = repository(folder.path());
    let text = format!("audit: {{file: {}/audit.jsonl}}\nrepositories: [{{url: {url}}}]\n", log.display());
    fs::write(&file, text).unwrap();
    let check = || doctor(&["--config", file.to_str().unwrap()]).1["audit file"].clone();
    let missing = check();
    assert!(missing["message"].as_str().unwrap().contains("its folder is missing"), "{missing}");
    assert_eq!(missing["result"], "fail");
    fs::create_dir(&log).unwrap();
    assert_eq!(check()["result"], "ok");
    fs::create_dir(log.join("audit.jsonl")).unwrap();
    assert!(check()["message"].as_str().unwrap().contains("is a folder"));
}

#[test]
fn doctor_and_config_check_find_obstacles_to_a_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("driftless.yaml");
    let path = file.to_str().unwrap();
    let url = repository(folder.path());
    let write = |text: &str| fs::write(&file, format!("{text}\nrepositories: [{{url: {url}}}]\n")).unwrap();
    for (text, name, message) in [
        (
            "tls: {certFile: /no/fullchain.pem, keyFile: /no/key.pem}",
            "files",
            "the certificate of `tls` cannot be used",
        ),
        (
            "socket: {group: no-such-group, scopes: [act]}",
            "socket",
            "this machine has no group `no-such-group`",
        ),
        ("socket: /dev/null", "socket", "/dev/null is no socket"),
    ] {
        write(text);
        let check = doctor(&["--config", path]).1[name].clone();
        assert_eq!(check["result"], "fail", "{check}");
        assert!(check["message"].as_str().unwrap().contains(message), "{check}");
        let (code, _, error) = driftless(&["config", "check", path]);
        assert!(code == 1 && error.contains(message), "{error}");
    }
    // An option may still give the API another address than the default one.
    write("webhooks: {listen: '0.0.0.0:8484'}");
    let (code, _, error) = driftless(&["config", "check", path]);
    assert!(code == 0 && error.contains("the agent starts only with another --listen"), "{error}");
    write("listen: 127.0.0.1:8480\nwebhooks: {listen: '0.0.0.0:8484'}");
    let (code, _, error) = driftless(&["config", "check", path]);
    assert!(code == 0 && !error.contains("--listen"), "{error}");
}

#[test]
fn doctor_finds_a_folder_without_applications() {
    let folder = tempfile::tempdir().unwrap();
    let url = repository(folder.path());
    let state = folder.path().join("state");
    let (code, checks) = doctor(&[&url, "--path", "site", "--state-dir", state.to_str().unwrap()]);
    assert_eq!(code, 1);
    let found = &checks["applications of infra"];
    assert!(
        found["result"] == "fail" && found["message"].as_str().unwrap().contains("`site` does not exist"),
        "{found}"
    );
    assert_eq!(found["explained"], "docs/troubleshooting.md#errors-with-file-and-line");
}

/// Runs Git in a folder.
fn git(place: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    let settings = ["user.name=Ada", "user.email=ada@example.com", "protocol.file.allow=always"];
    command.arg("-C").arg(place).args(settings.iter().flat_map(|setting| ["-c", *setting]));
    let done = command.args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn doctor_warns_of_settings_above_the_followed_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (url, work) = (repository(folder.path()), folder.path().join("work"));
    fs::create_dir_all(work.join("sites/shop")).unwrap();
    fs::write(work.join("sites/shop/compose.yaml"), "services: {web: {image: nginx}}\n").unwrap();
    fs::write(work.join("sites/driftless.yaml"), "applications: [{path: shop}]\n").unwrap();
    git(&work, &["add", "--all"]);
    git(&work, &["commit", "--quiet", "--message", "Add the shop"]);
    git(&work, &["push", "--quiet", &url, "main"]);
    let state = folder.path().join("state");
    let checks = |path: &str| {
        driftless(&["doctor", &url, "--path", path, "--state-dir", state.to_str().unwrap(), "-o", "json"]).1
    };
    let message = "`sites/driftless.yaml` is not read: the settings of this repository are in";
    assert!(checks("sites/shop").contains(message));
    assert!(!checks("sites").contains("is not read"));
}

#[test]
fn doctor_finds_applications_in_submodules() {
    let folder = tempfile::tempdir().unwrap();
    let (infra, shop) = (repository(folder.path()), folder.path().join("shop"));
    git(folder.path(), &["init", "--quiet", "--initial-branch", "main", "shop"]);
    fs::write(shop.join("compose.yaml"), "services: {web: {image: nginx}}\n").unwrap();
    git(&shop, &["add", "--all"]);
    git(&shop, &["commit", "--quiet", "--message", "Shop"]);
    let work = folder.path().join("work");
    git(&work, &["submodule", "--quiet", "add", shop.to_str().unwrap(), "vendor/shop"]);
    git(&work, &["commit", "--quiet", "--message", "Pin the shop"]);
    git(&work, &["push", "--quiet", &infra, "main"]);
    let file = folder.path().join("driftless.yaml");
    let (state, allowed) = (folder.path().join("state"), folder.path());
    let text = format!(
        "stateDir: {}\nrepositories:\n- url: {infra}\n  submodules: true\n  submodulePaths: ['{}']\n  \
         applications: [{{path: vendor/shop}}]\n",
        state.display(),
        allowed.display()
    );
    fs::write(&file, text).unwrap();
    let (_, checks) = doctor(&["--config", file.to_str().unwrap()]);
    let found = &checks["applications of infra"];
    assert!(found["result"] == "ok" && found["message"] == "1 in the newest commit: shop", "{found}");
}

#[test]
fn doctor_fits_a_narrow_terminal() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
    command.args(["doctor", "https://git.invalid/infra.git", "--docker-host", "unix:///no/such/docker.sock"]);
    command.args(["--state-dir", "/no/such/folder/state", "--runtime-dir", "/var/tmp/driftless"]);
    let output = command.env("COLUMNS", "80").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let longest = text.lines().map(|line| line.chars().count()).max();
    assert!(longest <= Some(80), "{text}");
    // An address that is broken cannot be copied.
    for anchor in ["the-runtime-directory-cannot-be-used", "the-engine-cannot-be-used", "UnknownHost"] {
        let line = format!("\n      explained in docs/troubleshooting.md#{anchor}\n");
        assert!(text.contains(&line), "{anchor}: {text}");
    }
}

#[test]
fn doctor_reads_the_values_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let (file, values) = (folder.path().join("driftless.yaml"), folder.path().join("shop.env"));
    let url = repository(folder.path());
    let text = format!("repositories: [{{url: {url}, valuesFrom: [{{file: {}}}]}}]\n", values.display());
    fs::write(&file, text).unwrap();
    let (_, text, _) = driftless(&["doctor", "--config", file.to_str().unwrap()]);
    assert!(text.contains("host values") && text.contains("shop.env: No such file"), "{text}");
    fs::write(&values, "A=PLANTED\n").unwrap();
    let (_, text, _) = driftless(&["doctor", "--config", file.to_str().unwrap()]);
    assert!(text.contains("sources of valuesFrom can be read: 1") && !text.contains("PLANTED"), "{text}");
}

#[test]
fn doctor_names_an_engine_of_the_environment_that_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("driftless.yaml");
    let state = folder.path().join("state");
    let common = format!("stateDir: {}\nrepositories: [{{url: /no/such.git}}]\n", state.display());
    let check = |host: &str, text: &str| {
        fs::write(&file, format!("{common}{text}")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
        command.args(["doctor", "-o", "json", "--config", file.to_str().unwrap()]);
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("HOME", "/nonexistent").env("DOCKER_HOST", host);
        let checks: Vec<Value> = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        checks.into_iter().find(|check| check["name"] == "engine address")
    };
    let found = check("unix:///no/such.sock", "").unwrap();
    let message = found["message"].as_str().unwrap();
    assert!(
        found["result"] == "warn" && message.contains("DOCKER_HOST=unix:///no/such.sock is not used"),
        "{found}"
    );
    assert_eq!(check("unix:///no/such.sock", "docker: unix:///no/other.sock\n"), None);
    assert_eq!(check("unix:///var/run/docker.sock", ""), None, "it is the same engine");
    assert_eq!(check("", ""), None);
}

#[test]
fn doctor_checks_on_with_a_broken_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("driftless.yaml");
    fs::write(&file, "repositories: [{url: /srv/a, pol: 60s}]\n").unwrap();
    let (code, text, error) = driftless(&["doctor", "--config", file.to_str().unwrap()]);
    assert_eq!((code, error.as_str()), (1, ""));
    assert!(text.contains("driftless.yaml:1:30: error: repositories[0].pol"), "{text}");
    assert!(text.contains("help: correct the file") && text.contains("  disk"), "{text}");
}

#[test]
fn backup_names_the_key_that_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let state = driftless_store::StateDir::lock(Path::new(&path("state"))).unwrap();
    let opened = driftless_store::Store::open(&state, driftless_clock::Clock::System).unwrap();
    let id = opened.store.agent_id().unwrap();
    let (file, old, new) = (path("backup.tar"), path("state"), path("new"));
    let (code, text, error) = driftless(&["backup", &file, "--state-dir", &old]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(text.contains(&format!("it needs the key {old}/database.key, which is not in it")), "{text}");
    assert!(!text.contains("fleet.key"), "it has none: {text}");
    opened.store.fleet_key_seed().unwrap();
    let (_, text, _) = driftless(&["backup", &path("fleet.tar"), "--state-dir", &old]);
    assert!(text.contains(&format!("the key of the fleet, {old}/fleet.key, is not in it")), "{text}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let (code, _, error) = driftless(&["restore", &file, "--state-dir", &old, "--replace"]);
    assert!(
        code == 2 && error.contains("another agent") && error.contains("stop the agent first"),
        "{error}"
    );
    let (code, _, error) = driftless(&["restore", &path("none.tar"), "--state-dir", &path("none")]);
    assert!(code == 2 && error.contains("help: name a file that `driftless backup` has written"), "{error}");
    let (code, _, error) = driftless(&["backup", &path("none.tar"), "--state-dir", &path("none")]);
    assert!(code == 2 && error.contains("driftless.db: there is no such file"), "{error}");
    let (code, _, error) = driftless(&["restore", &file, "--state-dir", &new]);
    assert!(code == 0 && error.contains(&format!("the key {new}/database.key is missing")), "{error}");
    assert_eq!(fs::read_to_string(format!("{new}/agent-id")).unwrap().trim(), id.as_str());
}

#[test]
fn backup_says_that_a_key_is_not_that_of_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (key, old, new) = (path("state.key"), path("state"), path("new"));
    fs::write(&key, [7; 32]).unwrap();
    let state = driftless_store::StateDir::lock(Path::new(&old)).unwrap();
    let clock = driftless_clock::Clock::System;
    let store = driftless_store::Store::open_with_key(&state, Path::new(&key), clock).unwrap().store;
    store.agent_id().unwrap();
    // From the time before the key was moved.
    fs::write(format!("{old}/database.key"), [8; 32]).unwrap();
    let (code, text, error) = driftless(&["backup", &path("1.tar"), "--state-dir", &old]);
    assert!(code == 0 && text == format!("wrote {}\n", path("1.tar")), "{text}");
    assert!(
        error.contains(&format!("warning: {old}/database.key is not the key of this database")),
        "{error}"
    );
    let config = path("driftless.yaml");
    let settings = format!("repositories: [{{url: /srv/a}}]\nstateDir: {old}\nstateKeyFile: {key}\n");
    fs::write(&config, settings).unwrap();
    let (code, text, error) = driftless(&["backup", &path("2.tar"), "--config", &config]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(text.contains(&format!("it needs the key {key}, which is not in it")), "{text}");

    let (code, _, error) = driftless(&["restore", &path("2.tar"), "--config", &config, "--state-dir", &new]);
    assert!(code == 0 && error.starts_with("note: pins and suspensions"), "{error}");
    assert!(!error.contains("is not the key"), "{error}");
    fs::write(&key, [9; 32]).unwrap();
    let again = ["restore", &path("2.tar"), "--config", &config, "--state-dir", &new, "--replace"];
    let (code, _, error) = driftless(&again);
    assert!(
        code == 0 && error.contains(&format!("{key} is not the key of the restored database")),
        "{error}"
    );
    fs::write(&key, "short").unwrap();
    let (code, _, error) = driftless(&again);
    assert!(code == 0 && error.contains("it has 5 bytes"), "{error}");
}

#[test]
fn packages_get_completions_and_manual_pages() {
    for (shell, word) in
        [("bash", "complete "), ("zsh", "#compdef driftless"), ("fish", "complete -c driftless")]
    {
        let (code, text, _) = driftless(&["completion", shell]);
        assert!(code == 0 && text.contains(word) && text.contains("healthcheck"), "{shell}: {text}");
    }
    let folder = tempfile::tempdir().unwrap();
    let (code, _, error) = driftless(&["man", folder.path().to_str().unwrap()]);
    assert_eq!((code, error.as_str()), (0, ""));
    let page = fs::read_to_string(folder.path().join("driftless-run.1")).unwrap();
    assert!(page.contains(".TH ") && page.contains("DRIFTLESS_URL"), "{page}");
    assert!(folder.path().join("driftless-rollout-undo.1").exists());
    assert_eq!(driftless(&["man", "/no/such/folder"]).0, 2);
}

#[test]
fn published_files_confine_the_agent() {
    let compose = fs::read_to_string("deploy/compose.yaml").unwrap();
    for line in [
        "read_only: true",
        "cap_drop: [ALL]",
        "no-new-privileges:true",
        "ulimits: {core: 0}",
        "logging: {driver: local}",
    ] {
        assert!(compose.contains(line), "deploy/compose.yaml has no `{line}`");
    }
    let unit = fs::read_to_string("deploy/driftless.service").unwrap();
    for line in ["NoNewPrivileges=yes", "PrivateDevices=yes", "ProtectProc=invisible", "LimitCORE=0"] {
        assert!(unit.lines().any(|found| found == line), "deploy/driftless.service has no `{line}`");
    }
}

/// Running steps have 15 seconds to end.
#[test]
fn published_files_give_running_steps_time_to_end() {
    for (file, limit) in [
        ("deploy/compose.yaml", "stop_grace_period: 20s"),
        ("deploy/driftless.service", "TimeoutStopSec=30"),
        ("docs/install.md", "--stop-timeout 20"),
    ] {
        assert!(fs::read_to_string(file).unwrap().contains(limit), "{file} has no `{limit}`");
    }
}

#[test]
fn doctor_asks_the_address_of_webhooks() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let url = repository(folder.path());
    fs::write(path("secret"), "s").unwrap();
    // In the place of an agent that runs, and of the reverse proxy in front of it.
    let _state = driftless_store::StateDir::lock(Path::new(&path("state"))).unwrap();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", server.local_addr().unwrap());
    std::thread::spawn(move || {
        for (stream, status) in server.incoming().zip(["405 Method Not Allowed", "404 Not Found"]) {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            stream.write_all(format!("HTTP/1.1 {status}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        }
    });
    let check = |webhooks: &str| {
        let text = format!(
            "stateDir: {}\nlisten: 127.0.0.1:1\n{webhooks}\nrepositories: [{{url: {url}, webhook: {{provider: github, \
             secretFile: {}}}}}]\n",
            path("state"),
            path("secret")
        );
        fs::write(path("driftless.yaml"), text).unwrap();
        let (_, checks) = doctor(&["--config", &path("driftless.yaml")]);
        (checks["webhooks"]["result"].as_str().unwrap().to_owned(), checks["webhooks"].to_string())
    };
    let (result, text) = check("");
    assert!(result == "warn" && text.contains("only programs of this machine"), "{text}");
    let (result, text) = check(&format!("webhooks: {{url: \"{address}\"}}"));
    assert_eq!(result, "ok", "{text}");
    let (result, text) = check(&format!("webhooks: {{url: \"{address}\"}}"));
    assert!(result == "fail" && text.contains("another server"), "{text}");
    let (result, text) = check("webhooks: {url: \"http://127.0.0.1:9\"}");
    assert!(result == "fail" && text.contains("#webhooks-do-not-arrive"), "{text}");
}
