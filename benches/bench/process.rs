//! What a process costs, as the kernel counts it.

use std::{
    collections::BTreeSet,
    fs,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

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

/// The processor time of all programs that were started from here and have ended, in steps of 10 ms.
pub fn cpu_of_children() -> Duration {
    ticks("self", 13)
}

/// The processor time that this thread used so far, in steps of a few milliseconds. Unlike a clock it does not count
/// what others did on the same core.
pub fn own_cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Resident memory now, in bytes.
pub fn memory(process: u32) -> u64 {
    field(process, "VmRSS:").expect("the process runs")
}

/// The most it ever had.
pub fn peak(process: u32) -> Option<u64> {
    field(process, "VmHWM:")
}

fn field(process: u32, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|it| it.strip_prefix(name))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|it| it * 1024)
}

/// How long a program ran, and what it said.
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
