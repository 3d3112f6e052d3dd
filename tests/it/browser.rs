//! The page in a real browser: Chromium, driven by WebDriver. `make browser` installs what is needed and runs this.
//!
//! `DRIFTLESS_SCREENSHOTS=FOLDER` also writes a picture of each page in both themes and two widths.

use std::{
    collections::BTreeMap,
    fs, io,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use driftless_agent::{Logs, RequestKind};
use driftless_config::Fleet;
use driftless_docker::{LogOptions, LogStream};
use driftless_fleet::HostReport;
use driftless_model::{
    Actor, ApiToken, AppName, Application, AuditEntry, AuditResult, AvailableImage, CanaryStatus,
    ConditionStatus, DriftAction, HealthStatus, ImageUpdateStatus, Outcome, RepositoryStatus, Scope,
    StatusCondition, SyncStatus, Timestamp, Until, UpdateMode, WaitStatus,
};
use driftless_store::Store;
use driftless_web::{Access, Token, router, serve};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    time::{Instant, sleep},
};

use crate::{
    columns, oidc,
    page::{many, scaled_wait},
    ports::free_port,
    sample::{self, LastWords, agent, answer, blog, crashing, not_in_git, shop},
};

/// Time for the browser to reach a state.
const WITHIN: Duration = Duration::from_secs(20);

const CONFIGURED: &str = "correct-horse-battery";

/// The rules of axe that a page must keep.
const AXE: &str = "const done = arguments[arguments.length - 1]; axe.run({runOnly: ['wcag2a', 'wcag2aa', 'best-practice']})\
.then((found) => done(found.violations.map((it) => `${it.id}: ${it.nodes.map((node) => node.html).join(' | ')}`)), \
(error) => done([String(error)]));";

/// One window of Chromium.
struct Browser {
    driver: Child,
    client: reqwest::Client,
    session: String,
    folder: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    async fn open(theme: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let driver = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver starts: `scripts/test-tools.sh browser` installs it");
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut browser = Self { driver, client, session: format!("http://127.0.0.1:{port}"), folder };
        let end = Instant::now() + WITHIN;
        while browser.get("/status").await.is_none_or(|status| status["ready"] != true) {
            assert!(Instant::now() < end, "chromedriver answers");
            sleep(Duration::from_millis(50)).await;
        }
        let profile = format!("--user-data-dir={}", browser.folder.path().display());
        let mut arguments =
            vec!["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900", &profile];
        if theme == "dark" {
            arguments.push("--blink-settings=preferredColorScheme=0");
        }
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}}});
        let opened = browser.post("/session", wanted).await;
        browser.session = format!("{}/session/{}", browser.session, opened["sessionId"].as_str().unwrap());
        browser
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.client.get(format!("{}{path}", self.session)).send().await.ok()?;
        let answer: Value = serde_json::from_slice(&answer.bytes().await.ok()?).ok()?;
        Some(answer["value"].clone())
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.client.post(format!("{}{path}", self.session)).body(body.to_string());
        let answer = request.send().await.unwrap().bytes().await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let value = answer["value"].clone();
        assert!(value.get("error").is_none(), "{path}: {value}");
        value
    }

    async fn visit(&self, url: &str) {
        self.post("/url", json!({"url": url})).await;
    }

    async fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", json!({"script": script, "args": []})).await
    }

    /// Waits until a script returns true.
    async fn until(&self, what: &str, script: &str) {
        let end = Instant::now() + WITHIN;
        while self.run(script).await != json!(true) {
            if Instant::now() >= end {
                panic!("{what}: {}", self.text().await);
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the page shows a text.
    async fn shows(&self, text: &str) {
        self.until(text, &format!("return document.body.innerText.includes({})", json!(text))).await;
    }

    async fn text(&self) -> String {
        self.run("return document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// Presses keys, as a person does.
    async fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()})))
            .collect();
        self.post("/actions", json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}))
            .await;
    }

    /// Asserts that the console has no error but those that are expected, and returns nothing else.
    async fn console_is_clean(&self, expected: &str) {
        let log = self.post("/se/log", json!({"type": "browser"})).await;
        let errors: Vec<&Value> = log
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["level"] == "SEVERE")
            .filter(|entry| expected.is_empty() || !entry["message"].as_str().unwrap().contains(expected))
            .collect();
        assert!(errors.is_empty(), "{errors:?}");
    }

    /// Asserts that axe finds no violation.
    async fn is_accessible(&self, page: &str) {
        let file =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        let axe = fs::read_to_string(file.join("test-tools/axe.min.js"))
            .expect("axe is there: `scripts/test-tools.sh browser` fetches it");
        self.run(&axe).await;
        let violations = self.post("/execute/async", json!({"script": AXE, "args": []})).await;
        assert_eq!(violations, json!([]), "{page}");
    }

    async fn picture(&self, name: &str) {
        let Some(folder) = std::env::var_os("DRIFTLESS_SCREENSHOTS") else { return };
        let ask = async |command: &str, parameters: Value| {
            self.post("/goog/cdp/execute", json!({"cmd": command, "params": parameters})).await
        };
        // All of the page, also what is below the window.
        let metrics = ask("Page.getLayoutMetrics", json!({})).await;
        let height = metrics["cssContentSize"]["height"].as_f64().unwrap().min(4000.0);
        let width = self.run("return innerWidth").await;
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        let picture =
            ask("Page.captureScreenshot", json!({"captureBeyondViewport": true, "clip": clip})).await;
        let bytes = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        fs::create_dir_all(&folder).unwrap();
        fs::write(PathBuf::from(folder).join(format!("{name}.png")), bytes).unwrap();
    }

    async fn size(&self, width: u32, height: u32) {
        let metrics = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params":
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}});
        self.post("/goog/cdp/execute", metrics).await;
    }

    /// Moves the focus with the tab key to the element of an id.
    async fn tab_to(&self, id: &str) {
        for _ in 0..30 {
            self.press("\u{e004}").await;
            if self.run("return document.activeElement.id").await == id {
                return;
            }
        }
        panic!("the tab key does not lead to {id}: {}", self.text().await);
    }

    /// Asserts that the page fits into the window, and so do its tables in a narrow one.
    async fn fits(&self, page: &str, width: u32) {
        let overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(self.run(overflow).await, 0, "{page} at {width} px scrolls to the side");
        let wide = "return [...document.querySelectorAll('.scroll')].filter((it) => it.scrollWidth > it.clientWidth)\
                    .map((it) => it.innerText)";
        assert_eq!(self.run(wide).await, json!([]), "tables of {page} at {width} px scroll to the side");
    }
}

