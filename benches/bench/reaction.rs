//! Time from a push, a drift or a request to the running container.

use std::time::Duration;

use driftless_forge::webhook;
use driftless_forge::{webhook::Key, webhook::SamplePush};
use driftless_model::{Timestamp, WebhookProvider};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    harness::{self, Agent, Container, Settings, Site, images},
    raw::{Api, likeness, now},
    report::{Report, Row, Samples, time},
    samples,
};

/// Webhooks are not let through more often than every two seconds.
const BETWEEN_PUSHES: Duration = Duration::from_millis(2100);

const SECRET: &str = "a-secret-of-the-benchmark-0123456789-0123456789";

fn web(greeting: usize) -> String {
    let image = images::server("1.0");
    format!(
        "services:\n  web:\n    image: {image}\n    restart: unless-stopped\n    environment: {{GREETING: \"{greeting}\"}}\n"
    )
}

/// When the engine started a container, by its clock, which is this machine's.
fn started_at(container: &Container) -> Duration {
    Timestamp::parse(&container.started()).map(|it| Duration::from_millis(it.0)).unwrap()
}

/// When the successor of `old` was started.
async fn started(site: &Site, old: &str) -> Duration {
    // Asking all the time would take the processor from those who are measured.
    sleep(Duration::from_secs(1)).await;
    let container = site
        .until("a new container runs", |docker| {
            docker.running(&site.app).into_iter().find(|it| it.id() != old)
        })
        .await;
    started_at(&container)
}

/// Create and start by the raw API: until the engine says that it was started, and until its answer is there.
async fn baseline(site: &Site, round: usize, request: &Value) -> (Duration, Duration) {
    let name = format!("{}-baseline-{round}", site.app);
    let before = now();
    let answered = Api::default().create_and_start(&name, request).await;
    let started = started_at(&site.docker.container(&name).unwrap()).saturating_sub(before);
    Api::default().remove(&name).await;
    (started, answered)
}

/// `docker rm -f` until the replacement runs.
pub async fn drift(report: &mut Report) {
    let site = Site::new("bench-heal");
    let agent = site.running(&web(0)).await;
    let request = likeness(&site.container("web").0);
    let (mut calls, mut baselines) = (Vec::new(), Vec::new());
    let (mut gone, mut asked) = (Vec::new(), Vec::new());
    for round in 0..samples() {
        // The samples of baseline and agent alternate, so that other load affects both.
        let (started_after, answered) = baseline(&site, round, &request).await;
        baselines.push(started_after);
        calls.push(answered);
        let head = site.repository.head();
        agent.settled(&head).await;
        let old = site.container("web").id();
        let before = now();
        Api::default().remove(&site.name("web")).await;
        let removed = now();
        let runs = started(&site, &old).await;
        gone.push(runs.saturating_sub(removed));
        asked.push(runs.saturating_sub(before));
        // Heals of one field in a row are slowed down on purpose; a request by hand forgets the pauses.
        agent.sync().await;
        agent.settled(&head).await;
    }
    let (baselines, gone, asked) = (Samples::new(baselines), Samples::new(gone), Samples::new(asked));
    report.section("Reaction to drift");
    report.text(
        "A managed container is removed by force through the raw API. The baseline is create and start of the same \
         container through the raw API, without an agent; the samples alternate. Both end when the engine reports \
         that the container was started. The time of the removal itself is not counted, except in the last line.",
    );
    let ratio = gone.against(&baselines);
    report.times(&[
        Row { what: "baseline: create + start, until started", samples: &baselines, ratio: Some(1.0) },
        Row { what: "baseline, until the call returns", samples: &Samples::new(calls), ratio: None },
        Row { what: "removed, until the replacement started", samples: &gone, ratio: Some(ratio) },
        Row { what: "removal requested, until the replacement started", samples: &asked, ratio: None },
    ]);
    report.goal("median ≤ 1.25 × the baseline", &format!("{ratio:.2} × the baseline"), ratio <= 1.25);
}

/// From `sync` to started, for a one-container change.
pub async fn push(report: &mut Report) {
    let deploys = Deploys::measure("bench-push", false).await;
    report.section("Push to running");
    report.text(
        "One container changes, and its image is on the host. The time runs from `sync` until the engine reports \
         that the new container was started. It includes the listing and the fetch from Git. The Git server is `git \
         http-backend`, a new process for each of the four requests that find and fetch a commit. The time of one \
         listing with `git ls-remote` is given for comparison.",
    );
    let Deploys { baselines, listings, synced, .. } = deploys;
    report.times(&[
        Row { what: "baseline: create + start, until started", samples: &baselines, ratio: Some(1.0) },
        Row { what: "`sync`, until started", samples: &synced, ratio: Some(synced.against(&baselines)) },
        Row { what: "one `git ls-remote` of this server", samples: &listings, ratio: None },
    ]);
    let over = synced.median().saturating_sub(baselines.median());
    let is_met = over <= Duration::from_millis(100);
    report.goal("≤ baseline + 100 ms", &format!("baseline + {}", time(over)), is_met);
}

