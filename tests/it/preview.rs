//! `driftless preview` and `drift` as programs: real Git repositories, exit codes, files, and the posting of a
//! report to a played forge.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    path::Path,
    process::{Command, Output, Stdio},
};

use driftless_forge::ForgeKind;
use serde_json::{Value, json};

use crate::forge::Played;

/// A clone with two branches: `main`, and `change`, which is checked out.
pub(crate) struct Clone(tempfile::TempDir);

const SHOP: &str = "services:\n  web:\n    image: example/web:1\n    environment:\n      DB_PASSWORD: hunter2hunter2\n      DB: postgres://app:hunter2hunter2@db/app\n";

impl Clone {
    pub(crate) fn new() -> Self {
        let clone = Self(tempfile::Builder::new().prefix("infra-").tempdir().unwrap());
        clone.git(&["init", "-q", "-b", "main", "."]);
        clone.commit(&[
            ("sites/shop/compose.yaml", Some(SHOP)),
            ("sites/blog/compose.yaml", Some("services: {blog: {image: \"ghost:5\"}}\n")),
        ]);
        clone.git(&["checkout", "-q", "-b", "change"]);
        clone
    }

    /// A clone of it, with one branch checked out and the others as the remote's.
    pub(crate) fn of(origin: &Self, branch: &str) -> Self {
        let clone = Self(tempfile::Builder::new().prefix("infra-").tempdir().unwrap());
        let from = origin.path().to_str().unwrap();
        clone.git(&["clone", "-q", "--no-local", "--branch", branch, from, "."]);
        clone
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn git(&self, words: &[&str]) -> String {
        let output = Command::new("git")
            .args(["-c", "user.name=Ops", "-c", "user.email=ops@example.com", "-c", "commit.gpgsign=false"])
            .args(words)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .current_dir(self.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn commit(&self, files: &[(&str, Option<&str>)]) -> String {
        for (path, text) in files {
            let path = self.path().join(path);
            match text {
                Some(text) => {
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, text).unwrap();
                }
                None => fs::remove_file(path).unwrap(),
            }
        }
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", "Change"]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// The program, in this folder and with nothing of this environment.
    fn driftless(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
        command.args(words).env_clear().current_dir(self.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> (i32, String, String) {
        told(self.driftless(words).output().unwrap())
    }

    fn json(&self, words: &[&str]) -> Value {
        let (_, out, error) = self.run(&[words, &["-o", "json"]].concat());
        serde_json::from_str(&out).unwrap_or_else(|it| panic!("{it}: {out}{error}"))
    }
}

pub(crate) fn told(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const PREVIEW: &[&str] = &["preview", "--base", "main"];

fn with<'w>(more: &[&'w str]) -> Vec<&'w str> {
    [PREVIEW, more].concat()
}

#[test]
fn a_change_that_renders_to_the_same_is_none() {
    let clone = Clone::new();
    let moved = format!(
        "# a remark\n{}",
        SHOP.replace("    image: example/web:1\n", "    image: \"example/web:1\"\n")
    );
    clone.commit(&[("sites/shop/compose.yaml", Some(&moved)), ("README", Some("hello"))]);
    let (code, out, error) = clone.run(PREVIEW);
    assert_eq!(
        (code, out.as_str(), error.as_str()),
        (0, "no change: blog, shop\n2 applications, no change\n", "")
    );
}

/// Applications that a commit leaves unchanged are not rendered again; files from other folders are part of an application.
#[test]
fn preview_includes_files_from_other_folders() {
    let clone = Clone::new();
    let wiki = "services: {wiki: {image: \"wiki:1\", env_file: ../../shared.env}}\n";
    let broken = "services: {broken: {image: 1, nonsense: 2}}\n";
    clone.commit(&[
        ("sites/wiki/compose.yaml", Some(wiki)),
        ("sites/broken/compose.yaml", Some(broken)),
        ("shared.env", Some("PLACE=here\n")),
    ]);
    clone.git(&["branch", "-f", "main"]);
    clone.commit(&[("shared.env", Some("PLACE=there\n"))]);
    assert_eq!(clone.run(&with(&["--fail-on", "any"])).0, 2);
    let (code, out, _) = clone.run(PREVIEW);
    assert_eq!(code, 1, "an application that cannot be rendered is reported, also without changes: {out}");
    assert!(out.contains("nonsense") && out.contains("env.PLACE: here -> there"), "{out}");
    let report = clone.json(PREVIEW);
    let changed = report["apps"].as_array().unwrap().iter().filter(|it| it["hasDrift"] == true);
    let changed: Vec<&str> = changed.filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(changed, ["wiki"]);
}

#[test]
fn preview_is_deterministic_and_masks_secrets() {
    let clone = Clone::new();
    let changed = SHOP.replace("web:1", "web:2").replace("hunter2hunter2", "hunter3hunter3");
    clone.commit(&[
        ("sites/shop/compose.yaml", Some(&changed)),
        ("sites/blog/compose.yaml", None),
        ("sites/wiki/compose.yaml", Some("services: {wiki: {image: \"wiki:1\"}}\n")),
    ]);
    let (code, out, error) = clone.run(PREVIEW);
    assert_eq!((code, error.as_str()), (1, ""));
    insta::assert_snapshot!(out);
    for format in ["text", "diff", "json", "ndjson", "markdown", "github", "junit", "sarif"] {
        let (code, out, _) = clone.run(&with(&["-o", format]));
        assert_eq!(code, 1, "{format}");
        assert!(!out.contains("hunter") && !out.is_empty(), "{format}: {out}");
        assert_eq!(clone.run(&with(&["-o", format])).1, out, "{format} is not the same the second time");
    }
    let (_, diff, _) = clone.run(&with(&["-o", "diff", "--app", "shop"]));
    assert!(
        diff.contains("\n-image: example/web:1\n") && diff.contains("\n+image: example/web:2\n"),
        "{diff}"
    );
}

/// As actions/checkout makes one with `sparse-checkout`: without the old content of files.
#[test]
fn preview_in_a_partial_clone_is_an_error_with_the_remedy() {
    let origin = Clone::new();
    origin.git(&["config", "uploadpack.allowFilter", "true"]);
    origin.commit(&[("sites/shop/compose.yaml", Some(&SHOP.replace("web:1", "web:2")))]);
    let partial = Clone(tempfile::Builder::new().prefix("infra-").tempdir().unwrap());
    let from = format!("file://{}", origin.path().display());
    partial.git(&["clone", "-q", "--filter=blob:none", "--branch", "change", &from, "."]);
    let (code, out, error) = partial.run(&with(&["--exit-zero"]));
    assert_eq!((code, out.as_str()), (2, ""), "{error}");
    let words: Vec<&str> = error.split_whitespace().collect();
    let error = words.join(" ");
    for text in [
        "error: base: could not read `sites/shop",
        "help: this is a partial clone",
        "`git fetch --refetch --no-filter`",
    ] {
        assert!(error.contains(text), "{text}: {error}");
    }
    partial.git(&["fetch", "-q", "--refetch", "--no-filter"]);
    let (code, out, error) = partial.run(PREVIEW);
    assert_eq!((code, error.as_str()), (1, ""), "{out}");
}

#[test]
fn preview_compares_everything_that_is_rendered() {
    let clone = Clone::new();
    for (text, path) in [
        (SHOP.replace("example/web:1\n", "example/web:1\n    deploy: {replicas: 3}\n"), "replicas"),
        (SHOP.replace("example/web:1\n", "example/web:1\n    pull_policy: always\n"), "pull"),
        (SHOP.replace("example/web:1\n", "example/web:1\n    container_name: shop\n"), "containerName"),
        (SHOP.replace("example/web:1\n", "example/web:1\n    stop_grace_period: 40s\n"), "stopGracePeriod"),
    ] {
        clone.commit(&[("sites/shop/compose.yaml", Some(&text))]);
        let report = clone.json(&with(&["--app", "shop"]));
        let items = report["apps"][0]["items"].as_array().unwrap();
        assert!(items.iter().any(|it| it["path"] == path), "{path}: {items:?}");
    }
}

#[test]
fn render_errors_are_listed_before_changes() {
    let clone = Clone::new();
    clone.commit(&[
        ("sites/shop/compose.yaml", Some("services: {web: {imag: a}}\n")),
        ("sites/blog/compose.yaml", None),
    ]);
    let (code, out, _) = clone.run(PREVIEW);
    assert_eq!(code, 2);
    assert!(out.contains("shop: error") && out.contains("blog: "), "{out}");
    assert_eq!(clone.run(&with(&["--exit-zero"])).0, 2);
    assert_eq!(clone.run(&with(&["--detailed-exitcode"])).0, 1);
    // And what could not be rendered before says nothing of what changes.
    clone.git(&["branch", "-q", "broken"]);
    clone.commit(&[("sites/shop/compose.yaml", Some(SHOP))]);
    let (code, out, _) = clone.run(&["preview", "--base", "broken"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("the base cannot be rendered"), "{out}");
    assert!(out.contains("manifests: with errors -> without errors"), "{out}");
}

#[test]
fn errors_that_the_base_has_too_do_not_fail_the_preview() {
    let clone = Clone::new();
    let broken = "services: {web: {imag: a}}\n";
    clone.commit(&[("sites/shop/compose.yaml", Some(broken))]);
    clone.git(&["branch", "-q", "broken"]);
    // The same error in another line, and a new application.
    let moved = format!("# a comment\n{broken}");
    clone.commit(&[("sites/shop/compose.yaml", Some(&moved)), ("sites/new/compose.yaml", Some(SHOP))]);
    let (code, out, _) = clone.run(&["preview", "--base", "broken", "--exit-zero"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("shop: error on the base too") && out.contains("1 error of the base"), "{out}");
    assert!(out.contains("compose.yaml:2:18"), "its place is that of the head: {out}");
    assert_eq!(clone.run(&["preview", "--base", "broken", "--exit-zero", "--fail-on", "any"]).0, 2);
    assert_eq!(clone.run(&["preview", "--base", "broken", "--exit-zero", "--fail-on", "new"]).0, 0);
    // A second error is the fault of the change, and only that one is reported.
    let worse = broken.replace("imag: a", "imag: a, prots: [80]");
    clone.commit(&[("sites/shop/compose.yaml", Some(&worse))]);
    let (code, out, _) = clone.run(&["preview", "--base", "broken", "--exit-zero"]);
    assert!(code == 2 && out.contains("prots") && !out.contains("imag`"), "{code}: {out}");
}

#[test]
fn application_that_the_agent_keeps_is_no_removal() {
    let clone = Clone::new();
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: db}\n";
    clone.commit(&[("sites/service.yaml", Some(service))]);
    let (code, out, _) = clone.run(&with(&["--fail-on", "removed"]));
    assert!(code == 2 && !out.contains("removed"), "{code}: {out}");
    let expected = "its folder is now part of the application `sites`, which has errors";
    assert!(out.contains(expected), "{out}");

    // The same with a new application that has no errors.
    let clone = Clone::new();
    let pod =
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: 'web:1'}]}\n";
    clone.commit(&[("sites/pod.yaml", Some(pod))]);
    let (code, out, _) = clone.run(&with(&["--fail-on", "removed"]));
    assert!(code == 0 && !out.contains("removed"), "{code}: {out}");
    for expected in ["now part of the application `sites`;", "waits for `driftless remove shop`"] {
        assert!(out.contains(expected), "{out}");
    }
    // Without its manifest it has left.
    clone.commit(&[("sites/shop/compose.yaml", None)]);
    let (code, out, _) = clone.run(&with(&["--fail-on", "removed"]));
    assert!(code == 1 && out.contains("workload web (sites/shop/compose.yaml:2): removed"), "{code}: {out}");

    let clone = Clone::new();
    let id = clone.git(&["rev-parse", "HEAD"]);
    clone.git(&["rm", "-q", "-r", "sites/shop"]);
    clone.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{id},sites/shop")]);
    clone.git(&["commit", "-q", "-m", "shop"]);
    let (code, out, _) = clone.run(PREVIEW);
    assert!(code == 2 && !out.contains("removed"), "{code}: {out}");
    assert!(out.contains("`sites/shop` is a submodule"), "{out}");
}

#[test]
fn removed_application_with_errors_is_a_removal() {
    let clone = Clone::new();
    clone.git(&["checkout", "-q", "main"]);
    let wiki = "services: {wiki: {image: \"wiki:1\", environment: {KEY: \"${KEY:?}\"}}}\n";
    clone.commit(&[("sites/wiki/compose.yaml", Some(wiki))]);
    clone.git(&["checkout", "-q", "-B", "change", "main"]);
    clone.commit(&[("sites/wiki/compose.yaml", None)]);
    let (code, out, _) = clone.run(&with(&["--fail-on", "removed"]));
    assert_eq!(code, 1, "{out}");
    for expected in ["application wiki: removed", "so the removed objects are unknown", "1 removed"] {
        assert!(out.contains(expected), "{out}");
    }
    assert!(!out.contains("without errors"), "{out}");
    let report = clone.json(PREVIEW);
    assert_eq!((&report["summary"]["extra"], &report["summary"]["modified"]), (&json!(1), &json!(0)));
    let (_, markdown, _) = clone.run(&with(&["-o", "markdown"]));
    for expected in ["| `wiki` |  | 1 |  |  |", "- application `wiki`: removed"] {
        assert!(markdown.contains(expected), "{markdown}");
    }
}

#[test]
fn mended_settings_of_the_repository_create_nothing() {
    let clone = Clone::new();
    let settings = |key: &str| format!("applications: [{{path: sites/shop, {key}: false}}]\n");
    clone.commit(&[("driftless.yaml", Some(&settings("selfheal")))]);
    clone.git(&["branch", "-q", "broken"]);
    clone.commit(&[("driftless.yaml", Some(&settings("selfHeal")))]);
    let (_, out, _) = clone.run(&["preview", "--base", "broken"]);
    assert!(out.contains("only the base has this error: base: driftless.yaml"), "{out}");
    assert!(out.contains("the base cannot be rendered, so the changes are unknown"), "{out}");
    assert!(!out.contains("added") && !out.contains("too"), "{out}");
}

#[test]
fn path_that_is_in_neither_commit_is_an_error() {
    let clone = Clone::new();
    let (code, out, _) = clone.run(&["preview", "--base", "main", "--path", "nope"]);
    assert!(code == 2 && out.contains("`nope` does not exist in the repository"), "{code}: {out}");
    // The last application of a folder may be removed.
    clone.commit(&[("sites/shop/compose.yaml", None), ("sites/blog/compose.yaml", None)]);
    let (code, out, _) = clone.run(&["preview", "--base", "main", "--path", "sites"]);
    assert!(code == 1 && out.contains("removed"), "{code}: {out}");
}

#[test]
fn external_network_is_not_said_to_be_added() {
    let clone = Clone::new();
    let networks = "networks: {default: {external: true, name: shared}}\n";
    clone.commit(&[("sites/shop/compose.yaml", Some(&format!("{SHOP}{networks}")))]);
    let (_, out, _) = clone.run(&["preview", "--base", "main"]);
    assert!(out.contains("networks.shared") && !out.contains("network shared"), "{out}");
}

#[test]
fn volume_that_is_not_defined_any_more_stays() {
    let clone = Clone::new();
    let with_volume = "services: {web: {image: a, volumes: ['data:/data']}}\nvolumes: {data: {}}\n";
    clone.commit(&[("sites/shop/compose.yaml", Some(with_volume))]);
    clone.git(&["branch", "-q", "before"]);
    clone.commit(&[("sites/shop/compose.yaml", Some("services: {web: {image: a}}\n"))]);
    let (_, out, _) = clone.run(&["preview", "--base", "before"]);
    assert!(out.contains("shop_data") && out.contains("it stays, with its data"), "{out}");
    assert!(out.contains("1 kept") && !out.contains("removed"), "{out}");
}

#[test]
fn applications_of_one_name_are_an_error_of_the_whole() {
    let clone = Clone::new();
    clone.commit(&[("other/shop/compose.yaml", Some(SHOP))]);
    let (code, out, _) = clone.run(PREVIEW);
    assert_eq!(code, 2);
    assert!(out.contains("several folders define an application named `shop`"), "{out}");
}

#[test]
fn preview_exit_code_follows_the_option() {
    let clone = Clone::new();
    clone.commit(&[("sites/blog/compose.yaml", None)]);
    for (options, code) in [
        (vec![], 1),
        (vec!["--detailed-exitcode"], 2),
        (vec!["--drift-exit-code", "7"], 7),
        (vec!["--exit-zero"], 0),
        (vec!["--fail-on", "added,modified"], 0),
        (vec!["--fail-on", "added,removed"], 1),
        (vec!["--app", "shop"], 0),
        (vec!["--path", "sites/shop"], 0),
        (vec!["--path", "sites/blog"], 1),
        (vec!["--head", "main"], 0),
    ] {
        let (found, out, error) = clone.run(&with(&options));
        assert_eq!(found, code, "{options:?}: {out}{error}");
    }
    let rules = clone.path().join("rules");
    fs::write(&rules, "blog */*\n").unwrap();
    assert_eq!(clone.run(&with(&["--ignore-file", "rules"])).0, 0);
}

#[test]
fn every_error_exits_with_2_or_where_asked_for_with_1() {
    let clone = Clone::new();
    clone.commit(&[("sites/blog/compose.yaml", None)]);
    fs::write(clone.path().join("rules"), "blog\n").unwrap();
    let empty = tempfile::tempdir().unwrap();
    let nowhere = empty.path().to_str().unwrap();
    let wrong: Vec<Vec<&str>> = vec![
        vec!["preview"],
        vec!["preview", "--base"],
        vec!["preview", "--base", "main", "--nonsense"],
        vec!["preview", "--base", "nothing"],
        vec!["preview", "--base", "main", "--head", "nothing"],
        vec!["preview", "--base", "main", "nowhere"],
        vec!["preview", "--base", "main", nowhere],
        vec!["preview", "--base", "main", "http://127.0.0.1:9/infra.git"],
        vec!["preview", "--base", "main", "--app", "nothing"],
        vec!["preview", "--base", "main", "--ignore-file", "rules"],
        vec!["preview", "--base", "main", "--ignore-file", "nothing"],
        vec!["preview", "--base", "main", "-o", "yaml"],
        vec!["preview", "--base", "main", "-o", "json="],
        vec!["preview", "--base", "main", "-o", "json", "-o", "text"],
        vec!["preview", "--base", "main", "-o", "json=nowhere/x.json"],
        vec!["preview", "--base", "main", "-l", "="],
        vec!["preview", "--base", "main", "--fail-on", "all"],
        vec!["preview", "--base", "main", "--drift-exit-code", "2"],
        vec!["preview", "--base", "main", "--post"],
        vec!["drift", "--server", "http://127.0.0.1:9"],
        vec!["drift", "--docker", "unix:///nonexistent/docker.sock"],
        vec!["drift", "--docker", "unix:///nonexistent/docker.sock", "--repo", ".", "--timeout", "5s"],
        vec!["drift", "--docker", "unix:///nonexistent/docker.sock", "--repo", ".", "--against", "pin"],
        vec!["drift", "--against"],
    ];
    for words in wrong {
        let (code, _, error) = clone.run(&words);
        assert_eq!(code, 2, "{words:?}: {error}");
        assert!(!error.is_empty(), "{words:?}");
        if !words.contains(&"--drift-exit-code") {
            let (code, _, error) = clone.run(&[&words[..1], &["--detailed-exitcode"], &words[1..]].concat());
            assert_eq!(code, 1, "{words:?}: {error}");
        }
    }
}

/// Answers every request with the same bytes; with none, it keeps the connection and says nothing.
fn answering(bytes: &'static str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let mut asked = [0; 4096];
            let _ = stream.read(&mut asked);
            let _ = stream.write_all(bytes.as_bytes());
            if bytes.is_empty() {
                held.push(stream);
            }
        }
    });
    format!("http://{address}")
}

