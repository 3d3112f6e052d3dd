//! The page of a real agent with 500 applications, which have no instances, so that nothing but the page is measured.

use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    harness::{Settings, Site, images},
    report::{Report, Samples, time},
    samples,
};

const APPLICATIONS: usize = 500;
/// Requests for each address, for one sample of `BENCH_SAMPLES`.
const REQUESTS: usize = 10;
const PATIENCE: Duration = Duration::from_mins(5);

pub async fn page(report: &mut Report) {
    let site = Site::with("bench-page", Settings::default());
    let image = images::server("1.0");
    let compose = format!("services:\n  web:\n    image: {image}\n    network_mode: none\n    scale: 0\n");
    let path = |number: usize| format!("sites/{}-{number}/compose.yaml", site.app);
    let paths: Vec<String> = (0..APPLICATIONS).map(path).collect();
    let files: Vec<_> = paths.iter().map(|path| (path.as_str(), compose.as_str())).collect();
    site.repository.commit(&files);
    let agent = site.agent().await;
    let began = Instant::now();
    loop {
        let metrics = agent.get("/metrics").await.map(|(_, body)| body);
        let metrics = metrics.as_ref().and_then(Value::as_str).unwrap_or_default();
        if metrics.lines().filter(|line| line.contains("sync_status=\"Synced\"")).count() == APPLICATIONS {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "not all are synced within {PATIENCE:?}");
        sleep(Duration::from_secs(1)).await;
    }

    let one = format!("/applications/{}-123", site.app);
    let addresses = ["/", "/?only=attention", "/?q=-123", &one];
    let client = Client::builder().no_proxy().build().unwrap();
    let mut pages = Vec::new();
    for path in addresses {
        let (mut times, mut size) = (Vec::new(), 0);
        for _ in 0..samples() * REQUESTS {
            let began = Instant::now();
            let request =
                client.get(format!("http://{}{path}", agent.address())).header("accept", "text/html");
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK, "{path}");
            size = answer.bytes().await.unwrap().len();
            times.push(began.elapsed());
        }
        pages.push((path, size, Samples::new(times)));
    }

    report.section("The page");
    report.text(&format!(
        "An agent with {APPLICATIONS} applications of one service without instances. Each address is asked {} times over a \
         kept connection, until the last byte.",
        samples() * REQUESTS,
    ));
    report.table(&["address", "size", "p50", "p95", "max"]);
    for (path, size, times) in &pages {
        let path = if *path == one { "/applications/NAME" } else { path };
        report.row(&[
            format!("`{path}`"),
            kilobytes(*size),
            time(times.median()),
            time(times.percentile(95)),
            time(times.max()),
        ]);
    }
    report.line("");
    let (_, size, times) = &pages[0];
    let p95 = times.percentile(95);
    report.goal(
        "p95 of the overview ≤ 50 ms at 500 applications",
        &time(p95),
        p95 <= Duration::from_millis(50),
    );
    report.goal("≤ 100 kB for 500 applications", &kilobytes(*size), *size <= 100_000);
}

fn kilobytes(bytes: usize) -> String {
    format!("{:.1} kB", bytes as f64 / 1e3)
}
