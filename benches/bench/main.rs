//! Measures the agent's performance against baselines and other programs in the same run, and writes docs/benchmarks.md.
//! It drives the release binary on the real engine; nothing is asserted, a missed goal is only called so.
//!
//! `BENCH_ONLY` (`drift,push,…`) picks parts, `BENCH_SAMPLES` (15) says how often something is measured, and
//! `BENCH_SIZES` (`10,100,1000`) how many containers are looked after at rest.

#![allow(clippy::unwrap_used, clippy::pedantic, unreachable_pub, dead_code)]
#![allow(clippy::disallowed_methods, reason = "it compares its own clock with the engine's")]

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};

// Measuring takes less of it than testing.
#[allow(unused_imports)]
#[path = "../../tests/e2e/harness/mod.rs"]
mod harness;

mod applications;
mod deploy;
mod fleet;
mod git;
mod idle;
mod large;
mod load;
mod memory;
mod noop;
mod page;
mod planner;
mod preview;
mod process;
mod program;
mod proxy;
mod raw;
mod reaction;
mod render;
mod report;
mod rollout;

use report::Report;

/// The parts, in the order of the report.
const PARTS: [&str; 18] = [
    "drift",
    "push",
    "webhook",
    "rollout",
    "deploy",
    "idle",
    "applications",
    "large",
    "page",
    "memory",
    "proxy",
    "planner",
    "binary",
    "render",
    "noop",
    "preview",
    "git",
    "fleet",
];

/// Only an engine that hangs gets there.
const PATIENCE: Duration = Duration::from_mins(10);

#[tokio::main]
async fn main() {
    if let Some(task) = std::env::var_os("BENCH_CHILD") {
        return match task.to_str().unwrap() {
            "server" => load::serve_at(load::PORT).await,
            task => git::child(task).await,
        };
    }
    let only = setting("BENCH_ONLY", "");
    let wanted: Vec<&str> = only.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
    if let Some(unknown) = wanted.iter().find(|it| !PARTS.contains(it)) {
        eprintln!("there is no part `{unknown}`; there are {}", PARTS.join(", "));
        std::process::exit(2);
    }
    let began = Instant::now();
    let mut report = Report::default();
    for part in PARTS.into_iter().filter(|it| wanted.is_empty() || wanted.contains(it)) {
        let measured = AssertUnwindSafe(timeout(PATIENCE, measure(part, &mut report))).catch_unwind().await;
        match measured {
            Ok(Ok(())) => {}
            Ok(Err(_)) => report.failed(part, "it took too long"),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                report.failed(part, text.unwrap_or("it broke off"));
            }
        }
        eprintln!("-- {part}: {:.0} s since the beginning", began.elapsed().as_secs_f64());
    }
    report.end(wanted.is_empty());
}

async fn measure(part: &str, report: &mut Report) {
    match part {
        "drift" => reaction::drift(report).await,
        "push" => reaction::push(report).await,
        "webhook" => reaction::webhook(report).await,
        "rollout" => rollout::rollout(report).await,
        "deploy" => deploy::deploy(report).await,
        "memory" => memory::memory(report).await,
        "idle" => idle::idle(report).await,
        "applications" => applications::applications(report).await,
        "large" => large::large(report).await,
        "page" => page::page(report).await,
        "proxy" => proxy::proxy(report).await,
        "planner" => planner::planner(report),
        "binary" => program::program(report).await,
        "render" => render::render(report),
        "noop" => noop::noop(report).await,
        "preview" => preview::preview(report),
        "git" => git::git(report).await,
        "fleet" => fleet::fleet(report).await,
        other => unreachable!("{other} is none of the parts"),
    }
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_owned())
}

fn samples() -> usize {
    setting("BENCH_SAMPLES", "15").parse::<usize>().expect("BENCH_SAMPLES is a number").max(1)
}

/// Of what takes seconds each.
fn few() -> usize {
    samples().div_ceil(3)
}