#[test]
fn invalid_agent_answer_is_an_error_not_no_drift() {
    let clone = Clone::new();
    for (what, bytes) in [
        ("nothing at all", ""),
        ("no HTTP", "good day\r\n\r\n"),
        ("no JSON", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nfine"),
        ("another JSON", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"),
        ("half of it", "HTTP/1.1 200 OK\r\ncontent-length: 200\r\nconnection: close\r\n\r\n[{\"name\":"),
        ("a fault", "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
        ("a refusal", "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"),
        (
            "another place",
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
        ),
    ] {
        let server = answering(bytes);
        let (code, out, error) = clone.run(&["drift", "--server", &server, "--timeout", "1s"]);
        assert_eq!(code, 2, "{what}: {out}{error}");
        assert!(!error.is_empty() && !out.contains("no drift"), "{what}: {out}{error}");
    }
}

#[test]
fn invalid_engine_answer_is_an_error_not_no_drift() {
    let clone = Clone::new();
    for (number, bytes) in
        ["", "good day\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{]"].iter().enumerate()
    {
        let socket = clone.path().join(format!("engine-{number}.sock"));
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for mut stream in listener.incoming().flatten() {
                let mut asked = [0; 4096];
                let _ = stream.read(&mut asked);
                let _ = stream.write_all(bytes.as_bytes());
                held.push(stream);
            }
        });
        let host = format!("unix://{}", socket.display());
        let words = ["drift", "--docker", &host, "--repo", ".", "--path", "sites", "--timeout", "2s"];
        let (code, out, error) = clone.run(&words);
        assert_eq!(code, 2, "{bytes}: {out}{error}");
        assert!(!error.is_empty() || out.contains("error"), "{bytes}: {out}{error}");
    }
}

#[test]
fn unwritable_output_is_an_error_even_without_drift() {
    let clone = Clone::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = clone.driftless(PREVIEW).stdout(full).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
    // A pipe whose reader is gone.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = clone.driftless(PREVIEW).stdout(writer).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn several_forms_go_to_several_files() {
    let clone = Clone::new();
    clone.commit(&[("sites/blog/compose.yaml", None)]);
    let summary = clone.path().join("summary.md");
    fs::write(&summary, "# before\n").unwrap();
    let words = with(&["-o", "github", "-o", "json=a.json", "-o", "markdown=a.md", "-o", "text=a.txt"]);
    let output = clone.driftless(&words).env("GITHUB_STEP_SUMMARY", &summary).output().unwrap();
    let (code, out, _) = told(output);
    assert_eq!(code, 1);
    assert!(out.starts_with("::warning file=sites/blog/compose.yaml"), "{out}");
    let read = |name: &str| fs::read_to_string(clone.path().join(name)).unwrap();
    assert!(read("a.json").starts_with('{') && read("a.txt").contains("blog: 2 changes"));
    assert!(read("a.md").starts_with("<!-- driftless:preview default -->\n### Preview: 1 of 2"));
    assert!(read("summary.md").starts_with("# before\n<!-- driftless:preview"));
}

#[test]
fn merge_base_preview_ignores_newer_base_commits() {
    let clone = Clone::new();
    clone.commit(&[("sites/blog/compose.yaml", None)]);
    clone.git(&["checkout", "-q", "main"]);
    clone.commit(&[("sites/wiki/compose.yaml", Some("services: {wiki: {image: \"wiki:1\"}}\n"))]);
    let names = |report: &Value| -> Vec<String> {
        let apps = report["apps"].as_array().unwrap().iter().filter(|it| it["hasDrift"] == true);
        apps.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&clone.json(&with(&["--head", "change"]))), ["blog", "wiki"]);
    assert_eq!(names(&clone.json(&with(&["--head", "change", "--merge-base"]))), ["blog"]);
    clone.git(&["checkout", "-q", "--orphan", "other"]);
    clone.commit(&[("x", Some("x"))]);
    let (code, _, error) = clone.run(&with(&["--merge-base"]));
    assert_eq!(code, 2);
    assert!(error.contains("no commit in common"), "{error}");
}

