//! The fault campaign: kills the agent and the engine, fills disks, damages files and disturbs networks, some
//! 1,350 times, and checks after each fault that nothing was lost, done twice or reported wrongly.
//! It drives the real program on engines of its own, and writes its table to docs/reliability.md.
//!
//! `CHAOS_ONLY` (`agent,engine,disk,files,network`) picks parts, `CHAOS_SCALE` (1) shortens them, `CHAOS_SEED` repeats
//! the moments and damages of an earlier run, `CHAOS_MINUTES` (90) is when no new case begins any more. At scale 1 the
//! sections of the parts in the document are replaced; a shorter run only prints them.

#![allow(clippy::unwrap_used, clippy::pedantic, unreachable_pub, dead_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "it measures how long healing takes, and faults last for a while"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::exit,
    sync::Arc,
    time::Duration,
};

use futures_util::future::{BoxFuture, join_all};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};

// It needs the Git servers and the registry of the end-to-end tests, and not the rest.
#[allow(unused_imports)]
#[path = "../../tests/e2e/harness/mod.rs"]
mod harness;

mod agent_kills;
mod apps;
mod disk;
mod docker;
mod engine;
mod engine_kills;
mod files;
mod lane;
mod network;
mod proxy;
mod random;
mod table;

use engine::Engine;
use table::{PARTS, Table};

/// Settings and results that all parts share.
pub(crate) struct Context {
    pub(crate) seed: u64,
    scale: f64,
    /// No case begins after this.
    end: Instant,
    pub(crate) directory: PathBuf,
    pub(crate) table: Table,
}

impl Context {
    /// So many of `count` cases belong to this run; at least one.
    pub(crate) fn scaled(&self, count: usize) -> usize {
        ((count as f64 * self.scale).ceil() as usize).max(1)
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() > self.end
    }
}

fn main() {
    // Lanes call Git and write files on the threads of the runtime: there are more of them than processors.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(16).enable_all().build();
    let code = runtime.expect("threads can be started").block_on(campaign());
    exit(code);
}

fn setting(name: &str, default: &str) -> String {
    std::env::var(name).ok().filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
}

fn number<T: std::str::FromStr>(name: &str, default: &str) -> T {
    setting(name, default).parse().unwrap_or_else(|_| {
        eprintln!("chaos: {name} is not a number");
        exit(2);
    })
}

async fn campaign() -> i32 {
    let only = setting("CHAOS_ONLY", "");
    let wanted: Vec<&str> = only.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    if let Some(unknown) = wanted.iter().find(|part| !PARTS.iter().any(|(name, _)| name == *part)) {
        eprintln!(
            "chaos: there is no part `{unknown}`; there are {}",
            PARTS.map(|(name, _)| name).join(", ")
        );
        return 2;
    }
    let wanted: Vec<&str> = PARTS
        .iter()
        .map(|(name, _)| *name)
        .filter(|part| wanted.is_empty() || wanted.contains(part))
        .collect();
    for tool in
        ["dockerd", "containerd", "nsenter", "ip", "mount", "docker", "git", "docker-registry", "sshd"]
    {
        if !["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/bin"]
            .iter()
            .any(|it| Path::new(it).join(tool).exists())
        {
            eprintln!(
                "chaos: {tool} is missing; scripts/ensure-docker.sh and scripts/test-tools.sh install the tools"
            );
            return 2;
        }
    }
    let seed = number("CHAOS_SEED", &harness::random().to_string());
    let scale = number("CHAOS_SCALE", "1");
    let minutes: u64 = number("CHAOS_MINUTES", "90");
    eprintln!("CHAOS_SEED={seed}");
    // Sockets have short names.
    let folder = tempfile::Builder::new().prefix("dlchaos-").tempdir_in("/tmp").expect("/tmp can be written");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let logs =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from).join("chaos");
    // A copy, so that a build meanwhile does not change what is tested.
    let agent = folder.path().join("driftless");
    fs::copy(env!("CARGO_BIN_EXE_driftless"), &agent).expect("the agent's program can be copied");
    let context = Arc::new(Context {
        seed,
        scale,
        end: Instant::now() + Duration::from_secs(minutes * 60),
        directory: folder.path().to_owned(),
        table: Table::new(logs),
    });
    let began = Instant::now();
    let mut ended = signal(SignalKind::terminate()).expect("signals can be heard");
    let engine = tokio::select! {
        engine = run(&context, &wanted) => engine,
        _ = tokio::signal::ctrl_c() => return interrupted(),
        _ = ended.recv() => return interrupted(),
    };
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let head = format!(
        "Profile `{profile}`, Docker Engine {engine}, {} processors with other work on them, {} minutes together with the parts {}, `CHAOS_SEED={seed}`.",
        std::thread::available_parallelism().map_or(1, usize::from),
        began.elapsed().as_secs() / 60,
        wanted.join(", "),
    );
    for (name, rows) in PARTS.into_iter().filter(|(name, _)| wanted.contains(name)) {
        let text = context.table.markdown(&head, rows);
        println!("## {name}\n\n{text}");
        if scale >= 1.0 {
            write_document(&root.join("docs/reliability.md"), name, &text);
        }
    }
    i32::from(context.table.has_misses())
}