/// The text that ends an output.
const END: &str = "the end";

/// The text that breaks an output off.
const BREAK: &str = "a break";

/// The output of a container that goes on after its last words: lines that the test sends.
#[derive(Clone)]
struct LiveOutput(tokio::sync::broadcast::Sender<String>);

impl Logs for LiveOutput {
    fn open<'a>(
        &'a self,
        container: &'a str,
        options: &'a LogOptions,
    ) -> Pin<Box<dyn Future<Output = Result<LogStream, String>> + Send + 'a>> {
        if !options.follow {
            return LastWords.open(container, options);
        }
        let lines = futures_util::stream::unfold(self.0.subscribe(), async |mut lines| {
            let line: String = lines.recv().await.ok().filter(|line| line != END)?;
            let part = if line == BREAK { Err(io::Error::other(BREAK)) } else { Ok(line.into()) };
            Some((part, lines))
        });
        Box::pin(async move {
            let before = LastWords.open(container, options).await?;
            Ok(Box::pin(before.chain(lines)) as LogStream)
        })
    }
}

/// A server with an agent's side behind it.
struct Served {
    address: SocketAddr,
    store: Store,
    applications: tokio::sync::watch::Sender<driftless_agent::Applications>,
    repositories: tokio::sync::watch::Sender<driftless_agent::Repositories>,
    output: LiveOutput,
    /// Each open stream of a page receives these.
    events: tokio::sync::broadcast::Sender<driftless_model::Event>,
    seen: Arc<std::sync::Mutex<Vec<(AppName, RequestKind)>>>,
}

async fn served(applications: Vec<Application>, access: Access) -> Served {
    serve_agent(agent(applications), access).await
}

async fn serve_agent(agent: sample::Agent, access: Access) -> Served {
    let sample::Agent { handle, store, inbox } = agent;
    let (repositories, output) =
        (inbox.repositories.clone(), LiveOutput(tokio::sync::broadcast::channel(8).0));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (applications, events) = (inbox.applications.clone(), inbox.events.clone());
    let seen = Arc::default();
    tokio::spawn(answer(inbox, Arc::clone(&seen)));
    let handle = handle.with_logs(Arc::new(output.clone()));
    tokio::spawn(serve(listener, router(handle, store.clone(), access), std::future::pending()));
    Served { address, store, applications, repositories, output, events, seen }
}

impl Served {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Stores a revision of `shop` that has succeeded, and one that runs. Returns the number of the first one.
    fn begin_revisions(&self) -> u64 {
        let first = self.begin_revision("shop");
        self.store.finish_revision(&"shop".into(), first, &Outcome::Succeeded, &BTreeMap::new()).unwrap();
        let next = self.begin_revision("shop-2");
        let reason = "ProgressDeadlineExceeded: web made no progress in 600 s".to_owned();
        self.store
            .finish_revision(&"shop".into(), next, &Outcome::Failed { reason }, &BTreeMap::new())
            .unwrap();
        self.begin_revision("shop-3");
        first
    }