#[test]
fn repository_is_found_in_a_subfolder_worktree_or_by_url() {
    let clone = Clone::new();
    clone.commit(&[("sites/blog/compose.yaml", None)]);
    let whole = clone.run(&with(&["-o", "ndjson"]));
    let below = told(
        clone.driftless(&with(&["-o", "ndjson"])).current_dir(clone.path().join("sites")).output().unwrap(),
    );
    assert_eq!(below, whole, "from a folder inside");
    let other = tempfile::tempdir().unwrap();
    let tree = other.path().join("tree");
    clone.git(&["worktree", "add", "-q", "--detach", tree.to_str().unwrap(), "change"]);
    let of_tree = clone.run(&with(&["-o", "ndjson", tree.to_str().unwrap()]));
    assert_eq!(of_tree, whole, "in a linked work tree");
    let url = format!("file://{}", clone.path().display());
    let of_url = clone
        .driftless(&with(&["-o", "ndjson", "--head", "change", &url]))
        .env("PATH", std::env::var("PATH").unwrap())
        .output()
        .unwrap();
    assert_eq!(told(of_url), whole, "by its URL");
    // Some copies of a repository come without its empty folders.
    fs::remove_dir_all(clone.path().join(".git/objects/pack")).unwrap();
    assert_eq!(clone.run(&with(&["-o", "ndjson"])), whole, "without a folder for packs");
    // As a CI clones: of one branch there is nothing but the remote's.
    let shallow = other.path().join("clone");
    clone.git(&[
        "clone",
        "-q",
        "--no-local",
        "--branch",
        "change",
        clone.path().to_str().unwrap(),
        shallow.to_str().unwrap(),
    ]);
    assert_eq!(clone.run(&with(&["-o", "ndjson", shallow.to_str().unwrap()])), whole, "origin/main");
}