/// Engines and agents end as their owners are dropped.
fn interrupted() -> i32 {
    eprintln!("chaos: interrupted; nothing is written");
    130
}

/// Replaces what stands between the marks of a part.
fn write_document(path: &Path, part: &str, text: &str) {
    let (begin, end) =
        (format!("<!-- campaign: {part} -->\n"), format!("<!-- end of campaign: {part} -->\n"));
    let old = fs::read_to_string(path).unwrap_or_default();
    let parts = old.split_once(&begin).and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)));
    let Some((head, tail)) = parts else {
        eprintln!("chaos: {} has no place for the part {part}", path.display());
        return;
    };
    if let Err(error) = fs::write(path, format!("{head}{begin}\n{text}\n{end}{tail}")) {
        eprintln!("chaos: could not write {}: {error}", path.display());
    }
}

/// Runs all parts side by side. Returns the engine's version.
async fn run(context: &Arc<Context>, wanted: &[&str]) -> String {
    let is_wanted = |part: &str| wanted.contains(&part);
    let shared = match Engine::start(&context.directory, "shared", None).await {
        Ok(engine) => engine,
        Err(error) => {
            eprintln!("chaos: no engine of its own: {error}; the campaign needs root");
            context.table.miss(None, "the campaign could not start an engine", &error);
            return "none".into();
        }
    };
    let version = shared.docker.version().await;
    eprintln!("chaos: Docker Engine {version}, {}", shared.data().display());
    let mut parts: Vec<BoxFuture<'_, Result<(), String>>> = Vec::new();
    if is_wanted("agent") {
        let lanes = if context.scale < 0.1 { 1 } else { 4 };
        for lane in 0..lanes {
            let kills = context.scaled(1000).div_ceil(lanes);
            parts.push(Box::pin(agent_kills::run(context, &shared.docker, lane, kills)));
        }
    }
    if is_wanted("engine") {
        parts.push(Box::pin(engine_kills::run(context, 0, context.scaled(50))));
        parts.push(Box::pin(engine_kills::run(context, 1, context.scaled(50))));
    }
    if is_wanted("files") {
        parts.push(Box::pin(files::run(context, &shared.docker, context.scaled(60))));
    }
    if is_wanted("disk") {
        parts.push(Box::pin(disk::state(context, &shared.docker, context.scaled(20))));
        parts.push(Box::pin(disk::engine(context, context.scaled(20))));
    }
    if is_wanted("network") {
        parts.push(Box::pin(network::git_http(context, &shared.docker, context.scaled(25))));
        parts.push(Box::pin(network::git_ssh(context, &shared.docker, context.scaled(25))));
        parts.push(Box::pin(network::engine(context, &shared, context.scaled(50))));
        parts.push(Box::pin(network::registry(context, &shared, context.scaled(50))));
    }
    let progress = async {
        let began = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_secs(30)).await;
            eprintln!("chaos: {} s: {}", began.elapsed().as_secs(), context.table.progress());
        }
    };
    tokio::select! {
        results = join_all(parts) => {
            for error in results.into_iter().filter_map(Result::err) {
                context.table.miss(None, &error, "");
            }
        }
        () = progress => {}
    }
    version
}
