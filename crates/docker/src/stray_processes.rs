//! Processes of a container that the engine does not know. An engine that is killed while it starts a container leaves the start
//! to containerd, and comes back without the process; it refuses to start the container as long as the process lives, and
//! so would a second container use the same volumes at the same time.
//!
//! No call to the engine ends such a process. A helper container of the agent's own image sees the processes of the host
//! and ends those in the control group of that one container.

use std::{fs, io, path::Path, str::FromStr, time::Duration};

use driftless_model::ContainerId;
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::{Instant, sleep};

/// The interval at which the processes are looked for until they have ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time that the kernel has to end killed processes.
const KILLED: Duration = Duration::from_secs(10);
/// The length of the id of a container.
const ID_LENGTH: usize = 64;

/// The task of the helper container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrayProcesses {
    /// The container that the processes belong to.
    pub container: ContainerId,
    /// The signal that asks the container's program to stop, such as `SIGTERM`.
    pub signal: String,
    /// The time between this signal and SIGKILL.
    pub grace: Duration,
}

impl StrayProcesses {
    /// The command that the helper container runs.
    pub const COMMAND: &str = "end-processes";

    /// The words of the helper's command.
    pub(crate) fn words(&self) -> Vec<String> {
        let Self { container, signal, grace } = self;
        let grace = grace.as_secs().to_string();
        [Self::COMMAND, container.as_str(), signal, &grace].map(str::to_owned).to_vec()
    }

    /// Reads the words after the name of the command; `None` if they are others, or not those of one container.
    pub fn parse(words: &[String]) -> Option<Self> {
        let [container, signal, grace] = words else { return None };
        let is_id = container.len() == ID_LENGTH && container.bytes().all(|it| it.is_ascii_hexdigit());
        is_id.then_some(Self {
            container: ContainerId(container.clone()),
            signal: signal.clone(),
            grace: Duration::from_secs(grace.parse().ok()?),
        })
    }

    /// Asks the processes to stop, and kills those that still run after the grace period. Returns how many there were.
    ///
    /// # Errors
    ///
    /// If the processes of the host cannot be listed, or one of them cannot be ended.
    pub async fn end(&self) -> io::Result<usize> {
        self.end_in(Path::new("/proc")).await
    }

    async fn end_in(&self, proc: &Path) -> io::Result<usize> {
        let found = self.find(proc)?;
        // A signal by number or of real time is SIGTERM here.
        let signal = Signal::from_str(&self.signal).unwrap_or(Signal::SIGTERM);
        // The container's program, which stops the others as after `docker stop`.
        for process in found.iter().filter(|it| !found.iter().any(|other| other.id == it.parent)) {
            send(process.id, signal)?;
        }
        if !self.have_ended(proc, self.grace).await? {
            for process in self.find(proc)? {
                send(process.id, Signal::SIGKILL)?;
            }
            if !self.have_ended(proc, KILLED).await? {
                return Err(io::Error::other("a killed process still runs"));
            }
        }
        Ok(found.len())
    }

    async fn have_ended(&self, proc: &Path, within: Duration) -> io::Result<bool> {
        let end = Instant::now() + within;
        loop {
            if self.find(proc)?.is_empty() {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// The processes in the container's control group.
    fn find(&self, proc: &Path) -> io::Result<Vec<Process>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(proc)? {
            let folder = entry?.path();
            // A process may end meanwhile.
            let Ok(groups) = fs::read_to_string(folder.join("cgroup")) else { continue };
            if groups.contains(self.container.as_str()) {
                found.extend(Process::read(&folder));
            }
        }
        Ok(found)
    }
}

/// A process of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    id: i32,
    parent: i32,
}

impl Process {
    /// Reads its folder. `None` if it has ended, even if its parent has not asked for it yet, or if it is no process.
    fn read(folder: &Path) -> Option<Self> {
        let id = folder.file_name()?.to_str()?.parse().ok()?;
        // `ID (NAME) STATE PARENT …`; the name may hold anything.
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let mut words = stat.rsplit_once(')')?.1.split_whitespace();
        let (state, parent) = (words.next()?, words.next()?.parse().ok()?);
        (!matches!(state, "Z" | "X")).then_some(Self { id, parent })
    }
}

fn send(process: i32, signal: Signal) -> io::Result<()> {
    match kill(Pid::from_raw(process), signal) {
        // It has ended.
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::{fs::symlink, process::ExitStatusExt},
        process::Command,
    };

    use super::*;

    fn of(id: &str) -> StrayProcesses {
        StrayProcesses {
            container: ContainerId(id.to_owned()),
            signal: "SIGTERM".to_owned(),
            grace: Duration::from_secs(10),
        }
    }

    #[test]
    fn words_of_the_helper_are_read_back() {
        let stray = of(&"a1".repeat(32));
        assert_eq!(StrayProcesses::parse(&stray.words()[1..]), Some(stray.clone()));
        assert_eq!(StrayProcesses::parse(&stray.words()), None);
        // A part of an id, or `/`, is in the control groups of other processes.
        for id in ["", "/", "a1a1", &"/a".repeat(32)] {
            assert_eq!(StrayProcesses::parse(&of(id).words()[1..]), None, "{id}");
        }
    }

    #[test]
    fn only_processes_of_the_container_are_found() {
        let (ours, other) = ("a1".repeat(32), "b2".repeat(32));
        let proc = tempfile::tempdir().unwrap();
        let add = |process: &str, groups: &str, state: &str| {
            let folder = proc.path().join(process);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("cgroup"), groups).unwrap();
            fs::write(folder.join("stat"), format!("{process} (a ) b) {state} 1 1\n")).unwrap();
        };
        add("30", &format!("0::/../docker-{ours}.scope\n"), "S");
        add("7", &format!("12:pids:/docker/{ours}\n11:cpu:/docker/{ours}\n"), "R");
        add("8", &format!("12:pids:/docker/{ours}\n"), "Z");
        add("9", &format!("12:pids:/docker/{other}\n"), "S");
        add("10", "0::/\n", "S");
        add("self", &format!("12:pids:/docker/{ours}\n"), "R");
        fs::create_dir(proc.path().join("11")).unwrap();
        let mut found = of(&ours).find(proc.path()).unwrap();
        found.sort_unstable_by_key(|it| it.id);
        assert_eq!(found, [7, 30].map(|id| Process { id, parent: 1 }));
    }

    #[tokio::test]
    async fn process_that_ignores_the_signal_is_killed() {
        // An ignored signal stays ignored in the program that takes the place of the shell.
        let mut child = Command::new("sh").args(["-c", "trap '' TERM; exec sleep 600"]).spawn().unwrap();
        let (ours, process) = ("a1".repeat(32), child.id().to_string());
        let real = Path::new("/proc").join(&process);
        let end = Instant::now() + Duration::from_mins(1);
        while fs::read_to_string(real.join("comm")).unwrap().trim() != "sleep" {
            assert!(Instant::now() < end, "the program does not start");
            sleep(Duration::from_millis(10)).await;
        }
        let proc = tempfile::tempdir().unwrap();
        let folder = proc.path().join(&process);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("cgroup"), format!("0::/../{ours}\n")).unwrap();
        symlink(real.join("stat"), folder.join("stat")).unwrap();
        let stray = StrayProcesses { grace: Duration::from_millis(300), ..of(&ours) };
        // Its entry is left until this process asks for it, and counts as ended.
        assert_eq!(stray.end_in(proc.path()).await.unwrap(), 1);
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(stray.end_in(proc.path()).await.unwrap(), 0);
    }
}