#[test]
fn parent_that_a_shallow_clone_lacks_is_explained() {
    let clone = Clone::new();
    clone.commit(&[("sites/blog/compose.yaml", None)]);
    let other = tempfile::tempdir().unwrap();
    let shallow = other.path().join("clone");
    let (url, folder) = (format!("file://{}", clone.path().display()), shallow.to_str().unwrap());
    clone.git(&["clone", "-q", "--depth", "1", "--branch", "change", &url, folder]);
    let (code, _, error) = clone.run(&["preview", "--base", "HEAD^1", "--head", "HEAD", folder]);
    assert!(code == 2 && error.contains("`fetch-depth: 2`") && !error.contains("no commit:"), "{error}");
}

/// The environment of a job for pull request 7.
fn job(command: &mut Command, kind: ForgeKind, address: &str, head: &str) {
    match kind {
        ForgeKind::GitHub => command.env("GITHUB_ACTIONS", "true").env("GITHUB_API_URL", address),
        ForgeKind::Gitea => command
            .env("GITHUB_ACTIONS", "true")
            .env("FORGEJO_ACTIONS", "true")
            .env("GITHUB_API_URL", format!("{address}/api/v1")),
        ForgeKind::GitLab => {
            command.env("GITLAB_CI", "true").env("CI_API_V4_URL", format!("{address}/api/v4"))
        }
    };
    command
        .env("GITHUB_REPOSITORY", "me/infra")
        .env("GITHUB_REF", "refs/pull/7/merge")
        .env("GITHUB_SHA", head)
        .env("CI_PROJECT_ID", "me/group/infra")
        .env("CI_MERGE_REQUEST_IID", "7")
        .env("CI_COMMIT_SHA", head)
        .env("DRIFTLESS_FORGE_TOKEN", "t0ken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_posted_as_one_comment_and_a_status() {
    for kind in [ForgeKind::GitHub, ForgeKind::GitLab, ForgeKind::Gitea] {
        let (played, address) = Played::start(kind).await;
        let clone = Clone::new();
        let head = clone.commit(&[("sites/blog/compose.yaml", None)]);
        let post = |more: &[&str]| {
            let mut command = clone.driftless(&[&with(&["--post"]), more].concat());
            job(&mut command, kind, &address, &head);
            told(command.output().unwrap())
        };
        let (code, _, error) = post(&[]);
        assert_eq!((code, error.contains("comment on request 7: written")), (1, true), "{kind:?}: {error}");
        let (_, _, error) = post(&[]);
        assert!(error.contains("comment on request 7: up to date"), "{kind:?}: {error}");
        let (code, _, error) = post(&["--head", "main", "--exit-zero"]);
        assert_eq!((code, error.contains("comment on request 7: updated")), (0, true), "{kind:?}: {error}");
        post(&["--post-as", "other"]);
        let comments = played.comments();
        assert_eq!(comments.len(), 2, "{kind:?}: {comments:?}");
        assert!(comments[0].contains("### Preview: 2 applications, no change"), "{}", comments[0]);
        let statuses = played.statuses();
        let failed = if kind == ForgeKind::GitLab { "failed" } else { "failure" };
        let said: Vec<&str> = statuses.iter().map(|(_, it)| it["state"].as_str().unwrap()).collect();
        assert_eq!(said, [failed, failed, "success", failed], "{kind:?}");
        assert!(statuses.iter().all(|(commit, _)| *commit == head));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn report_is_printed_if_posting_is_not_permitted() {
    let (played, address) = Played::start(ForgeKind::GitHub).await;
    let clone = Clone::new();
    let head = clone.commit(&[("sites/blog/compose.yaml", None)]);
    let mut command = clone.driftless(&with(&["--post"]));
    job(&mut command, ForgeKind::GitHub, &address, &head);
    let (code, out, error) = told(command.env_remove("DRIFTLESS_FORGE_TOKEN").output().unwrap());
    assert_eq!((code, error.contains("not posted: there is no token")), (1, true), "{error}");
    assert!(out.contains("blog: 2 changes"), "{out}");

    played.refuse(403, json!({"message": "Resource not accessible by integration"}));
    let mut command = clone.driftless(&with(&["--post"]));
    job(&mut command, ForgeKind::GitHub, &address, &head);
    let (code, _, error) = told(command.output().unwrap());
    assert_eq!((code, error.contains("Resource not accessible")), (2, true), "{error}");
    assert!(!error.contains("t0ken"), "{error}");

    let event = clone.path().join("event.json");
    let text = json!({"pull_request": {"number": 7, "head": {"sha": head, "repo": {"full_name": "you/infra"}},
        "base": {"repo": {"full_name": "me/infra"}}}});
    fs::write(&event, text.to_string()).unwrap();
    let mut command = clone.driftless(&with(&["--post"]));
    job(&mut command, ForgeKind::GitHub, &address, &head);
    let (code, _, error) = told(command.env("GITHUB_EVENT_PATH", &event).output().unwrap());
    assert_eq!((code, error.contains("the request comes from a fork")), (1, true), "{error}");
}

#[test]
fn preview_says_on_which_host_something_changes() {
    let clone = Clone::new();
    let settings = "hosts: [{name: nas, labels: {role: media}}, {name: web-1}, {name: web-2}]\napplications:\n- path: \
                    blog\n- {path: shop, hosts: {names: ['web-*']}, variables: {TAG: '1'}}\n";
    clone.git(&["checkout", "-q", "main"]);
    let shop = "services: {web: {image: 'shop:${TAG}'}}\n";
    clone.commit(&[("sites/driftless.yaml", Some(settings)), ("sites/shop/compose.yaml", Some(shop))]);
    clone.git(&["checkout", "-q", "-B", "change"]);
    let per_host = "variables: {TAG: '1'}, perHost: [{hosts: {names: [web-2]}, variables: {TAG: '2'}}]";
    let changed = settings
        .replace("variables: {TAG: '1'}", per_host)
        .replace("- path: blog\n", "- {path: blog, hosts: {labels: {role: media}}}\n");
    clone.commit(&[("sites/driftless.yaml", Some(&changed))]);
    let (code, out, error) = clone.run(&with(&["--path", "sites"]));
    assert_eq!(code, 1, "{out}{error}");
    assert!(out.contains("note: on web-2\n") && out.contains("note: on web-1, web-2\n"), "{out}");
    assert!(out.contains("image: shop:1 -> shop:2") && !out.contains("on nas"), "{out}");
    let (code, out, _) = clone.run(&with(&["--path", "sites", "--host", "nas"]));
    assert_eq!((code, out.as_str()), (0, "no change: blog\n1 application, no change\n"));
    let report = clone.json(&with(&["--path", "sites", "--all-hosts"]));
    let hosts: Vec<(&str, String)> = report["apps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|app| (app["name"].as_str().unwrap(), app["hosts"].to_string()))
        .collect();
    let two = |one: &'static str, other: &str| (one, other.to_owned());
    assert_eq!(
        hosts,
        [
            two("blog", r#"["nas"]"#),
            two("blog", r#"["web-1","web-2"]"#),
            two("shop", r#"["web-1"]"#),
            two("shop", r#"["web-2"]"#)
        ]
    );
    // Formats for other tools name the host too, and have a fingerprint for each.
    let (_, out, _) = clone.run(&with(&["--path", "sites", "-o", "github"]));
    assert!(out.contains("title=shop (on web-2)%3A workload web"), "{out}");
    let (_, out, _) = clone.run(&with(&["--path", "sites", "-o", "junit"]));
    assert!(out.contains(r#"<testsuite name="shop (on web-2)""#), "{out}");
    let (_, out, _) = clone.run(&with(&["--path", "sites", "-o", "ndjson"]));
    assert!(
        out.lines().any(|line| line.contains("shop:2") && line.contains(r#""hosts":["web-2"]"#)),
        "{out}"
    );
    let both = changed.replace("variables: {TAG: '1'}, perHost", "variables: {TAG: '3'}, perHost");
    clone.commit(&[("sites/driftless.yaml", Some(&both))]);
    let (_, out, _) = clone.run(&with(&["--path", "sites", "-o", "sarif"]));
    let log: Value = serde_json::from_str(&out).unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    let images = results.iter().filter(|it| it["message"]["text"].as_str().unwrap().contains("image: "));
    let prints: BTreeSet<&str> =
        images.map(|it| it["partialFingerprints"]["driftKey/v1"].as_str().unwrap()).collect();
    assert_eq!(prints.len(), 2, "{out}");
    clone.commit(&[("sites/driftless.yaml", Some(&changed))]);
    let (code, _, error) = clone.run(&["preview", "--base", "main", "--all-hosts", "--path", "sites/shop"]);
    assert!(code == 2 && error.contains("names no host") && error.contains("--host NAME"), "{error}");

    let (code, out, _) = clone.run(&["validate", ".", "--path", "sites", "-o", "json"]);
    let result: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0, "{out}");
    assert_eq!(result["applications"].as_array().unwrap().len(), 3, "{out}");
    let broken = changed.replace("perHost", "perHosts");
    clone.commit(&[("sites/driftless.yaml", Some(&broken))]);
    for words in [&["validate", ".", "--path", "sites"][..], &with(&["--path", "sites"])] {
        let (code, out, error) = clone.run(words);
        let all = format!("{out}{error}");
        assert!(code != 0 && all.contains("unknown key `perHosts`"), "{words:?}: {all}");
    }
}

#[test]
fn preview_says_that_an_application_moves_to_another_host() {
    let clone = Clone::new();
    let settings = "hosts: [{name: nas}, {name: web}]\napplications: [{path: blog, hosts: {names: [nas]}}]\n";
    clone.commit(&[("sites/driftless.yaml", Some(settings))]);
    clone.git(&["branch", "-f", "main"]);
    clone.commit(&[("sites/driftless.yaml", Some(&settings.replace("[nas]", "[web]")))]);
    let (code, out, error) = clone.run(&with(&["--path", "sites"]));
    assert_eq!(code, 1, "{out}{error}");
    for host in ["nas", "web"] {
        let note =
            format!("note: on {host}; it may begin on web before it ends on nas, where its data stay: ");
        assert!(out.contains(&note), "{out}");
    }
}

#[test]
fn folders_named_after_hosts_are_previewed_together() {
    let clone = Clone::new();
    let text = |image: &str| format!("services: {{web: {{image: '{image}'}}}}\n");
    clone.commit(&[
        ("hosts/nas/shop/compose.yaml", Some(&text("a:1"))),
        ("hosts/web/shop/compose.yaml", Some(&text("b:1"))),
    ]);
    clone.git(&["branch", "-f", "main"]);
    clone.commit(&[("hosts/web/shop/compose.yaml", Some(&text("b:2")))]);
    let (code, out, error) = clone.run(&with(&["--path", "hosts/${host}"]));
    assert_eq!(code, 1, "{out}{error}");
    assert!(
        out.contains("note: on web\n") && out.contains("b:1 -> b:2") && !out.contains("note: on nas"),
        "{out}"
    );
    let (code, _, error) = clone.run(&["validate", ".", "--path", "hosts/${host}"]);
    assert!(code == 0 && error.contains("2 applications, read from Git: 0 errors"), "{error}");
}

#[test]
fn applications_that_want_one_port_are_errors() {
    let clone = Clone::new();
    let web = "services: {web: {image: 'a:1', ports: ['8080:80']}}\n";
    clone.commit(&[("sites/blog/compose.yaml", Some(web))]);
    clone.git(&["branch", "-f", "main"]);
    clone.commit(&[("sites/blog2/compose.yaml", Some(web))]);
    let taken = "the host port 8080/tcp is taken by application `blog` (sites/blog/compose.yaml:1:";
    let (code, _, error) = clone.run(&["validate", ".", "--path", "sites"]);
    assert!(code == 1 && error.contains(taken), "{code}: {error}");
    let options: [&[&str]; 3] = [&[], &["--app", "blog2"], &["--host", "nas"]];
    for more in options {
        let (code, out, error) = clone.run(&with(&[&["--path", "sites"][..], more].concat()));
        assert!(code == 2 && out.contains(taken) && out.contains("blog2: error"), "{more:?}: {out}{error}");
    }
    // The other application is not the one with the error.
    assert_eq!(clone.run(&with(&["--path", "sites", "--app", "blog"])).0, 0);
    // The base has the error too, although the place that it names has moved.
    clone.git(&["branch", "-f", "main"]);
    clone.commit(&[("sites/blog/compose.yaml", Some(&format!("# a comment\n{web}")))]);
    let (code, out, _) = clone.run(&with(&["--path", "sites"]));
    assert!(code == 0 && out.contains("blog2: error on the base too"), "{code}: {out}");
    // The change to another port is shown.
    clone.commit(&[("sites/blog2/compose.yaml", Some(&web.replace("8080:", "8081:")))]);
    let (code, out, _) = clone.run(&with(&["--path", "sites"]));
    assert!(code == 1 && out.contains("8081") && !out.contains("unknown"), "{code}: {out}");
}

#[test]
fn application_of_the_base_keeps_its_port() {
    let clone = Clone::new();
    let web = "services: {web: {image: 'a:1', ports: ['8080:80']}}\n";
    clone.commit(&[("sites/blog/compose.yaml", Some(web))]);
    clone.git(&["branch", "-f", "main"]);
    clone.commit(&[("sites/aaa/compose.yaml", Some(web))]);
    let (code, out, error) = clone.run(&with(&["--path", "sites"]));
    assert!(code == 2 && out.contains("is taken by application `blog`"), "{code}: {out}{error}");
    assert!(out.contains("aaa: error") && !out.contains("blog: error"), "{out}");
}

#[test]
fn applications_that_wait_for_each_other_are_errors() {
    let clone = Clone::new();
    let settings =
        "applications:\n- {path: blog, dependsOn: [{app: shop}]}\n- {path: shop, dependsOn: [{app: blog}]}\n";
    clone.commit(&[("sites/driftless.yaml", Some(settings))]);
    for words in [&["validate", ".", "--path", "sites"][..], &with(&["--path", "sites"])] {
        let (code, out, error) = clone.run(words);
        let all = format!("{out}{error}");
        assert!(code != 0 && all.contains("wait for each other: shop waits for blog"), "{words:?}: {all}");
        assert!(all.contains("sites/driftless.yaml:2:"), "the place of the setting: {words:?}: {all}");
    }
}

#[test]
fn changed_settings_are_reported_with_their_place() {
    let clone = Clone::new();
    let before = "applications: [{path: blog, prune: true}, {path: shop}]\n";
    clone.commit(&[("sites/driftless.yaml", Some(before))]);
    clone.git(&["branch", "-f", "main"]);
    let after = "selfHeal: false\napplications: [{path: blog}, {path: shop}]\n";
    clone.commit(&[("sites/driftless.yaml", Some(after))]);
    let (code, out, error) = clone.run(&with(&["--path", "sites"]));
    assert_eq!(code, 1, "{out}{error}");
    assert!(out.contains("settings.prune: true -> false"), "{out}");
    assert_eq!(out.matches("settings.selfHeal: true -> false").count(), 2, "{out}");
    let report = clone.json(&with(&["--path", "sites", "--app", "shop"]));
    let items = report["apps"][0]["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{items:?}");
    assert_eq!((items[0]["kind"].as_str(), items[0]["line"].as_u64()), (Some("application"), Some(1)));
    assert_eq!(items[0]["file"], "sites/driftless.yaml");
    let (_, diff, _) = clone.run(&with(&["--path", "sites", "-o", "diff"]));
    assert!(diff.contains("\n-selfHeal: true\n+selfHeal: false\n"), "{diff}");
    // A moved line is no change.
    clone.git(&["branch", "-f", "main"]);
    clone.commit(&[("sites/driftless.yaml", Some(&format!("# a comment\n{after}")))]);
    assert_eq!(clone.run(&with(&["--path", "sites"])).0, 0);
}

#[test]
fn mistake_in_the_settings_of_the_head_removes_nothing() {
    let clone = Clone::new();
    let settings = "applications: [{path: blog}, {path: shop}]\n";
    clone.commit(&[("sites/driftless.yaml", Some(settings))]);
    clone.git(&["branch", "-f", "main"]);
    let wrong = settings.replace("path: blog", "path: blog, perHosts: []");
    clone.commit(&[("sites/driftless.yaml", Some(&wrong))]);
    let (code, out, _) = clone.run(&with(&["--path", "sites"]));
    assert!(code == 2 && out.contains("unknown key `perHosts`"), "{code}: {out}");
    assert!(out.contains("0 of 2 applications change; 3 errors\n") && !out.contains("removed"), "{out}");
    assert_eq!(
        out.matches(": error\n    the head has errors, so its changes are unknown").count(),
        2,
        "{out}"
    );
    // Two folders of one name leave unknown which of them is the application.
    clone.git(&["checkout", "-q", "-B", "change", "main~1"]);
    clone.commit(&[("other/shop/compose.yaml", Some(SHOP))]);
    let (code, out, _) = clone.run(&["preview", "--base", "main~1"]);
    assert!(code == 2 && !out.contains("removed"), "{code}: {out}");
}

#[test]
fn plan_of_a_folder_for_another_host_is_an_error() {
    let clone = Clone::new();
    let settings = "applications: [{path: sites/shop, hosts: {names: [nas]}}]\n";
    clone.commit(&[("driftless.yaml", Some(settings))]);
    for command in ["plan", "diff"] {
        let engine = "unix:///nonexistent/docker.sock";
        let (code, out, error) =
            clone.run(&[command, "--dir", ".", "--docker-host", engine, "--host", "runner-7"]);
        assert!(code != 0 && error.contains("no application is for the host `runner-7`"), "{out}{error}");
        // The engine that is asked for the applications of this host does not exist.
        let (code, out, error) =
            clone.run(&[command, "--dir", ".", "--docker-host", engine, "--host", "nas"]);
        assert!(code != 0 && !error.contains("no application"), "{out}{error}");
    }
}

#[test]
fn error_of_a_folder_without_a_plan_is_printed_once() {
    let clone = Clone::new();
    clone.commit(&[("driftless.yaml", Some("applications: [{path: sites/shop, perHosts: []}]\n"))]);
    let (code, out, error) =
        clone.run(&["plan", "--dir", ".", "--docker-host", "unix:///nonexistent/docker.sock"]);
    assert!(code != 0 && error.matches("unknown key `perHosts`").count() == 1, "{out}{error}");
}

#[test]
fn labels_that_no_changed_object_has_are_noted() {
    let clone = Clone::new();
    let labelled = "services: {web: {image: \"web:9\", labels: {tier: front}}}\n";
    clone.commit(&[("sites/shop/compose.yaml", Some(labelled))]);
    let note = "note: no object that differs has the labels of -l";
    let (_, out, error) = clone.run(&with(&["-l", "tier=nope"]));
    assert!(error.contains(note), "{out}{error}");
    let (_, out, error) = clone.run(PREVIEW);
    assert!(!error.contains(note), "{out}{error}");
}

#[test]
fn variable_of_the_host_is_given_to_both_sides() {
    let clone = Clone::new();
    let wiki = "services: {wiki: {image: \"wiki:1\", environment: {KEY: \"${WIKI:?}\"}}}\n";
    clone.commit(&[("sites/wiki/compose.yaml", Some(wiki))]);
    clone.git(&["branch", "-f", "main"]);
    let newer = wiki.replace("wiki:1", "wiki:2").replace("KEY:", "PLACE: \"at ${WIKI}\", KEY:");
    clone.commit(&[("sites/wiki/compose.yaml", Some(&newer))]);
    let (code, out, _) = clone.run(PREVIEW);
    let headline = "0 of 3 applications change; 1 error of the base, so 1 application is not known\n";
    assert!(code == 0 && out.ends_with(headline), "{code}: {out}");
    let (code, out, _) = clone.run(&with(&["--variable", "WIKI=correcthorsebattery"]));
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("image: wiki:1 -> wiki:2") && out.contains("env.PLACE"), "{out}");
    assert!(!out.contains("env.KEY") && !out.contains("correcthorse"), "{out}");
    for format in ["diff", "json", "ndjson", "markdown", "github", "junit", "sarif"] {
        let (code, out, error) = clone.run(&with(&["--variable", "WIKI=correcthorsebattery", "-o", format]));
        assert!(code == 1 && out.contains("wiki"), "{format}: {code}: {out}{error}");
        assert!(!out.contains("correcthorse") && !error.contains("correcthorse"), "{format}: {out}{error}");
    }
    for (command, folder) in [("plan", "--dir"), ("diff", "--dir"), ("drift", "--repo")] {
        let engine = if command == "drift" { "--docker" } else { "--docker-host" };
        let words = [command, folder, ".", engine, "unix:///nonexistent/docker.sock"];
        let (code, _, error) = clone.run(&[&words[..], &["--variable", "WIKI=1"]].concat());
        assert!(code != 0 && error.contains("could not observe the engine"), "{command}: {error}");
        assert!(!error.contains("required variable"), "{command}: {error}");
    }
}

#[test]
fn errors_do_not_show_values_of_variables() {
    let clone = Clone::new();
    let policy = clone.path().join("policy.txt");
    fs::write(&policy, "trust: limited\n").unwrap();
    let policy = policy.to_str().unwrap();
    let given = ["--variable", "WIKI=correcthorsebattery"];
    for (wiki, more, message) in [
        ("services: {wiki: {image: wiki, ports: ['${WIKI}:80']}}\n", vec![], "ports"),
        (
            "services: {wiki: {image: wiki, volumes: ['/srv/${WIKI}:/d']}}\n",
            vec!["--policy", policy],
            "/srv/",
        ),
    ] {
        clone.commit(&[("sites/wiki/compose.yaml", Some(wiki))]);
        let (code, out, error) = clone.run(&[PREVIEW, &given[..], &more[..]].concat());
        assert!(code == 2 && out.contains(message), "{code}: {out}{error}");
        assert!(!out.contains("correcthorse") && !error.contains("correcthorse"), "{out}{error}");
    }
    let (code, out, error) = clone.run(&with(&["--variable", "correcthorsebattery"]));
    assert!(
        code == 2 && error.contains("'--variable <NAME=VALUE>': write NAME=VALUE or APP:NAME=VALUE"),
        "{out}{error}"
    );
    assert!(!error.contains("correcthorse"), "{error}");
}

#[test]
fn variable_of_one_application_hides_no_other_change() {
    let clone = Clone::new();
    let compose = "services: {web: {image: \"web:1\", environment: {KEY: \"${DB_PASSWORD:?}\"}}}\n";
    let settings = |tag: &str| {
        format!(
            "applications: [{{path: shop}}, {{path: wiki}}, {{path: blog, variables: {{TAG: '{tag}'}}}}]\n"
        )
    };
    clone.commit(&[
        ("driftless.yaml", Some(&settings("5.1"))),
        ("shop/compose.yaml", Some(compose)),
        ("wiki/compose.yaml", Some(compose)),
        ("wiki/.env", Some("DB_PASSWORD=firsthorsebattery\n")),
        ("blog/compose.yaml", Some("services: {blog: {image: \"ghost:${TAG}\"}}\n")),
    ]);
    clone.git(&["branch", "-f", "main"]);
    clone.commit(&[("wiki/.env", Some("DB_PASSWORD=otherhorsebattery\n"))]);
    let (code, out, _) = clone.run(&with(&["--variable", "shop:DB_PASSWORD=a"]));
    assert!(code == 1 && out.contains("env.KEY"), "{code}: {out}");
    // As on the host, settings in Git override a value for all applications.
    clone.git(&["branch", "-f", "main"]);
    clone.commit(&[("driftless.yaml", Some(&settings("5.2")))]);
    let given = ["--variable", "DB_PASSWORD=a", "--variable", "TAG=4"];
    let (code, out, _) = clone.run(&with(&given));
    assert!(code == 1 && out.contains("ghost:5.1 -> ghost:5.2"), "{code}: {out}");
    let (code, out, _) = clone.run(&with(&[&given[..], &["--variable", "blog:TAG=4"]].concat()));
    assert_eq!(code, 0, "{out}");
}

#[test]
fn applications_of_hosts_that_are_not_listed_are_checked() {
    let clone = Clone::new();
    let settings = "hosts: [{name: nas}]\napplications:\n- {path: shop, hosts: {labels: {os: linux}}}\n- {path: sensor, \
                    name: sensor, hosts: {labels: {arch: arm64}}}\n- {path: sensor-amd, name: sensor, hosts: {labels: \
                    {arch: amd64}}}\n- {path: 'of/${host}', hosts: {names: ['pi-*']}}\n";
    let sensor = "services: {sensor: {image: 'sensor:1', ports: ['9000:9000']}}\n";
    clone.commit(&[
        ("sites/driftless.yaml", Some(settings)),
        ("sites/sensor/compose.yaml", Some(sensor)),
        ("sites/sensor-amd/compose.yaml", Some(sensor)),
    ]);
    let validate = ["validate", ".", "--path", "sites"];
    let (code, _, error) = clone.run(&validate);
    assert!(code == 0 && error.contains("no known host has `sites/sensor`"), "{code}: {error}");
    assert_eq!(error.matches("no known host has").count(), 2, "{error}");
    clone.git(&["branch", "-f", "main"]);
    // The second one of the name is previewed, too.
    clone.commit(&[("sites/sensor-amd/compose.yaml", Some(&sensor.replace("sensor:1", "sensor:2")))]);
    let (code, out, _) = clone.run(&with(&["--path", "sites"]));
    assert!(code == 1 && out.contains("sensor:1 -> sensor:2"), "{code}: {out}");
    assert!(out.contains("note: on hosts that driftless.yaml does not list\n"), "{out}");
    let (code, out, _) = clone.run(&with(&["--path", "sites", "--host", "nas"]));
    assert!(code == 0 && !out.contains("sensor"), "{code}: {out}");
    // A host that is listed now has it: that is no removal.
    let listed = settings.replace("{name: nas}", "{name: nas}, {name: pi, labels: {arch: arm64}}");
    clone.commit(&[("sites/driftless.yaml", Some(&listed))]);
    let (_, out, _) = clone.run(&with(&["--path", "sites"]));
    assert!(out.contains("note: on pi\n") && !out.contains("removed"), "{out}");
    clone.commit(&[("sites/sensor-amd/compose.yaml", Some("services: {sensor: {imag: a}}\n"))]);
    let (code, _, error) = clone.run(&validate);
    assert!(code == 1 && error.contains("sites/sensor-amd/compose.yaml"), "{code}: {error}");
}
