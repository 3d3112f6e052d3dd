//! Damaged, shortened and missing files of the state directory, while the agent runs and while it does not.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    Context,
    apps::Kind,
    docker::Docker,
    lane::{Allowed, Lane, Ways},
    random::Random,
    table::Row,
};

const KINDS: [Kind; 3] = [Kind::Small, Kind::Pinned, Kind::Suspended];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Page,
    Pages,
    Header,
    Half,
    Empty,
    Gone,
    Folder,
    WalGone,
    WalNoise,
    NoMeta,
    BackupNoise,
    BackupGone,
    Both,
    AgentIdGone,
    AgentIdNoise,
    PackCut,
    PackNoise,
    ObjectsGone,
    RefEmpty,
    RefNoise,
    HeadNoise,
    ConfigNoise,
    PackedRefsLock,
    RefLock,
    MirrorFile,
    MirrorGone,
    ContentGone,
    ContentNoise,
    ContentsGone,
    RuntimeGone,
}

const DAMAGES: [(Damage, &str); 30] = [
    (Damage::Page, "database: one page"),
    (Damage::Pages, "database: five pages"),
    (Damage::Header, "database: header"),
    (Damage::Half, "database: second half cut off"),
    (Damage::Empty, "database: empty"),
    (Damage::Gone, "database: gone"),
    (Damage::Folder, "database: a folder in its place"),
    (Damage::WalGone, "write-ahead log: gone"),
    (Damage::WalNoise, "write-ahead log: random bytes"),
    (Damage::NoMeta, "database: table `meta` gone"),
    (Damage::BackupNoise, "backup: random bytes"),
    (Damage::BackupGone, "backup: gone"),
    (Damage::Both, "database and backup: gone, then `recover`"),
    (Damage::AgentIdGone, "agent id: gone"),
    (Damage::AgentIdNoise, "agent id: random bytes"),
    (Damage::PackCut, "mirror: pack cut short"),
    (Damage::PackNoise, "mirror: pack with random bytes"),
    (Damage::ObjectsGone, "mirror: objects gone"),
    (Damage::RefEmpty, "mirror: references empty"),
    (Damage::RefNoise, "mirror: references with random bytes"),
    (Damage::HeadNoise, "mirror: HEAD with random bytes"),
    (Damage::ConfigNoise, "mirror: config with random bytes"),
    (Damage::PackedRefsLock, "mirror: old `packed-refs.lock`"),
    (Damage::RefLock, "mirror: old locks of references"),
    (Damage::MirrorFile, "mirror: a file in its place"),
    (Damage::MirrorGone, "mirror: gone"),
    (Damage::ContentGone, "mounted files: gone"),
    (Damage::ContentNoise, "mounted files: random bytes"),
    (Damage::ContentsGone, "folder of mounted files: gone"),
    (Damage::RuntimeGone, "runtime directory: gone"),
];

impl Damage {
    /// True if SQLite has the file open, so that it is damaged only while the agent does not run.
    fn needs_stop(self) -> bool {
        matches!(self, Self::Folder | Self::NoMeta | Self::Half | Self::Empty | Self::WalNoise)
    }
}

pub(crate) async fn run(context: &Context, docker: &Docker, cases: usize) -> Result<(), String> {
    let mut random = Random::of(context.seed, "files");
    let mut done = 0;
    let mut attempt = 0;
    // A short run takes other damages with another seed.
    let first = usize::try_from(random.below(DAMAGES.len() as u64)).unwrap_or(0);
    'lanes: while done < cases && !context.is_over() {
        attempt += 1;
        let name = format!("f{attempt}");
        let mut lane = Lane::start(&context.directory, &name, docker, &KINDS, |_| Ways::default()).await?;
        while done < cases && !context.is_over() {
            let (damage, word) = DAMAGES[(first + done) % DAMAGES.len()];
            let is_live = !damage.needs_stop() && (done / DAMAGES.len()) % 2 == 1;
            let result = case(&mut lane, &mut random, damage, is_live).await;
            let kind = format!("{word}, {}", if is_live { "agent running" } else { "agent stopped" });
            context.table.record(Row::Files, &kind, 1, &result);
            done += 1;
            if let Err(error) = result {
                let what = format!("damaged file: {kind} ({name}, case {done}): {error}");
                context.table.miss(Some(Row::Files), &what, &lane.log_tail());
                lane.end().await;
                continue 'lanes;
            }
        }
        lane.end().await;
    }
    Ok(())
}