    fn begin_revision(&self, project: &str) -> u64 {
        let compose =
            format!(r#"{{"app":"shop","format":"compose","project":"{project}","workloads":{{}}}}"#);
        let stack: driftless_model::Stack = serde_json::from_str(&compose).unwrap();
        let revision = self.store.begin_revision(
            &driftless_store::NewRevision {
                app: "shop".into(),
                commit: sample::commit('c', "Serve the winter catalogue"),
                reference: "main".to_owned(),
                cause: driftless_model::Cause::Commit,
                changes: vec!["web: image".to_owned()],
                rollback_of: None,
                actor: None,
            },
            &stack,
        );
        revision.unwrap().number
    }

    fn publish(&self, applications: impl IntoIterator<Item = Application>) {
        let applications = applications.into_iter().map(|it| (it.name.clone(), Arc::new(it))).collect();
        self.applications.send_replace(Arc::new(applications));
    }
}

/// An agent, which is a collector too, with data on each of its pages.
async fn served_with_everything() -> Served {
    let mut gone = shop();
    gone.name = "gone".into();
    gone.status.conditions.push(not_in_git());
    gone.status.drift = blog().status.drift;
    gone.status.drift[0].found = "a long value of a file ".repeat(20);
    gone.status.findings = (0..8).flat_map(|_| blog().status.findings).collect();
    let mut scaled = shop();
    scaled.status.waits = vec![scaled_wait()];
    let agent = agent([scaled, blog(), crashing(), gone]);
    agent
        .inbox
        .repositories
        .send_replace(Arc::new(vec![RepositoryStatus { name: "infra".to_owned(), ..many(5).1.remove(0) }]));
    for id in ["a", "b", "c"] {
        agent.store.accept_delivery("infra", &sample::delivery(id)).unwrap();
    }
    for (app, reason, message) in [
        ("shop", "Scaled", "2 instances until 2026-01-01T02:00:00Z, instead of the number in Git"),
        ("blog", "BackOff", "registry.example.com/blog:2.0.0: manifest unknown, next try in 40s"),
        ("blog", "BackOff", "registry.example.com/blog:2.0.0: manifest unknown, next try in 80s"),
    ] {
        agent.happens(sample::event(app, reason, message));
    }
    let hour = Duration::from_hours(1);
    agent.store.append_audit(columns::audit_entry(), hour).unwrap();
    let accepted =
        AuditEntry { result: AuditResult::Accepted, message: String::new(), ..columns::audit_entry() };
    agent.store.append_audit(AuditEntry { app: Some("shop".into()), ..accepted }, hour).unwrap();
    let handle = agent.handle.clone().with_fleet(Fleet { accept: true, ..Fleet::default() });
    let served = serve_agent(sample::Agent { handle, ..agent }, Access::loopback()).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let report = columns::host_report();
    let well = HostReport { host: "nas-2".to_owned(), applications: Vec::new(), ..report.clone() };
    for report in [report, well] {
        let request = client.put(served.url(&format!("/api/v1/fleet/hosts/{}", report.host)));
        let answer = request.body(serde_json::to_vec(&report).unwrap()).send().await.unwrap();
        assert_eq!(answer.status(), 204);
    }
    served
}

fn drifted() -> Application {
    let mut application = shop();
    application.status.sync = SyncStatus::OutOfSync;
    application.status.health = HealthStatus::Progressing;
    application.status.message = "web.2 was stopped by somebody".to_owned();
    application.status.drift = blog().status.drift;
    application.status.drift[0].action = DriftAction::Heal;
    application
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn changes_and_output_appear_without_a_reload() {
    let served = served(vec![shop(), blog()], Access::loopback()).await;
    let browser = Browser::open("light").await;
    browser.visit(&served.url("/")).await;
    browser.shows("live").await;
    browser.run("document.querySelector('a[href=\"applications/shop\"]').focus(); window.kept = true").await;
    served.publish([drifted(), blog()]);
    browser.shows("web.2 was stopped by somebody").await;
    let focus =
        "return document.activeElement.getAttribute('href') === 'applications/shop' && window.kept === true";
    browser.until("the focus stays on the row", focus).await;
    served.publish([shop(), blog()]);
    let healed = "return !document.body.innerText.includes('was stopped by somebody') \
                  && document.getElementById('r-infra').contains(document.getElementById('a-shop'))";
    browser.until("the row is calm again", healed).await;

    browser.visit(&served.url("/applications/shop")).await;
    browser.shows("live").await;
    served.publish([drifted(), blog()]);
    browser.shows("being healed").await;
    served.publish([shop(), blog()]);
    browser.until("the drift is gone", "return !document.body.innerText.includes('being healed')").await;

    // The page of the repository, with a link in focus while its error comes and goes.
    browser.visit(&served.url("/repositories/infra")).await;
    browser.shows("live").await;
    let link = "document.querySelector('#applications a')";
    browser.run(&format!("{link}.focus(); window.kept = true")).await;
    let mut repository = RepositoryStatus { name: "infra".to_owned(), ..many(1).1.remove(0) };
    repository.message = "could not fetch: the forge refuses the key".to_owned();
    served.repositories.send_replace(Arc::new(vec![repository.clone()]));
    browser.shows("the forge refuses the key").await;
    served.publish([drifted(), blog()]);
    browser
        .until(
            "the badge of an application changes",
            "return document.getElementById('applications').innerText\
        .includes('Progressing')",
        )
        .await;
    repository.message.clear();
    served.repositories.send_replace(Arc::new(vec![repository]));
    let calm = format!(
        "return !document.body.innerText.includes('refuses') && document.activeElement === {link} \
                        && window.kept === true"
    );
    browser.until("the error is gone and the focus stays", &calm).await;

    // The output of a container, which goes on.
    browser.visit(&served.url("/applications/shop/logs/shop-web-1")).await;
    browser.shows("password of <orders> was refused").await;
    browser.run("window.kept = true").await;
    browser.press("f").await;
    browser.shows("following").await;
    wait_for_reader(&served.output).await;
    served.output.0.send("GET / 200\nGET /ca".to_owned()).unwrap();
    served.output.0.send("rt 500\n".to_owned()).unwrap();
    let lines =
        "return [...document.querySelectorAll('#log > span')].map((it) => it.innerText.trim()).slice(2)";
    browser
        .until(
            "both lines are there",
            &format!(
                "return JSON.stringify((() => {{ {lines} }})()) \
        === '[\"GET / 200\",\"GET /cart 500\"]' && window.kept === true"
            ),
        )
        .await;
    // The search hides new lines too.
    browser.press("/cart").await;
    served.output.0.send("GET / 404\nGET /cart 200\n".to_owned()).unwrap();
    browser
        .until(
            "one new line is shown",
            "const log = document.getElementById('log').innerText; \
        return log.includes('cart 200') && !log.includes('404')",
        )
        .await;
    browser.press("x").await;
    browser.shows("none of these 6 lines has this text").await;
    browser.press("\u{e003}").await;
    browser
        .until(
            "the lines with the text are back",
            "return document.getElementById('log-state').innerText === 'following'",
        )
        .await;
    // The last line has no end, and the colours of a terminal.
    served.output.0.send("\u{1b}[1mGET\u{1b}[0m /cart 201".to_owned()).unwrap();
    served.output.0.send(END.to_owned()).unwrap();
    browser.shows("GET /cart 201").await;
    browser.shows("the output has ended").await;
    // To follow again shows each line once.
    let count = "document.querySelectorAll('#log > span').length";
    assert_eq!(browser.run(&format!("return {count}")).await, 7);
    browser.run("const box = document.getElementById('follow'); box.click(); box.click()").await;
    browser.until("the lines that are there", &format!("return {count} === 2")).await;
    browser.console_is_clean("").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn following_goes_on_after_an_error_and_a_restart() {
    let served = served(vec![shop()], Access::loopback()).await;
    let browser = Browser::open("light").await;
    browser.visit(&served.url("/applications/shop/logs/shop-web-1")).await;
    let fails_once = "const real = window.fetch; window.fetch = () => { window.fetch = real; \
                      return Promise.reject(new TypeError('no network')); }";
    browser.run(fails_once).await;
    browser.press("f").await;
    browser.shows("no network; trying again").await;
    browser.shows("following").await;
    wait_for_reader(&served.output).await;
    let lines =
        "return [...document.querySelectorAll('#log > span')].map((it) => it.innerText.trim()).slice(2)";
    let is_checked = "return document.getElementById('follow').checked";
    let again = "; trying again";
    served.output.0.send("same\nsame\n".to_owned()).unwrap();
    browser.until("equal lines are there", &format!("{lines}.length === 2")).await;

    // After a break, the lines of the run come again, and a proxy that answers in between changes nothing.
    let answers = "const real = window.fetch; window.left = ['Not found', '<html>']; window.fetch = (...all) => { \
                   const body = window.left.shift(); if (body === undefined) return real(...all); \
                   const [status, type] = body === '<html>' ? [200, 'text/html'] : [404, 'text/plain']; \
                   return Promise.resolve(new Response(body, {status, headers: {'content-type': type}})); }";
    browser.run(answers).await;
    served.output.0.send(BREAK.to_owned()).unwrap();
    browser.shows(&format!("the agent answers 404{again}")).await;
    browser.shows(&format!("no output but a page came{again}")).await;
    assert_eq!(browser.run(lines).await, json!(["same", "same"]));
    wait_for_reader(&served.output).await;
    served.output.0.send("same\nsame\nsame\n".to_owned()).unwrap();
    browser.until("no line is lost", &format!("{lines}.length === 3")).await;

    // The output of a run that has ended is not asked for again.
    let counted = "const real = window.fetch; window.asked = 0; \
                   window.fetch = (...all) => { window.asked++; return real(...all); }";
    browser.run(counted).await;
    served.output.0.send(END.to_owned()).unwrap();
    browser.shows("the output has ended").await;
    let mut restarted = shop();
    for workload in Arc::make_mut(&mut restarted.status.workloads).values_mut() {
        workload.instances[0].started = Some(Timestamp(1_800_000_000_000));
    }
    served.publish([restarted]);
    wait_for_reader(&served.output).await;
    served.output.0.send("second run\n".to_owned()).unwrap();
    browser.shows("second run").await;
    let before = ["connecting to db:5432", "fatal: password of <orders> was refused"];
    let mark = "— the container was started again —";
    let wanted = json!(["same", "same", "same", mark, before[0], before[1], "second run"]);
    assert_eq!(browser.run(lines).await, wanted);
    assert_eq!(browser.run("return window.asked").await, 1);

    // The lines stay without the container.
    served.publish([blog()]);
    browser.shows("there is no application `shop`").await;
    served.output.0.send(END.to_owned()).unwrap();
    browser.shows("the output has ended").await;
    assert_eq!(browser.run(lines).await, wanted);
    let forbidden = "window.fetch = () => Promise.resolve(new Response('', {status: 403})); \
                     const box = document.getElementById('follow'); box.click(); box.click()";
    browser.run(forbidden).await;
    browser.shows("the agent answers 403").await;
    assert_eq!(browser.run(is_checked).await, false);
    browser.console_is_clean("ERR_INCOMPLETE_CHUNKED_ENCODING").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn output_before_a_restart_stays_if_the_page_learns_of_it_late() {
    let served = served(vec![shop()], Access::loopback()).await;
    let browser = Browser::open("light").await;
    browser.visit(&served.url("/applications/shop/logs/shop-web-1")).await;
    browser.press("f").await;
    browser.shows("following").await;
    wait_for_reader(&served.output).await;
    served.output.0.send("the crash\n".to_owned()).unwrap();
    browser.shows("the crash").await;
    let next = "window.asked = 0; window.fetch = () => { window.asked++; \
                return Promise.resolve(new Response('second run\\n', {headers: \
                {'content-type': 'text/plain', 'driftless-started': '1800000000000'}})); }";
    browser.run(next).await;
    served.output.0.send(BREAK.to_owned()).unwrap();
    browser.shows("the output has ended").await;
    let lines =
        "return [...document.querySelectorAll('#log > span')].map((it) => it.innerText.trim()).slice(2)";
    let wanted = json!(["the crash", "— the container was started again —", "second run"]);
    assert_eq!(browser.run(lines).await, wanted);
    // The page learns of the run that it has shown.
    let mut restarted = shop();
    for workload in Arc::make_mut(&mut restarted.status.workloads).values_mut() {
        workload.instances[0].started = Some(Timestamp(1_800_000_000_000));
    }
    served.publish([restarted]);
    let is_known = "return document.getElementById('run').dataset.started === '1800000000000'";
    browser.until("the page has the start", is_known).await;
    assert_eq!(browser.run(lines).await, wanted);
    assert_eq!(browser.run("return window.asked").await, 1);
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn silence_of_the_agent_is_shown_and_ends() {
    let served = served(vec![shop()], Access::loopback()).await;
    let browser = Browser::open("light").await;
    browser.visit(&served.url("/")).await;
    browser.shows("live").await;
    // A connection over which nothing comes, and a minute that has passed.
    let silent = "window.real = window.EventSource; const now = Date.now; \
        window.EventSource = class { addEventListener() {} close() {} }; \
        Date.now = () => now() + 60000";
    browser.run(silent).await;
    browser.shows("no answer since").await;
    let is_utc =
        r"return /^no answer since \d\d:\d\d:\d\d UTC$/.test(document.getElementById('fresh').innerText)";
    browser.until("the time has a zone", is_utc).await;
    browser
        .run("window.EventSource = window.real; const now = Date.now; Date.now = () => now() + 60000")
        .await;
    browser.shows("live").await;
    browser.console_is_clean("").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn tapped_time_is_the_exact_one_and_back() {
    let served = served(vec![shop()], Access::loopback()).await;
    let browser = Browser::open("light").await;
    browser.visit(&served.url("/applications/shop")).await;
    browser.shows("live").await;
    let time = "document.querySelector('#why time')";
    let is_exact = format!("return {time}.innerText === {time}.title");
    assert_eq!(browser.run(&is_exact).await, false);
    browser.run(&format!("{time}.click()")).await;
    assert_eq!(browser.run(&is_exact).await, true);
    browser.run(&format!("{time}.click()")).await;
    assert_eq!(browser.run(&is_exact).await, false);
    browser.console_is_clean("").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn end_of_a_session_at_the_proxy_loads_the_page_again() {
    let served = served(vec![shop()], Access::loopback()).await;
    let browser = Browser::open("light").await;
    browser.visit(&served.url("/")).await;
    browser.shows("live").await;
    // A proxy that sends each request without a session to its own page, a minute later.
    let ended = "window.kept = true; const now = Date.now; Date.now = () => now() + 60000; \
        performance.now = () => 120000; \
        window.fetch = async (place, options) => { \
            if (options.redirect !== 'manual') throw new TypeError('it is of another host'); \
            return { type: 'opaqueredirect', status: 0, ok: false, text: async () => '' }; }; \
        window.EventSource = class { static CLOSED = 2; readyState = 2; close() {} \
            addEventListener(kind, call) { if (kind === 'error') setTimeout(call); } }";
    browser.run(ended).await;
    let loaded = "return window.kept === undefined && document.body.innerText.includes('live')";
    browser.until("the page is loaded again", loaded).await;
    browser.console_is_clean("").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn hidden_tab_has_no_stream_until_it_is_shown() {
    let served = served(vec![shop()], Access::loopback()).await;
    let browser = Browser::open("light").await;
    browser.visit(&served.url("/")).await;
    browser.shows("live").await;
    browser.run("window.kept = true").await;
    let hide = async |is_hidden: bool| {
        let script = format!(
            "Object.defineProperty(document, 'hidden', {{value: {is_hidden}, configurable: true}}); \
             document.dispatchEvent(new Event('visibilitychange'))"
        );
        browser.run(&script).await;
    };
    let streams = async |count: usize| {
        let end = Instant::now() + WITHIN;
        while served.events.receiver_count() != count {
            assert!(Instant::now() < end, "{} streams instead of {count}", served.events.receiver_count());
            sleep(Duration::from_millis(20)).await;
        }
    };
    streams(1).await;
    hide(true).await;
    streams(0).await;
    served.publish([drifted()]);
    // The watchdog opens none in a hidden tab, however late it is.
    let late = "const now = Date.now; Date.now = () => now() + 60000; \
        window.seconds = 0; setInterval(() => { window.seconds += 1; }, 1000)";
    browser.run(late).await;
    browser.until("the watchdog has looked", "return window.seconds >= 2").await;
    streams(0).await;
    hide(false).await;
    browser
        .until(
            "the change is shown",
            "return window.kept === true && \
        document.body.innerText.includes('web.2 was stopped by somebody')",
        )
        .await;
    streams(1).await;
    browser.console_is_clean("").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn page_of_a_removed_application_says_so() {
    let served = served(vec![shop(), blog()], Access::loopback()).await;
    let browser = Browser::open("light").await;
    served.store.append_event(sample::event("shop", "Removed", "remove container shop-web-1")).unwrap();
    browser.visit(&served.url("/applications/shop?did=remove")).await;
    browser.shows("live").await;
    served.publish([blog()]);
    browser.shows("shop is gone: it was removed or forgotten").await;
    browser.console_is_clean("404").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn sentence_after_an_action_ends_with_the_visit() {
    let served = served(vec![shop()], Access::loopback()).await;
    let browser = Browser::open("light").await;
    browser.visit(&served.url("/applications/shop?did=rollback")).await;
    browser.shows("The rollback was accepted").await;
    browser.shows("live").await;
    assert_eq!(browser.run("return location.search").await, "");
    // The change that the action itself makes.
    browser.run("performance.now = () => 9000").await;
    served.publish([drifted()]);
    browser.shows("being healed").await;
    browser.shows("The rollback was accepted").await;
    browser.run("performance.now = () => 11000").await;
    served.publish([shop()]);
    browser.until("the sentence is gone", "return document.getElementById('done') === null").await;
    browser.console_is_clean("").await;
}

/// Waits until somebody follows the output.
async fn wait_for_reader(output: &LiveOutput) {
    let end = Instant::now() + WITHIN;
    while output.0.receiver_count() == 0 {
        assert!(Instant::now() < end, "the page follows the output");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn rollback_works_by_keyboard_alone() {
    let served = served(vec![shop(), blog()], Access::loopback()).await;
    let revision = served.begin_revisions();
    let browser = Browser::open("light").await;
    browser.visit(&served.url("/")).await;
    browser.press("?").await;
    browser.until("the list of keys opens", "return document.getElementById('keys').open").await;
    browser.shows("next and previous row").await;
    browser.press("\u{e00c}").await;
    browser.until("Escape closes it", "return !document.getElementById('keys').open").await;
    browser.press("jj\u{e007}").await;
    browser.shows("Git says").await;
    browser.press("b").await;
    browser.shows(&format!("To revision #{revision}")).await;
    browser.shows("Until").await;
    assert!(
        served.seen.lock().unwrap().iter().all(|it| matches!(it.1, RequestKind::Drift(_))),
        "nothing is done yet"
    );
    browser.tab_to("reason").await;
    browser.press("orders fail").await;
    // The next field is a list: the arrow chooses its second entry.
    browser.tab_to("until").await;
    browser.press("\u{e015}").await;
    browser.press("\u{e004}\u{e007}").await;
    browser.shows("The rollback was accepted").await;
    let asked = served.seen.lock().unwrap().last().cloned().unwrap();
    let RequestKind::Rollback(rollback) = asked.1 else { panic!("{asked:?}") };
    assert_eq!(rollback.to, Some(revision.to_string()));
    assert_eq!(rollback.reason, "orders fail");
    assert_eq!(rollback.until, Until::NextCommit);
    browser.press("a").await;
    browser.shows("orders fail").await;
    browser.console_is_clean("").await;
}

/// An application in which every action but those of a removed one makes sense.
fn everything_at_once() -> Application {
    let mut application = drifted();
    application.spec.policy.self_heal = false;
    let status = &mut application.status;
    let waiting = ["NotAdopted", "PruneHeld", "Canary"];
    let waiting = waiting.map(|reason| WaitStatus { reason: reason.to_owned(), ..scaled_wait() });
    status.waits = waiting.into_iter().chain([scaled_wait()]).collect();
    let rewritten = StatusCondition {
        kind: "Trusted".to_owned(),
        status: ConditionStatus::False,
        reason: "HistoryRewritten".to_owned(),
        message: "the commit 1234567 is refused".to_owned(),
        ..status.conditions[0].clone()
    };
    let failed = StatusCondition { kind: "CommitFailed".to_owned(), ..status.conditions[0].clone() };
    status.conditions.extend([rewritten, failed]);
    let web = Arc::make_mut(&mut status.workloads).values_mut().next().unwrap();
    web.canary = Some(CanaryStatus { step: 1, steps: 2, instances: 1, paused: true, until: None });
    status.images = Arc::new(vec![ImageUpdateStatus {
        image: "shop/web:1.4".to_owned(),
        mode: UpdateMode::Report,
        resolved: None,
        available: Some(AvailableImage { image: "shop/web:1.4.3".to_owned(), since: Timestamp(1) }),
        due: None,
        checked: None,
        failure: None,
        note: String::new(),
    }]);
    application
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn actions_ask_first_and_are_done_by_key() {
    let mut gone = Application { name: "gone".into(), ..shop() };
    gone.status.conditions.push(not_in_git());
    let served = served(vec![everything_at_once(), gone], Access::loopback()).await;
    let browser = Browser::open("light").await;
    let is_question = |kind: &RequestKind| {
        matches!(kind, RequestKind::Plan | RequestKind::PlanAfter(_) | RequestKind::Drift(_))
    };
    let asked = || {
        let seen = served.seen.lock().unwrap();
        seen.iter()
            .filter(|it| !is_question(&it.1))
            .map(|it| format!("{} {:?}", it.0, it.1))
            .collect::<Vec<_>>()
    };
    // The page, the key, the title of the page that asks, the sentence after it, and the request.
    let cases = [
        ("shop", "i", "Adopt shop", "were adopted", "shop Adopt"),
        ("shop", "c", "Confirm prune shop", "The removal was confirmed", "shop Prune"),
        ("shop", "v", "Promote shop", "The canary was promoted", "shop Promote(Promotion"),
        ("shop", "q", "Abort canary shop", "goes back to the last revision", "shop Abort"),
        ("shop", "e", "Retry shop", "tried once more", "shop Retry"),
        (
            "shop",
            "w",
            "Accept rewritten history shop",
            "The rewritten history was accepted",
            "shop AcceptRewrite(Some(\"the commit 1234567 is refused\"))",
        ),
        ("shop", "m", "Update images shop", "newer images are being deployed", "shop UpdateImages"),
        ("shop", "h", "Heal once shop", "The drift is undone once", "shop Heal"),
        ("shop", "s", "Sync shop", "The sync was accepted", "shop Sync"),
        ("gone", "x", "Remove gone", "The removal was accepted", "gone Remove(KeepVolumes)"),
        ("gone", "g", "Forget gone", "applications", "gone Forget"),
    ];
    for (app, key, title, done, request) in cases {
        browser.visit(&served.url(&format!("/applications/{app}"))).await;
        browser.shows("Git says").await;
        let before = asked();
        browser.press(key).await;
        browser
            .until(
                title,
                &format!("return document.querySelector('h1').innerText === {}", json!(format!("{title}?"))),
            )
            .await;
        assert_eq!(asked(), before, "{title}: nothing is done yet");
        browser.run("document.querySelector('main form button').focus()").await;
        browser.press("\u{e007}").await;
        let is_left =
            format!("return document.querySelector('h1').innerText !== {}", json!(format!("{title}?")));
        browser.until(&format!("{title} leads back"), &is_left).await;
        browser.shows(done).await;
        let after = asked();
        assert_eq!(after.len(), before.len() + 1, "{after:?}");
        assert!(after.last().unwrap().starts_with(request), "{title}: {after:?}");
    }
    // Suspending is refused by this agent, and the page says why.
    browser.visit(&served.url("/applications/shop")).await;
    browser.press("u").await;
    browser.shows("Suspend shop").await;
    browser.run("document.querySelector('main form button').focus()").await;
    browser.press("\u{e007}").await;
    browser.shows("is suspended already").await;
    browser.visit(&served.url("/audit")).await;
    for word in ["promote", "adopt", "prune", "abort", "forget", "remove", "retry", "heal", "refused"] {
        browser.shows(word).await;
    }
    browser.console_is_clean("40").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn wrong_token_is_refused_and_readers_see_no_buttons() {
    let served = served(vec![shop(), blog()], Access::token(Token::new(CONFIGURED).unwrap())).await;
    let token = ApiToken {
        name: "reader".to_owned(),
        scopes: vec![Scope::Read],
        created: Timestamp(1),
        created_by: Actor::agent(),
        expires: None,
    };
    // The router reads the tokens when it starts, so this one is created by the API.
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let body = format!(r#"{{"name": "{}", "scopes": ["read"]}}"#, token.name);
    let created =
        client.post(served.url("/api/v1/tokens")).bearer_auth(CONFIGURED).body(body).send().await.unwrap();
    let created: Value = serde_json::from_slice(&created.bytes().await.unwrap()).unwrap();
    let browser = Browser::open("light").await;
    browser.visit(&served.url("/applications/shop")).await;
    browser.shows("Token").await;
    browser.picture("login-light-1280").await;
    browser.is_accessible("login").await;
    browser.press("wrong-wrong-wrong-wrong\u{e007}").await;
    browser.shows("This token is wrong.").await;
    browser.run("document.getElementById('token').focus()").await;
    browser.press(&format!("{}\u{e007}", created["secret"].as_str().unwrap())).await;
    browser.shows("Git says").await;
    assert_eq!(browser.run("return location.pathname").await, "/applications/shop");
    assert_eq!(browser.run("return document.cookie").await, "", "no script reads the cookie");
    let buttons =
        browser.run("return [...document.querySelectorAll('main .button')].map((it) => it.innerText)").await;
    let buttons: Vec<&str> = buttons.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert!(
        buttons.contains(&"Plan") && !buttons.iter().any(|it| ["Sync", "Suspend", "Roll back"].contains(it)),
        "{buttons:?}"
    );
    let forced = "const done = arguments[0]; fetch('shop/sync', {method: 'POST'}).then((answer) => done(answer.status))";
    let status = browser.post("/execute/async", json!({"script": forced, "args": []})).await;
    assert_eq!(status, 403);
    browser.visit(&served.url("/applications/shop/sync")).await;
    browser.shows("Not allowed").await;
    browser.console_is_clean("40").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn search_and_filter_stay_right_while_the_page_changes() {
    let served = served(vec![shop(), blog()], Access::loopback()).await;
    let browser = Browser::open("light").await;
    let is_shown = "document.getElementById('a-shop')?.offsetHeight > 0";
    // The name of the repository is in no row of an application that is well.
    browser.visit(&served.url("/?q=infra")).await;
    browser.shows("live").await;
    let named = |name: &str| Application { name: name.into(), ..shop() };
    served.publish([shop(), blog(), named("second")]);
    browser.shows("second").await;
    browser.until("the row stays", &format!("return {is_shown}")).await;
    browser.visit(&served.url("/")).await;
    browser.shows("live").await;
    browser.press("/infra").await;
    served.publish([shop(), blog(), named("third")]);
    browser.shows("third").await;
    browser.until("the row matches by its repository", &format!("return {is_shown}")).await;
    browser.press("x").await;
    browser.until("no row matches", &format!("return !({is_shown})")).await;

    // The last row of a repository leaves a filtered page.
    browser.visit(&served.url("/?health=Healthy")).await;
    browser.shows("live").await;
    browser.run("window.kept = true").await;
    served.publish([drifted(), blog()]);
    let is_gone = "return document.getElementById('a-shop') === null && document.getElementById('h-infra') === null \
                   && window.kept === true";
    browser.until("the row and its head are gone", is_gone).await;
    served.publish([shop(), blog()]);
    browser.until("the row is back", &format!("return {is_shown} && window.kept === true")).await;
    browser.console_is_clean("").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn fleet_pages_follow_the_reports() {
    let served = served_with_everything().await;
    let browser = Browser::open("light").await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let report = async |report: &HostReport| {
        let request = client.put(served.url(&format!("/api/v1/fleet/hosts/{}", report.host)));
        let answer = request.body(serde_json::to_vec(report).unwrap()).send().await.unwrap();
        assert_eq!(answer.status(), 204);
    };
    let new = HostReport { host: "nas-3".to_owned(), applications: Vec::new(), ..columns::host_report() };
    browser.visit(&served.url("/fleet")).await;
    browser.shows("live").await;
    browser.run("window.kept = true").await;
    report(&new).await;
    browser
        .until("the host appears", "return document.getElementById('h-nas-3') !== null && window.kept")
        .await;
    browser.visit(&served.url("/fleet/nas-3")).await;
    browser.shows("It has no application.").await;
    browser.shows("live").await;
    browser.run("window.kept = true").await;
    report(&HostReport { applications: columns::host_report().applications, ..new }).await;
    let has_rows = "return document.querySelector('#applications tr[id^=a-]') !== null \
                    && document.getElementById('no-application') === null && window.kept === true";
    browser.until("its applications appear", has_rows).await;
    browser.console_is_clean("").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn overview_of_500_applications_filters_at_once() {
    let (applications, _) = many(500);
    let served = served(applications, Access::loopback()).await;
    let browser = Browser::open("light").await;
    browser.visit(&served.url("/")).await;
    browser.shows("500 applications").await;
    browser.size(1280, 1200).await;
    let seen = "return [...document.querySelectorAll('tr[id^=a-]')].filter((row) => \
                row.getBoundingClientRect().bottom <= innerHeight && row.offsetHeight > 0).length";
    let rows = browser.run(seen).await.as_u64().unwrap();
    assert!(rows >= 50, "{rows} whole rows on a screen of 1280 x 1200 pixels");
    browser.picture("overview-many-light-1280").await;
    browser.press("/application-123").await;
    let visible = "return [...document.querySelectorAll('tr[id^=a-]')].filter((row) => row.offsetHeight > 0).length === 1";
    browser.until("one row is left", visible).await;
    browser.picture("overview-500-light-1280").await;
    browser.console_is_clean("").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn pages_are_accessible_in_both_themes() {
    let served = served_with_everything().await;
    let revision = format!("/applications/shop/revisions/{}", served.begin_revisions() + 1);
    for theme in ["light", "dark"] {
        let browser = Browser::open(theme).await;
        for (name, path) in [
            ("overview", "/"),
            ("application", "/applications/blog"),
            ("calm", "/applications/shop"),
            ("plan", "/applications/blog/plan"),
            ("diff", "/applications/blog/diff"),
            ("sync", "/applications/blog/sync"),
            ("crash", "/applications/crash"),
            ("gone", "/applications/gone"),
            ("forget", "/applications/gone/forget"),
            ("remove", "/applications/gone/remove"),
            ("rollback", "/applications/shop/rollback"),
            ("restart", "/applications/shop/restart?workload=web"),
            ("scale", "/applications/shop/scale?workload=web"),
            ("reset-scale", "/applications/shop/reset-scale?workload=web"),
            ("revision", revision.as_str()),
            ("logs", "/applications/crash/logs/shop-web-1"),
            ("repository", "/repositories/infra"),
            ("fleet", "/fleet"),
            ("host", "/fleet/nas-in-the-cellar-of-the-old-house"),
            ("other-host", "/?host=nas-in-the-cellar-of-the-old-house"),
            ("audit", "/audit"),
            ("missing", "/applications/nothing"),
        ] {
            for width in [390, 1280] {
                browser.size(width, 900).await;
                browser.visit(&served.url(path)).await;
                browser.fits(name, width).await;
                browser.picture(&format!("{name}-{theme}-{width}")).await;
                // Each theme and each width once: axe takes most of the time.
                if (theme == "light") == (width == 390) {
                    browser.is_accessible(&format!("{name}, {theme}, {width}")).await;
                }
            }
        }
        for width in [360, 2560] {
            browser.size(width, 900).await;
            browser.visit(&served.url("/applications/blog")).await;
            browser.fits("application", width).await;
        }
        browser.console_is_clean("404").await;
    }
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn long_words_leave_all_columns_in_the_window() {
    let mut long = Application { name: AppName("a-long-name".repeat(5)), ..blog() };
    let workloads = Arc::make_mut(&mut long.status.workloads);
    let mut web = workloads.values().next().unwrap().clone();
    for instance in &mut web.instances {
        instance.name = "a-container".repeat(11);
    }
    workloads.insert("a-workload".repeat(6).as_str().into(), web);
    let name = long.name.clone();
    let served = served(vec![long, shop()], Access::loopback()).await;
    let word = |id: char| sample::commit(id, &"w".repeat(200));
    let repository = RepositoryStatus { name: "infra".to_owned(), ..many(1).1.remove(0) };
    let repository = RepositoryStatus { commit: Some(word('d')), ..repository };
    served.repositories.send_replace(Arc::new(vec![repository]));
    let stack = format!(r#"{{"app":"{name}","format":"compose","project":"a","workloads":{{}}}}"#);
    for id in ['e', 'f'] {
        let revision = driftless_store::NewRevision {
            app: name.clone(),
            commit: word(id),
            reference: "main".to_owned(),
            cause: driftless_model::Cause::Commit,
            changes: Vec::new(),
            rollback_of: None,
            actor: None,
        };
        served.store.begin_revision(&revision, &serde_json::from_str(&stack).unwrap()).unwrap();
    }
    let browser = Browser::open("light").await;
    for width in [390, 768, 1024, 1280] {
        browser.size(width, 900).await;
        for path in ["/".to_owned(), format!("/applications/{name}")] {
            browser.visit(&served.url(&path)).await;
            browser.fits(&path, width).await;
        }
        browser.picture(&format!("long-words-light-{width}")).await;
    }
    browser.console_is_clean("").await;
}

#[tokio::test]
#[ignore = "needs Chromium: make browser"]
async fn person_logs_in_and_out_with_the_provider() {
    let idp = oidc::idp().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let sample::Agent { handle, store, inbox } = agent([shop(), blog()]);
    tokio::spawn(answer(inbox, Arc::default()));
    let access = Access::closed().with_provider(Some(idp.provider(&url)));
    tokio::spawn(serve(listener, router(handle, store, access), std::future::pending()));
    let browser = Browser::open("light").await;
    browser.visit(&format!("{url}/applications/shop")).await;
    browser.shows("Log in with localhost").await;
    browser.picture("login-provider-light-1280").await;
    browser.is_accessible("login with a provider").await;
    browser.press("\u{e004}\u{e007}").await;
    browser.shows("I am Ada").await;
    browser.press("\u{e007}").await;
    browser.shows("Git says").await;
    assert_eq!(browser.run("return location.href").await, format!("{url}/applications/shop"));
    browser.shows("user ada").await;
    assert_eq!(browser.run("return document.cookie").await, "", "no script reads the cookie");
    browser.run("[...document.querySelectorAll('header button')].at(-1).focus()").await;
    browser.press("\u{e007}").await;
    // The provider has ended its session, and has sent the browser back.
    browser.until("the form to log in", &format!("return location.href === '{url}/login'")).await;
    browser.shows("Log in with localhost").await;
    browser.visit(&format!("{url}/applications/shop")).await;
    browser.shows("Log in with localhost").await;
    browser.press("\u{e004}\u{e007}").await;
    browser.shows("I am Ada").await;
    browser.console_is_clean("40").await;
}