/// Time from a webhook to a started container, compared with `sync`.
pub async fn webhook(report: &mut Report) {
    let Deploys { baselines, synced, rung, answers, .. } = Deploys::measure("bench-hook", true).await;
    let (Some(rung), Some(answers)) = (rung, answers) else { unreachable!("webhooks were asked for") };
    report.section("Webhook to running");
    report.text(
        "The same change, announced by a signed webhook. The time runs from the first byte of the delivery until the \
         engine reports that the new container was started; the samples alternate with `sync` and with the baseline. \
         The agent stores the delivery on disk before it answers.",
    );
    let ratio = rung.against(&synced);
    report.times(&[
        Row { what: "baseline: create + start, until started", samples: &baselines, ratio: Some(1.0) },
        Row { what: "`sync`, until started", samples: &synced, ratio: Some(synced.against(&baselines)) },
        Row { what: "webhook, until started", samples: &rung, ratio: Some(rung.against(&baselines)) },
        Row { what: "webhook, until it is answered", samples: &answers, ratio: None },
    ]);
    let answered = answers.median();
    let goal = Duration::from_millis(100);
    report.goal("answered in under 100 ms", &time(answered), answered < goal);
    let found = format!("{} after it, {ratio:.2} × a `sync`", time(rung.median()));
    report.goal("deployed within a second of the push", &found, rung.median() <= Duration::from_secs(1));
}

/// One-container changes, brought by `sync` and, if asked for, by webhooks in turn.
struct Deploys {
    baselines: Samples,
    listings: Samples,
    synced: Samples,
    rung: Option<Samples>,
    answers: Option<Samples>,
}

impl Deploys {
    async fn measure(test: &str, with_webhooks: bool) -> Self {
        let settings =
            Settings { webhook: Some(("hmac-sha256", SECRET.to_owned())), poll: "1h", ..Settings::default() };
        let site = Site::with(test, settings);
        let agent = site.running(&web(0)).await;
        let request = likeness(&site.container("web").0);
        let bell = Bell::new(&agent).await;
        let (mut baselines, mut listings, mut synced) = (Vec::new(), Vec::new(), Vec::new());
        let (mut rung, mut answers) = (Vec::new(), Vec::new());
        for round in 0..samples() {
            baselines.push(baseline(&site, round, &request).await.0);

            let began = Instant::now();
            harness::git(&site.directory(), &["ls-remote", &site.server.url()]);
            listings.push(began.elapsed());

            let old = site.container("web").id();
            let commit = site.compose(&web(2 * round + 1));
            let before = now();
            agent.sync().await;
            synced.push(started(&site, &old).await.saturating_sub(before));
            agent.settled(&commit).await;

            if with_webhooks {
                sleep(BETWEEN_PUSHES).await;
                let old = site.container("web").id();
                let commit = site.compose(&web(2 * round + 2));
                let delivery = bell.delivery(&commit);
                let before = now();
                let began = Instant::now();
                let answer = delivery.send().await.unwrap();
                answers.push(began.elapsed());
                assert!(answer.status().is_success(), "{answer:?}");
                rung.push(started(&site, &old).await.saturating_sub(before));
                agent.settled(&commit).await;
            }
        }
        let some = |it: Vec<Duration>| with_webhooks.then(|| Samples::new(it));
        Self {
            baselines: Samples::new(baselines),
            listings: Samples::new(listings),
            synced: Samples::new(synced),
            rung: some(rung),
            answers: some(answers),
        }
    }
}

/// Rings as a forge does.
struct Bell {
    client: reqwest::Client,
    url: String,
    key: Key,
}

impl Bell {
    async fn new(agent: &Agent) -> Self {
        let path = agent.webhook().await.local_url.split_once("/hook/").unwrap().1.to_owned();
        Self {
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            url: format!("http://{}/hook/{path}", agent.address()),
            key: Key::new(WebhookProvider::HmacSha256, SECRET).unwrap(),
        }
    }

    /// A delivery that is ready to be sent.
    fn delivery(&self, commit: &str) -> reqwest::RequestBuilder {
        let push = SamplePush { repository: "infra", reference: "refs/heads/main", commit };
        let at = Timestamp(u64::try_from(now().as_millis()).unwrap());
        let sample = webhook::sample(WebhookProvider::HmacSha256, &self.key, commit, at, push);
        let request = self.client.post(&self.url);
        let headers = sample.headers.into_iter();
        headers.fold(request, |request, (name, value)| request.header(name, value)).body(sample.body)
    }
}
