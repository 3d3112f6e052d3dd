//! Every command block of the README and the guides, run as written by bash against a real agent and engine.
//!
//! A block without a language, or with `sh` or `console`, contains commands. A comment in the line before it may say
//! `<!-- run by: TEST -->`, if another test runs them, or `<!-- not run: REASON -->` with a reason of [`REASONS`].
//! Names and paths of the reader are replaced by those of the test ([`written_for`]); `tests/e2e/guides.sh` prepares
//! what each page supposes and stands in for programs that need another machine, such as `systemctl`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::json;

use crate::harness::{Agent, Compose, Leftovers, Settings, Site, images};

/// The reasons for which a block is not run, each with words of which one is in every command of such a block.
const REASONS: &[(&str, &[&str])] = &[
    (
        "it builds the program",
        &["make ", "cargo build", "cargo install", "--build", "install -m 644 deploy/", "docker run"],
    ),
    ("it needs the built image", &["docker compose -f deploy/compose.yaml "]),
    ("it takes half an hour", &["make chaos"]),
    ("it needs systemd", &["systemd", "systemctl"]),
    ("it needs age and SOPS", &["age-keygen", "sops ", "git add"]),
    ("it needs a bucket and a WebDAV server", &["s3://", "davs://"]),
    (
        "it needs a second machine",
        &[
            "nas.lan",
            "fleet join",
            "fleet leave",
            "fleet keys",
            "fleet revoke nas",
            "fleet revoke --invite",
            "fleet request",
        ],
    ),
    ("it needs published releases", &["releases/download"]),
    ("it needs two applications of Kubernetes manifests", &["OLD", "NEW", "CONTAINER"]),
];

/// A block of commands.
#[derive(Clone, Debug)]
struct Block {
    page: String,
    line: usize,
    text: String,
    mark: Option<String>,
}

/// The blocks of a page.
fn blocks(page: &str) -> Vec<Block> {
    let text = fs::read_to_string(page).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut blocks = Vec::new();
    let mut open: Option<(usize, bool, Vec<String>)> = None;
    for (at, line) in lines.iter().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some((at, matches!(language, "" | "sh" | "console"), Vec::new()));
            }
            (Some(_), Some(_)) => {
                let Some((at_start, true, inside)) = open.take() else { continue };
                // Of a session, what follows the prompts; the rest is output.
                let prompts: Vec<&str> = inside.iter().filter_map(|line| line.strip_prefix("$ ")).collect();
                let text = if prompts.is_empty() { inside.join("\n") } else { prompts.join("\n") };
                let before =
                    at_start.checked_sub(1).and_then(|at| lines.get(at)).map_or("", |line| line.trim());
                let mark = before.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
                let mark = mark.map(str::to_owned);
                blocks.push(Block { page: page.to_owned(), line: at_start + 1, text, mark });
            }
            (None, Some((_, _, inside))) => inside.push((*line).to_owned()),
            (None, None) => {}
        }
    }
    blocks
}

/// The README and the pages below `docs`, without the reference of the command line, whose examples are parsed by
/// another test.
fn pages() -> Vec<String> {
    let entries = fs::read_dir("docs").unwrap().map(|entry| entry.unwrap().path());
    let pages =
        entries.filter(|path| path.extension().is_some_and(|it| it == "md") && !path.ends_with("cli.md"));
    let mut pages: Vec<String> = pages.map(|path| path.display().to_string()).collect();
    pages.push("README.md".to_owned());
    pages.sort();
    pages
}

/// The names of all tests.
fn test_names() -> String {
    let mut names = String::new();
    for folder in ["tests/it", "tests/e2e"] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|it| it == "rs") {
                names.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    names
}

