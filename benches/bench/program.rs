//! The program itself: its size, and how soon it is ready.

use std::{fs, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    harness::{Site, images},
    process,
    report::{Report, Row, Samples, megabytes, time},
    samples,
};

pub async fn program(report: &mut Report) {
    let size = fs::metadata(env!("CARGO_BIN_EXE_driftless")).unwrap().len();
    let site = Site::new("bench-start");
    let image = images::server("1.0");
    let compose = format!("services:\n  web:\n    image: {image}\n    restart: unless-stopped\n");
    let mut agent = site.running(&compose).await;
    let (mut starts, mut versions) = (Vec::new(), Vec::new());
    for _ in 0..samples() {
        versions.push(process::timed(&mut agent.command(&["--version"])).0);
        agent.kill9();
        let began = Instant::now();
        agent.launch();
        while agent.get("/readyz").await.is_none_or(|(status, _)| status != 200) {
            sleep(Duration::from_millis(1)).await;
        }
        starts.push(began.elapsed());
    }
    let memory = process::memory(agent.process());
    let (starts, versions) = (Samples::new(starts), Samples::new(versions));
    report.section("Binary size and start time");
    report.text(&format!(
        "The binary is one file; stripped it has {}. The agent is killed and started again with a mirror, a database \
         and one running application. It is ready when `/readyz` says so, which is requested every millisecond. The \
         baseline is a process that starts, prints its version and ends. After such a start the agent has {} RSS, {} \
         PSS and {} private memory, of which {} are written.",
        megabytes(size),
        megabytes(memory.resident),
        megabytes(memory.proportional),
        megabytes(memory.private),
        megabytes(memory.dirty),
    ));
    report.times(&[
        Row { what: "baseline: `driftless --version`", samples: &versions, ratio: Some(1.0) },
        Row { what: "start, until ready", samples: &starts, ratio: Some(starts.against(&versions)) },
    ]);
    report.goal("≤ 20 MB stripped", &megabytes(size), size <= 20_000_000);
    let is_met = starts.median() <= Duration::from_millis(150);
    report.goal("ready in ≤ 150 ms, mirror present", &time(starts.median()), is_met);
}
