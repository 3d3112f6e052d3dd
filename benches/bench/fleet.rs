//! The view of a fleet at a collector: a real agent that 500 simulated hosts have joined, and report to over HTTP with signatures.

use std::{io::Write, time::Duration};

use driftless_fleet::{
    AgentKey, ApplicationReport, HostReport, HostSignature, JoinAnswer, JoinRequest, PublicKey,
    RepositoryReport, SIGNATURE_HEADER, SignedParts,
};
use driftless_model::{AppName, CommitId, HealthStatus, SyncStatus, Timestamp, digest_hex};
use flate2::{Compression, write::GzEncoder};
use reqwest::{Client, StatusCode};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    harness::{Settings, Site, images},
    process,
    report::{Report, Samples, megabytes, time},
    samples,
};

const HOSTS: usize = 500;
const APPLICATIONS: usize = 50;
/// The time between two heartbeats of a host.
const EVERY: Duration = Duration::from_secs(30);
/// The time in which heartbeats alone are measured.
const MEASURED: Duration = Duration::from_mins(1);
/// Requests for each address, for one sample of `BENCH_SAMPLES`.
const REQUESTS: usize = 10;
const PAGES: [&str; 4] = ["/fleet", "/fleet?page=7", "/fleet?q=app-7&state=degraded", "/fleet/host-250"];
const API: &str = "/api/v1/fleet/hosts";

/// A simulated host, with the address of its report, the digest of its last one, and its key.
struct Host {
    base: String,
    name: String,
    json: Vec<u8>,
    digest: String,
    instance: String,
    key: AgentKey,
    collector: Option<PublicKey>,
    counter: u64,
}