#[test]
fn blocks_that_are_not_run_say_why_and_the_reason_holds() {
    let tests = test_names();
    let mut wrong = Vec::new();
    let mut run = BTreeMap::new();
    for block in pages().iter().flat_map(|page| blocks(page)) {
        let place = format!("{}:{}", block.page, block.line);
        match block.mark.as_deref().and_then(|mark| mark.split_once(": ")) {
            Some(("run by", test)) if tests.contains(&format!("fn {test}(")) => {}
            Some(("run by", test)) => wrong.push(format!("{place}: there is no test {test}")),
            Some(("not run", reason)) => match REASONS.iter().find(|(known, _)| *known == reason) {
                Some((_, words)) => wrong.extend(commands(&block.text).into_iter().filter_map(|command| {
                    let holds = words.iter().any(|word| command.contains(word));
                    (!holds)
                        .then(|| format!("{place}: `{command}` is not kept from running because {reason}"))
                })),
                None => wrong.push(format!("{place}: {reason} is no known reason")),
            },
            _ => *run.entry(block.page).or_insert(0) += 1,
        }
    }
    for page in run.keys() {
        if !PAGES.contains(&page.as_str()) {
            wrong.push(format!("{page} has commands, and no test runs them"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(run.values().sum::<usize>() > 25, "{run:?}");
}

/// The commands of a block: lines without comments, with the lines that continue them.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

/// The state of the machine that a page supposes.
///
/// The agents end first, so that they do not bring back what is removed then.
struct Stage {
    /// None: the page starts the agent itself.
    agent: Option<Agent>,
    /// A host that reports to the agent.
    reporter: Option<(Agent, Site)>,
    leftovers: Vec<Leftovers>,
    site: Site,
}

/// With a mounted file for docs/install.md alone: without an agent, the path of its content is unknown.
fn compose(app: &str, greeting: &str, has_file: bool) -> String {
    let image = images::server("1.0");
    let file = if has_file { "    configs: [page]\nconfigs: {page: {file: ./page.html}}\n" } else { "" };
    format!(
        "name: {app}\nservices:\n  web:\n    image: {image}\n    environment: {{GREETING: {greeting}}}\n    stop_grace_period: 1s\n    network_mode: none\n{file}"
    )
}

/// Two services, one of which is a CronJob. The new container of the other one takes the name of the old one.
fn compose_with_schedule(app: &str) -> String {
    let image = images::server("1.0");
    format!(
        "name: {app}\nservices:\n  web:\n    image: {image}\n    labels: {{app: web}}\n    stop_grace_period: 1s\n    network_mode: none\n    deploy: {{update_config: {{order: stop-first}}}}\n  report:\n    image: {image}\n    network_mode: none\n    x-driftless: {{schedule: '0 3 1 1 *'}}\n"
    )
}

impl Stage {
    /// An agent with one application, and the agent's configuration as the page supposes it.
    async fn of(page: &str) -> Self {
        let name = Path::new(page).file_stem().unwrap().to_string_lossy().to_lowercase();
        // docs/webhooks.md signs a delivery by hand.
        let provider = if page == "docs/webhooks.md" { "hmac-sha256" } else { "github" };
        let webhook = Some((provider, "0123456789abcdef0123456789abcdef".to_owned()));
        let whole = Some(json!({ "host": { "name": "hub" }, "fleet": { "accept": true } }));
        let mut site =
            Site::with(&format!("guide-{name}"), Settings { webhook, whole, ..Settings::default() });
        let pihole = site.foreign("pihole");
        let page_html = site.path("page.html");
        let mut stage = Self { agent: None, reporter: None, leftovers: Vec::new(), site };
        let site = &stage.site;
        if page == "docs/kubectl.md" {
            let commit = site.compose(&compose_with_schedule(&site.app));
            let agent = site.agent().await;
            agent.settled(&commit).await;
            stage.agent = Some(agent);
            return stage;
        }
        let first = [
            (page_html.as_str(), "hello\n"),
            (&site.path("compose.yaml"), &compose(&site.app, "one", page == "docs/install.md")),
        ];
        let commit = site.repository.commit(&first);
        match page {
            "docs/migrate.md" | "docs/adoption.md" => {
                let folder = site.directory().join("work/sites").join(&site.app);
                let docker = site.docker.clone();
                stage.leftovers.push(Leftovers { docker, project: site.app.clone() });
                Compose::v2().run(&folder, &site.app, &["up", "-d"]);
                if page == "docs/migrate.md" {
                    let blog = format!("{}-blog", site.app);
                    Compose::v2().run(&folder, &blog, &["up", "-d"]);
                    site.docker.run(&["run", "-d", "--name", &pihole, &images::server("1.0")]);
                    stage.leftovers.push(Leftovers { docker: site.docker.clone(), project: blog });
                    return stage;
                }
                if page == "docs/adoption.md" {
                    let agent = site.agent().await;
                    agent.until("the project is found", |it| !it.status.waits.is_empty()).await;
                    stage.agent = Some(agent);
                }
            }
            "README.md" | "docs/configuration.md" => {}
            _ => {
                let agent = site.agent().await;
                agent.settled(&commit).await;
                // The README goes back to an earlier revision.
                let text = compose(&site.app, "two", page == "docs/install.md");
                let commit = site.compose(&text);
                agent.deployed(&commit).await;
                if page == "docs/fleet.md" {
                    let report = json!({ "to": format!("http://{}", agent.address()), "every": "5s" });
                    let whole = Some(json!({ "host": { "name": "tv" }, "report": report }));
                    let tv = Site::with("guide-tv", Settings { whole, ..Settings::default() });
                    let image = images::server("1.0");
                    let reporter = tv
                        .running(&format!("services: {{web: {{image: '{image}', network_mode: none}}}}\n"))
                        .await;
                    stage.reporter = Some((reporter, tv));
                }
                stage.agent = Some(agent);
            }
        }
        stage
    }

    fn folder(&self) -> PathBuf {
        self.site.directory().join("reader")
    }

    /// The block with the names of this test in place of the reader's.
    fn written_for(&self, text: &str) -> String {
        let folder = self.folder().display().to_string();
        let state = self.site.directory().join("state").display().to_string();
        let app = &self.site.app;
        let commit = self.reporter.as_ref().map_or(&self.site, |(_, site)| site).repository.head();
        let replaced = [
            ("https://git.example.com/me/infra.git", self.site.server.url()),
            ("http://127.0.0.1:8484", "$DRIFTLESS_SERVER".to_owned()),
            // The server of the test speaks http, over which no token is sent.
            (" --token-file /etc/driftless/git-token", String::new()),
            ("pihole", format!("{app}-foreign-pihole")),
            (" blog ", format!(" {app}-blog ")),
            ("/etc/driftless", format!("{folder}/etc")),
            ("/var/lib/driftless", state),
            ("/srv/backup", format!("{folder}/backup")),
            ("/other/place", format!("{folder}/other")),
            ("/etc/ci", format!("{folder}/ci")),
            // The engine is that of other tests, too.
            ("docker ps -aq |", format!("docker ps -aq --filter name={app} |")),
            ("label=driftless.agent", format!("label=driftless.application={app}")),
            ("images -q driftless/helper", "images -q driftless/none".to_owned()),
            ("3f2a9c1", commit),
            ("\"$body\" URL", "\"$body\" \"$(driftless webhook url infra | head -n 1)\"".to_owned()),
        ];
        let mut text = text.to_owned();
        for (reader, test) in replaced {
            text = text.replace(reader, &test);
        }
        // `shop` as a word: `shop-web-1`, `app/shop`, not `workshop`.
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find("shop") {
            let (before, after) = (&rest[..at], &rest[at + 4..]);
            let is_letter = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
            out.push_str(before);
            let is_word = !is_letter(before.chars().next_back()) && !is_letter(after.chars().next());
            out.push_str(if is_word { app } else { "shop" });
            rest = after;
        }
        out + rest
    }

    /// Runs the blocks in the clone, one after the other in the same shell, as a reader does. Returns what went wrong.
    fn run(&self, page: &str, blocks: &[Block]) -> Result<(), String> {
        let mut script = format!(". {}/tests/e2e/guides.sh\n", env!("CARGO_MANIFEST_DIR"));
        for Block { line, text, .. } in blocks {
            writeln!(script, "block {page}:{line}\n{}", self.written_for(text)).unwrap();
        }
        let folder = self.folder();
        fs::create_dir_all(&folder).unwrap();
        let mut command = Command::new("timeout");
        command.args(["600", "bash", "-c", &script]).stdin(Stdio::null());
        command.current_dir(self.site.directory().join("work"));
        command
            .env_remove("DOCKER_HOST")
            .env("NO_COLOR", "1")
            .env("HOME", &folder)
            .env("REAL_HOME", std::env::var_os("HOME").unwrap_or_default())
            .env("APP", &self.site.app);
        command.env("PAGE", page).env("READER", &folder).env("PROGRAM", env!("CARGO_BIN_EXE_driftless"));
        command.env("ROOT", env!("CARGO_MANIFEST_DIR")).env("STATE", self.site.directory().join("state"));
        let (address, process) = match &self.agent {
            Some(agent) => (agent.address().to_owned(), agent.process().to_string()),
            None => (format!("127.0.0.1:{}", crate::harness::free_port()), String::new()),
        };
        command
            .env("DRIFTLESS_SERVER", format!("http://{address}"))
            .env("ADDRESS", &address)
            .env("AGENT", process);
        command.env("CONFIGURATION", self.site.directory().join("driftless.yaml"));
        command.env("FREE_PORT", crate::harness::free_port().to_string());
        let output = command.output().unwrap();
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Err(format!("{page}: {}\n{text}", output.status))
    }
}

async fn run_page(page: &str) {
    let todo: Vec<Block> = blocks(page).into_iter().filter(|block| block.mark.is_none()).collect();
    assert!(!todo.is_empty(), "{page} has no block to run");
    let stage = Stage::of(page).await;
    if let Err(error) = stage.run(page, &todo) {
        panic!("{error}");
    }
}

macro_rules! guides {
    ($($name:ident: $page:literal,)*) => {
        /// The pages whose blocks are run.
        const PAGES: &[&str] = &[$($page),*];
        $(
            #[tokio::test]
            async fn $name() {
                run_page($page).await;
            }
        )*
    };
}

guides! {
    commands_of_the_readme_run: "README.md",
    commands_of_access_run: "docs/access.md",
    commands_of_adoption_run: "docs/adoption.md",
    commands_of_api_run: "docs/api.md",
    commands_of_ci_run: "docs/ci.md",
    commands_of_configuration_run: "docs/configuration.md",
    commands_of_convert_run: "docs/convert.md",
    commands_of_filesystem_drift_run: "docs/filesystem-drift.md",
    commands_of_fleet_run: "docs/fleet.md",
    commands_of_images_run: "docs/images.md",
    commands_of_install_run: "docs/install.md",
    commands_of_kubectl_run: "docs/kubectl.md",
    commands_of_metrics_run: "docs/metrics.md",
    commands_of_migrate_run: "docs/migrate.md",
    commands_of_rollouts_run: "docs/rollouts.md",
    commands_of_settings_in_git_run: "docs/settings-in-git.md",
    commands_of_state_run: "docs/state.md",
    commands_of_webhooks_run: "docs/webhooks.md",
}
