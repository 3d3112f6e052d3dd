//! Memory and processor time of a process, as the kernel counts them.

use std::{
    collections::BTreeSet,
    fs,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use nix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// The processor time used so far, in steps of 10 ms.
pub fn cpu(process: u32) -> Duration {
    ticks(&process.to_string(), 11)
}

/// Two times of `/proc/PID/stat`, user and system, from the one of this number on.
fn ticks(process: &str, first: usize) -> Duration {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    // The name in brackets may hold blanks. After it come the state, then numbers: the times of the process are
    // the 11th and 12th of these, those of its children follow.
    let (_, rest) = text.rsplit_once(')').expect("/proc/PID/stat has a name in brackets");
    let numbers: Vec<i64> =
        rest.split_whitespace().skip(1).map(|it| it.parse().unwrap_or_default()).collect();
    Duration::from_millis(10 * u64::try_from(numbers[first - 1] + numbers[first]).unwrap())
}

/// The processor time of the threads of a process so far, exactly. A thread that has ended is not counted any more.
pub fn cpu_of_threads(process: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("the process runs").flatten();
    let times = threads.filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok());
    times.filter_map(|text| text.split(' ').next()?.parse().ok()).map(Duration::from_nanos).sum()
}

/// The processor time of all programs that were started from here and have ended, in steps of 10 ms.
pub fn cpu_of_children() -> Duration {
    ticks("self", 13)
}

/// The processor time that this thread used so far. Unlike a clock it does not count what others did on the same core.
pub fn own_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the kernel has this clock").into()
}

/// The memory of a process now, in bytes.
#[derive(Clone, Copy)]
pub struct Memory {
    /// All its pages that are in memory, with the pages of files that the kernel can read again.
    pub resident: u64,
    /// The same, with each page that several processes share counted as its part.
    pub proportional: u64,
    /// Pages that no other process maps.
    pub private: u64,
    /// Private pages that were written: the kernel can only swap these out, so they are what the process costs.
    pub dirty: u64,
}

/// Reads `/proc/PID/smaps_rollup`.
pub fn memory(process: u32) -> Memory {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).expect("the process runs");
    let field = |name| kilobytes(&text, name).expect("Linux 4.14 or later names it");
    let dirty = field("Private_Dirty:");
    Memory {
        resident: field("Rss:"),
        proportional: field("Pss:"),
        private: field("Private_Clean:") + dirty,
        dirty,
    }
}

/// The most it ever had.
pub fn peak(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    kilobytes(&text, "VmHWM:")
}

/// A value that the kernel writes in kB, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|it| it.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|it| it * 1024)
}

/// Runs a program. Returns its duration and its output.
pub fn timed(command: &mut Command) -> (Duration, Output) {
    let began = Instant::now();
    let output = command.stdin(Stdio::null()).output().unwrap();
    (began.elapsed(), output)
}

/// The most memory that the largest process of a program had: its own or that of one it started. Looking at it costs
/// time, so this is a run of its own.
pub fn peak_of(command: &mut Command) -> u64 {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = most.max(largest(&child));
        #[expect(clippy::disallowed_methods, reason = "nothing else is to run meanwhile")]
        std::thread::sleep(Duration::from_millis(2));
    }
    most
}

fn largest(child: &Child) -> u64 {
    let (mut seen, mut to_do, mut most) = (BTreeSet::new(), vec![child.id()], 0);
    while let Some(process) = to_do.pop() {
        if !seen.insert(process) {
            continue;
        }
        most = most.max(peak(process).unwrap_or_default());
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            to_do.extend(children.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
        }
    }
    most
}