pub async fn fleet(report: &mut Report) {
    let whole = json!({ "fleet": { "accept": true, "enrolment": "required" } });
    let site = Site::with("bench-fleet", Settings { whole: Some(whole), ..Settings::default() });
    let image = images::server("1.0");
    let collector = site.running(&format!("services:\n  web:\n    image: {image}\n")).await;
    let base = format!("http://{}", collector.address());
    let client = Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap();
    let before = process::memory(collector.process());
    let mut hosts: Vec<Host> = (0..HOSTS).map(|number| Host::new(&base, number)).collect();
    let bytes: usize = hosts.iter().map(|host| host.json.len()).sum();
    let began = Instant::now();
    for host in &mut hosts {
        host.join(&client).await;
    }
    let joined = began.elapsed();
    let began = Instant::now();
    for host in &mut hosts {
        host.report(&client).await;
    }
    let reported = began.elapsed();

    let mut pages = Vec::new();
    for path in PAGES.into_iter().chain([API]) {
        let url = format!("{base}{path}");
        let (mut times, mut size) = (Vec::new(), 0);
        for _ in 0..samples() * REQUESTS {
            let began = Instant::now();
            let answer = client.get(&url).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
            size = answer.bytes().await.unwrap().len();
            times.push(began.elapsed());
        }
        pages.push((path, size as u64, Samples::new(times)));
    }
    let after_pages = process::memory(collector.process());

    // The heartbeats of all hosts are spread over the time between two, as in a real fleet.
    let (cpu, began) = (process::cpu(collector.process()), Instant::now());
    let (mut heartbeats, step) = (0u32, EVERY / u32::try_from(HOSTS).unwrap());
    while began.elapsed() < MEASURED {
        hosts[heartbeats as usize % HOSTS].heartbeat(&client).await;
        heartbeats += 1;
        sleep_until(began + step * heartbeats).await;
    }
    let share = (process::cpu(collector.process()) - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
    sleep(Duration::from_secs(1)).await;
    let memory = process::memory(collector.process());
    let peak = process::peak(collector.process()).unwrap_or_default();

    report.section("View of a fleet");
    report.text(&format!(
        "A collector with the reports of {HOSTS} hosts of {APPLICATIONS} applications, {} of JSON in all, each tenth host with \
         three applications that are not well. All hosts have joined with a key of their own, one after the other in {}, and \
         report in {}. Then pages and API are asked {} times each, over a kept connection. Then each host sends a signed \
         heartbeat every {} s for {} s, {heartbeats} in all, each answered with 304. The collector itself runs one application. It has {} private memory before the first report, {} \
         after the requests, and {} after the heartbeats, with {} RSS; the most that it ever had is {} RSS.",
        megabytes(bytes as u64),
        time(joined),
        time(reported),
        samples() * REQUESTS,
        EVERY.as_secs(),
        MEASURED.as_secs(),
        megabytes(before.private),
        megabytes(after_pages.private),
        megabytes(memory.private),
        megabytes(memory.resident),
        megabytes(peak),
    ));
    report.table(&["address", "size", "p50", "p95", "max"]);
    for (path, size, times) in &pages {
        report.row(&[
            format!("`{path}`"),
            megabytes(*size),
            time(times.median()),
            time(times.percentile(95)),
            time(times.max()),
        ]);
    }
    report.line("");
    let slowest = pages.iter().filter(|(path, ..)| *path != API).map(|(_, _, times)| times.percentile(95));
    let slowest = slowest.max().unwrap_or_default();
    report.goal("p95 of the page ≤ 100 ms", &time(slowest), slowest <= Duration::from_millis(100));
    let most = memory.private.max(after_pages.private);
    report.goal("≤ 100 MB private memory", &megabytes(most), most <= 100_000_000);
    report.goal("≤ 5 % of a core for heartbeats", &format!("{:.1} %", share * 100.0), share <= 0.05);
}

impl Host {
    fn new(base: &str, number: usize) -> Self {
        let commit = CommitId::from_stored(digest_hex(b"commit")[..40].to_owned());
        let application = |index: usize| {
            let is_well = !number.is_multiple_of(10) || index >= 3;
            ApplicationReport {
                name: AppName::from(format!("app-{index}").as_str()),
                repository: "infra".to_owned(),
                sync: SyncStatus::Synced,
                health: if is_well { HealthStatus::Healthy } else { HealthStatus::Degraded },
                revision: Some(7),
                revision_commit: Some(commit.clone()),
                commit: Some(commit.clone()),
                failed: None,
                images: None,
                failed_images: None,
                message: if is_well { String::new() } else { "web.1 is not ready: 503".to_owned() },
                drift: 0,
                suspended: Some(false),
                pinned: None,
                well: is_well,
            }
        };
        let (name, instance) = (format!("host-{number}"), format!("machine-{number}"));
        let repository = RepositoryReport {
            name: "infra".to_owned(),
            commit: Some(commit.clone()),
            commit_time: Some(Timestamp(1_700_000_000_000)),
            reference: "main".to_owned(),
            applications: APPLICATIONS,
            ..RepositoryReport::default()
        };
        let report = HostReport {
            host: name.clone(),
            instance: instance.clone(),
            labels: [("role".to_owned(), "web".to_owned())].into(),
            agent_version: "0.1.0".to_owned(),
            engine_version: "20.10.24".to_owned(),
            every: EVERY.as_secs(),
            repositories: vec![repository],
            applications: (0..APPLICATIONS).map(application).collect(),
            ..HostReport::default()
        };
        let json = serde_json::to_vec(&report).unwrap();
        let digest = format!("\"{}\"", digest_hex(&json));
        let mut seed = [1; 32];
        seed[..8].copy_from_slice(&(number as u64).to_le_bytes());
        let (base, key) = (base.to_owned(), AgentKey::from_seed(&seed).unwrap());
        Self { base, name, json, digest, instance, key, collector: None, counter: 0 }
    }

    async fn join(&mut self, client: &Client) {
        let invite = client.post(format!("{}/api/v1/fleet/invites", self.base));
        let answer = invite.body(json!({ "host": self.name }).to_string()).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::CREATED, "{}", self.name);
        let invite: serde_json::Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        let token = invite["token"].as_str().unwrap().parse().unwrap();
        let request = JoinRequest::new(&self.name, &self.instance, &self.key, &token).unwrap();
        let join = client.post(format!("{}/api/v1/fleet/join", self.base));
        let answer = join.body(serde_json::to_vec(&request).unwrap()).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{}", self.name);
        let answer: JoinAnswer = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        self.collector = Some(answer.key);
    }

    /// A signed request to report.
    fn put(&mut self, client: &Client, named: &str, instance: &str, body: &[u8]) -> reqwest::RequestBuilder {
        self.counter += 1;
        let path = format!("{API}/{}", self.name);
        let collector = self.collector.as_ref().unwrap();
        let parts = SignedParts { collector, method: "PUT", path: &path, report: named, instance };
        let signature = HostSignature::new(&self.key, &self.name, self.counter, body, &parts).unwrap();
        client.put(format!("{}{path}", self.base)).header(SIGNATURE_HEADER, signature.to_string())
    }

    async fn report(&mut self, client: &Client) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.json).unwrap();
        let body = encoder.finish().unwrap();
        let request = self.put(client, "", "", &body).header("content-encoding", "gzip");
        let answer = request.body(body).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::NO_CONTENT, "{}", self.name);
    }

    async fn heartbeat(&mut self, client: &Client) {
        let (digest, instance) = (self.digest.clone(), self.instance.clone());
        let request = self.put(client, &digest, &instance, b"").header("if-none-match", digest);
        let answer = request.header("driftless-instance", instance).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_MODIFIED, "{}", self.name);
    }
}
