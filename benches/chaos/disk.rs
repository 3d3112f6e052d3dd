//! Full file systems: that of the state directory, and that of the engine's data.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::{
    Context,
    apps::Kind,
    docker::Docker,
    engine::{Engine, run as command},
    lane::{Allowed, Lane, Ways},
    random::Random,
    table::Row,
};

const KINDS: [Kind; 3] = [Kind::Small, Kind::Pinned, Kind::Suspended];
const CAUSED: Allowed = Allowed { drift: true, repeated_runs: false };

/// A small memory file system, unmounted in the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn at(path: PathBuf, size: &str) -> Result<Self, String> {
        fs::create_dir_all(&path).map_err(|error| error.to_string())?;
        let options = format!("size={size},mode=0700");
        command(&["mount", "-t", "tmpfs", "-o", &options, "tmpfs", &path.display().to_string()])?;
        Ok(Self(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = command(&["umount", "-l", &self.0.display().to_string()]);
    }
}

/// Fills a file system up to so many bytes.
fn fill(folder: &Path, left: u64) -> Result<(), String> {
    let path = folder.join("filling");
    let mut file = fs::File::create(&path).map_err(|error| error.to_string())?;
    while file.write_all(&[0; 65536]).is_ok() {}
    while file.write_all(&[0; 512]).is_ok() {}
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    file.set_len(length.saturating_sub(left)).map_err(|error| error.to_string())
}

fn make_room(folder: &Path) {
    let _ = fs::remove_file(folder.join("filling"));
}

/// The state directory is full: the agent keeps what runs as it is, may be killed, and goes on with room.
pub(crate) async fn state(context: &Context, docker: &Docker, cases: usize) -> Result<(), String> {
    let mut random = Random::of(context.seed, "state disk");
    let mut done = 0;
    let mut attempt = 0;
    'lanes: while done < cases && !context.is_over() {
        attempt += 1;
        let name = format!("s{attempt}");
        let disk = SmallDisk::at(context.directory.join(&name).join("state"), "24m")?;
        let mut lane = Lane::start(&context.directory, &name, docker, &KINDS, |_| Ways::default()).await?;
        while done < cases && !context.is_over() {
            let left = [0, 4, 16, 64, 128][done % 5] * 1024;
            let is_killed = random.one_in(2);
            let result = state_case(&mut lane, &disk, &mut random, left, is_killed).await;
            make_room(&disk.0);
            let kind = format!("{} KiB left{}", left / 1024, if is_killed { ", agent killed" } else { "" });
            context.table.record(Row::StateDiskFull, &kind, 1, &result);
            done += 1;
            if let Err(error) = result {
                let what = format!("state directory full, {kind} ({name}, case {done}): {error}");
                context.table.miss(Some(Row::StateDiskFull), &what, &lane.log_tail());
                lane.end().await;
                continue 'lanes;
            }
        }
        lane.end().await;
    }
    Ok(())
}

async fn state_case(
    lane: &mut Lane,
    disk: &SmallDisk,
    random: &mut Random,
    left: u64,
    is_killed: bool,
) -> Result<Duration, String> {
    fill(&disk.0, left)?;
    lane.commit(&KINDS);
    lane.sync().await;
    remove_one(lane).await?;
    sleep(Duration::from_millis(random.between(500, 3000))).await;
    if is_killed {
        lane.kill();
        lane.launch()?;
    }
    // A removed container comes back although the disk is full, or the application says what keeps it from that: a
    // commit that was fetched before the disk was full may need a mounted file that cannot be written.
    let app = lane.app(Kind::Small).unwrap_or_default();
    let began = Instant::now();
    loop {
        let containers = lane.docker.containers(&app).await?;
        if containers.iter().any(|it| it.variable("ROLE") == "db" && it.state() == "running") {
            break;
        }
        let message = lane.message(&app).await;
        if message.contains("No space left") || message.contains("full") {
            break;
        }
        if began.elapsed() > Duration::from_secs(60) {
            return Err(
                "a removed container was neither healed nor reported within 60 s while the disk was full"
                    .into(),
            );
        }
        sleep(Duration::from_millis(200)).await;
    }
    make_room(&disk.0);
    lane.sync().await;
    let began = Instant::now();
    lane.settle(CAUSED).await?;
    Ok(began.elapsed())
}

/// Removes the container of the service `db` of the lane's small application, as a user would.
pub(crate) async fn remove_one(lane: &Lane) -> Result<(), String> {
    let app = lane.app(Kind::Small).unwrap_or_default();
    for container in lane.docker.containers(&app).await? {
        if container.variable("ROLE") == "db" {
            lane.docker.remove(&container.id()).await;
        }
    }
    Ok(())
}

/// The engine's data are on a full disk.
pub(crate) async fn engine(context: &Context, cases: usize) -> Result<(), String> {
    let kinds = [Kind::Roll, Kind::Kube, Kind::Pinned];
    let mut random = Random::of(context.seed, "engine disk");
    let mut done = 0;
    let mut attempt = 0;
    'lanes: while done < cases && !context.is_over() {
        attempt += 1;
        // An engine of its own each time: a full disk may leave it with damage of its own.
        let name = format!("d{attempt}");
        let engine = Engine::start(&context.directory, &format!("full{attempt}"), Some(96)).await?;
        let mut lane =
            Lane::start(&context.directory, &name, &engine.docker, &kinds, |_| Ways::default()).await?;
        while done < cases && !context.is_over() {
            let left = [0, 16, 64, 256][done % 4] * 1024;
            let result = async {
                fill(&engine.data(), left)?;
                lane.commit(&[if random.one_in(2) { Kind::Roll } else { Kind::Kube }, Kind::Pinned]);
                lane.sync().await;
                sleep(Duration::from_millis(random.between(2000, 8000))).await;
                make_room(&engine.data());
                let began = Instant::now();
                // The program in a container may have failed to write what the campaign reads; that is not judged here.
                lane.settle_without_data(CAUSED).await?;
                Ok(began.elapsed())
            };
            let result = result.await;
            let kind = format!("{} KiB left", left / 1024);
            context.table.record(Row::EngineDiskFull, &kind, 1, &result);
            done += 1;
            if let Err(error) = result {
                let what = format!("engine's disk full, {kind} ({name}, case {done}): {error}");
                context.table.miss(Some(Row::EngineDiskFull), &what, &lane.log_tail());
                lane.end().await;
                continue 'lanes;
            }
        }
        lane.end().await;
    }
    Ok(())
}
