//! The memory of the agent over many commits.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::{
    harness::{Settings, Site, images},
    idle::pass,
    process::{self, Memory},
    report::{Report, megabytes},
    setting,
};

/// The commits before the memory is read first: caches fill.
const FIRST: usize = 200;

pub async fn memory(report: &mut Report) {
    let commits: usize = setting("BENCH_COMMITS", "2000").parse().expect("BENCH_COMMITS is a number");
    let mut site = Site::new("bench-memory");
    site.settings = Settings { more: Some(json!({})), ..Settings::default() };
    let image = images::server("1.0");
    let text = format!("services:\n  job:\n    image: {image}\n    command: [--once]\n    restart: \"no\"\n");
    let agent = site.running(&text).await;
    let mut read: Vec<(usize, Memory)> = Vec::new();
    for number in 1..=commits {
        site.repository.commit(&[("notes.txt", &number.to_string())]);
        pass(&agent).await;
        if number == FIRST || number % (commits / 4).max(1) == 0 {
            sleep(Duration::from_secs(2)).await;
            read.push((number, process::memory(agent.process())));
        }
    }
    report.section("Memory over many commits");
    report.text(&format!(
        "{commits} commits, each of which is fetched, searched for applications and found to change nothing for the one \
         that runs."
    ));
    report.table(&["commits", "RSS", "PSS", "private", "private, written"]);
    for (number, memory) in &read {
        report.row(&[
            number.to_string(),
            megabytes(memory.resident),
            megabytes(memory.proportional),
            megabytes(memory.private),
            megabytes(memory.dirty),
        ]);
    }
    report.line("");
    let (first, last) = (read[0].1.dirty, read[read.len() - 1].1.dirty);
    let grown = last.saturating_sub(first);
    let goal = format!("flat from {FIRST} to {commits} commits: ≤ 1 MB more");
    report.goal(&goal, &format!("{} more", megabytes(grown)), grown <= 1_000_000);
}