async fn case(
    lane: &mut Lane,
    random: &mut Random,
    damage: Damage,
    is_live: bool,
) -> Result<Duration, String> {
    if !is_live {
        lane.kill();
    }
    apply(lane, random, damage).map_err(|error| format!("the damage cannot be done: {error}"))?;
    if is_live {
        // With a commit on top, which makes the agent read and write what was damaged.
        lane.commit(&KINDS);
        lane.sync().await;
        sleep(Duration::from_millis(random.between(200, 2000))).await;
        lane.kill();
        lane.launch()?;
    } else {
        lane.launch()?;
        sleep(Duration::from_millis(random.between(0, 2000))).await;
        lane.commit(&KINDS);
    }
    let began = Instant::now();
    if damage == Damage::Both && !is_live {
        recover(lane, began).await?;
        return Ok(began.elapsed());
    }
    // The agent may read the commit before or after its start.
    wait_for_api(lane).await?;
    lane.sync().await;
    lane.settle(Allowed {
        drift: matches!(damage, Damage::ContentGone | Damage::ContentNoise | Damage::ContentsGone),
        repeated_runs: false,
    })
    .await?;
    Ok(began.elapsed())
}

async fn wait_for_api(lane: &mut Lane) -> Result<(), String> {
    let began = Instant::now();
    while lane.readiness().await == 0 {
        lane.check_alive()?;
        if began.elapsed() > Duration::from_secs(60) {
            return Err("the agent does not answer within 60 s of its start".into());
        }
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Both copies of the state are gone: no commit may be applied until somebody says so.
async fn recover(lane: &mut Lane, began: Instant) -> Result<(), String> {
    wait_for_api(lane).await?;
    while lane.readiness().await == 200 || !lane.has_condition("StateLost").await {
        if began.elapsed() > Duration::from_secs(60) {
            return Err("lost state is not reported within 60 s".into());
        }
        sleep(Duration::from_millis(200)).await;
    }
    lane.sync().await;
    sleep(Duration::from_secs(3)).await;
    lane.nothing_newer_runs().await?;
    // As `docs/state.md` says: suspensions are set again, then the loss is confirmed.
    let suspended = lane.app(Kind::Suspended).unwrap_or_default();
    lane.post(&format!("/api/v1/applications/{suspended}/suspend"), &json!({})).await?;
    lane.post("/api/v1/recover", &json!({})).await?;
    // The pin is gone with the state, so its application follows Git again.
    lane.forget_pin();
    lane.sync().await;
    lane.settle(Allowed { drift: true, repeated_runs: false }).await?;
    lane.pin().await?;
    lane.settle(Allowed { drift: true, repeated_runs: false }).await.map(drop)
}

fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { below(&path, found) } else { found.push(path) }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    below(folder, &mut found);
    found.sort();
    found
}

/// Writes random bytes over a part of a file without changing its length.
fn noise(path: &Path, at: u64, length: usize, random: &mut Random) -> std::io::Result<()> {
    let size = fs::metadata(path)?.len();
    let length = length.min(usize::try_from(size.saturating_sub(at)).unwrap_or(0));
    let mut permissions = fs::metadata(path)?.permissions();
    #[allow(clippy::permissions_set_readonly_false)]
    permissions.set_readonly(false);
    fs::set_permissions(path, permissions)?;
    fs::File::options().write(true).open(path)?.write_all_at(&random.bytes(length), at)
}

fn old_file(path: &Path) -> std::io::Result<()> {
    let file = fs::File::create(path)?;
    file.set_modified(SystemTime::now() - Duration::from_secs(600))
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn apply(lane: &Lane, random: &mut Random, damage: Damage) -> std::io::Result<()> {
    let state = lane.state();
    let database = state.join("driftless.db");
    let wal = state.join("driftless.db-wal");
    let backup = state.join("driftless-backup.db");
    let mirrors = state.join("mirrors");
    let mirror = fs::read_dir(&mirrors)?.flatten().map(|it| it.path()).find(|it| it.is_dir());
    let mirror = mirror.unwrap_or_else(|| mirrors.join("infra"));
    let pages = fs::metadata(&database)?.len() / 4096;
    let page = |random: &mut Random| if pages > 1 { random.between(1, pages) * 4096 } else { 0 };
    let of_kind = |end: &str| {
        files(&mirror).into_iter().filter(|it| it.to_string_lossy().ends_with(end)).collect::<Vec<_>>()
    };
    let references = || {
        let mut all = files(&mirror.join("refs"));
        all.push(mirror.join("packed-refs"));
        all.retain(|it| it.is_file());
        all
    };
    match damage {
        Damage::Page => {
            let at = page(random);
            noise(&database, at, 4096, random)?;
        }
        Damage::Pages => {
            for _ in 0..5 {
                let at = page(random);
                noise(&database, at, 4096, random)?;
            }
        }
        Damage::Header => noise(&database, 0, 100, random)?,
        Damage::Half => fs::File::options().write(true).open(&database)?.set_len(pages / 2 * 4096)?,
        Damage::Empty => fs::File::options().write(true).open(&database)?.set_len(0)?,
        Damage::Gone => fs::remove_file(&database)?,
        Damage::Folder => {
            fs::remove_file(&database)?;
            fs::create_dir(&database)?;
        }
        Damage::WalGone => remove_if_there(&wal)?,
        Damage::WalNoise => {
            if let Ok(metadata) = fs::metadata(&wal) {
                noise(&wal, metadata.len() / 2, 4096, random)?;
            }
        }
        Damage::NoMeta => {
            let connection = rusqlite::Connection::open(&database).map_err(std::io::Error::other)?;
            connection.execute_batch("drop table if exists meta").map_err(std::io::Error::other)?;
        }
        Damage::BackupNoise => noise(&backup, 0, 8192, random)?,
        Damage::BackupGone => fs::remove_file(&backup)?,
        Damage::Both => {
            for path in files(&state) {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if path.parent() == Some(&state) && name.starts_with("driftless") && name.contains(".db") {
                    fs::remove_file(path)?;
                }
            }
        }
        Damage::AgentIdGone => fs::remove_file(state.join("agent-id"))?,
        Damage::AgentIdNoise => fs::write(state.join("agent-id"), random.bytes(36))?,
        Damage::PackCut => {
            for pack in of_kind(".pack") {
                let length = fs::metadata(&pack)?.len();
                noise(&pack, length, 0, random)?;
                fs::File::options().write(true).open(&pack)?.set_len(length / 2)?;
            }
        }
        Damage::PackNoise => {
            for pack in of_kind(".pack") {
                noise(&pack, 12, 4096, random)?;
            }
        }
        Damage::ObjectsGone => {
            fs::remove_dir_all(mirror.join("objects"))?;
            fs::create_dir(mirror.join("objects"))?;
        }
        Damage::RefEmpty => {
            for path in references() {
                fs::write(path, "")?;
            }
        }
        Damage::RefNoise => {
            for path in references() {
                fs::write(path, random.bytes(41))?;
            }
        }
        Damage::HeadNoise => fs::write(mirror.join("HEAD"), random.bytes(23))?,
        Damage::ConfigNoise => fs::write(mirror.join("config"), random.bytes(60))?,
        Damage::PackedRefsLock => old_file(&mirror.join("packed-refs.lock"))?,
        Damage::RefLock => {
            for path in files(&mirror.join("refs")) {
                old_file(&path.with_file_name(format!(
                    "{}.lock",
                    path.file_name().unwrap_or_default().to_string_lossy()
                )))?;
            }
            old_file(&mirror.join("HEAD.lock"))?;
        }
        Damage::MirrorFile => {
            fs::remove_dir_all(&mirror)?;
            fs::write(&mirror, "no folder")?;
        }
        Damage::MirrorGone => fs::remove_dir_all(&mirror)?,
        Damage::ContentGone => {
            for path in files(&state.join("contents")) {
                fs::remove_file(path)?;
            }
        }
        Damage::ContentNoise => {
            for path in files(&state.join("contents")) {
                noise(&path, 0, 64, random)?;
            }
        }
        Damage::ContentsGone => fs::remove_dir_all(state.join("contents"))?,
        Damage::RuntimeGone => {
            let _ = fs::remove_dir_all(state.with_file_name("run"));
        }
    }
    Ok(())
}
