//! The results: per fault the cases, those that held, and the longest time to heal.

use std::{collections::BTreeMap, fmt::Write, fs, path::PathBuf, sync::Mutex, time::Duration};

/// One row of the table: faults that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Row {
    Agent,
    EngineStarting,
    Engine,
    StateDiskFull,
    EngineDiskFull,
    Files,
    GitHttp,
    GitSsh,
    EngineNetwork,
    Registry,
}

impl Row {
    fn fault(self) -> &'static str {
        match self {
            Self::Agent => "`kill -9` of the agent, at any moment of a rollout or of its start",
            Self::EngineStarting => "`kill -9` of dockerd while a container starts",
            Self::Engine => "`kill -9` of dockerd at another moment of a rollout or at rest",
            Self::StateDiskFull => "the file system of the state directory is full",
            Self::EngineDiskFull => "the file system of the engine's data is full",
            Self::Files => "a file of the state directory is damaged, cut short or gone",
            Self::GitHttp => "network to Git, HTTP",
            Self::GitSsh => "network to Git, SSH",
            Self::EngineNetwork => "connection to the engine",
            Self::Registry => "network to the registry",
        }
    }

    /// The numbers of the checks in docs/reliability.md.
    fn checks(self) -> &'static str {
        match self {
            Self::Agent => "1-9",
            Self::EngineStarting | Self::Engine => "1-6, 8, 9",
            Self::StateDiskFull => "1-4, 6, 8, 9, 11",
            Self::EngineDiskFull => "1, 2, 6, 9",
            Self::Files => "1-4, 6, 8, 9, 12",
            Self::GitHttp | Self::GitSsh | Self::Registry => "1-4, 6, 8, 9",
            Self::EngineNetwork => "1-4, 6, 8-10",
        }
    }

    fn goal(self) -> usize {
        match self {
            Self::Agent => 1000,
            Self::EngineStarting | Self::Engine | Self::EngineNetwork | Self::Registry => 50,
            Self::StateDiskFull | Self::EngineDiskFull => 20,
            Self::Files => 60,
            Self::GitHttp | Self::GitSsh => 25,
        }
    }
}

/// The parts of the campaign with their rows.
pub(crate) const PARTS: [(&str, &[Row]); 5] = [
    ("agent", &[Row::Agent]),
    ("engine", &[Row::EngineStarting, Row::Engine]),
    ("disk", &[Row::StateDiskFull, Row::EngineDiskFull]),
    ("files", &[Row::Files]),
    ("network", &[Row::GitHttp, Row::GitSsh, Row::EngineNetwork, Row::Registry]),
];

#[derive(Default)]
struct Count {
    cases: usize,
    held: usize,
    longest: Duration,
}

#[derive(Default)]
struct Results {
    rows: BTreeMap<Row, Count>,
    /// By row and kind.
    kinds: BTreeMap<(Row, String), Count>,
    /// With the row, if it is about one.
    misses: Vec<(Option<Row>, String)>,
}

pub(crate) struct Table {
    results: Mutex<Results>,
    /// The logs of agents that missed.
    folder: PathBuf,
}

impl Table {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { results: Mutex::default(), folder }
    }

    /// Counts `cases` of one kind that ended alike.
    pub(crate) fn record(&self, row: Row, kind: &str, cases: usize, result: &Result<Duration, String>) {
        let mut results = self.results.lock().expect("no holder of this lock panics");
        let results = &mut *results;
        let kind = results.kinds.entry((row, kind.to_owned())).or_default();
        for count in [results.rows.entry(row).or_default(), kind] {
            count.cases += cases;
            if let Ok(took) = result {
                count.held += cases;
                count.longest = count.longest.max(*took);
            }
        }
    }

    /// Counts the moment of a kill.
    pub(crate) fn note(&self, row: Row, kind: &str) {
        let mut results = self.results.lock().expect("no holder of this lock panics");
        results.kinds.entry((row, format!("{MOMENT}{kind}"))).or_default().cases += 1;
    }

    /// Keeps a miss with the end of the agent's log.
    pub(crate) fn miss(&self, row: Option<Row>, what: &str, log: &str) {
        eprintln!("MISSED {what}");
        let mut results = self.results.lock().expect("no holder of this lock panics");
        results.misses.push((row, what.to_owned()));
        let file = self.folder.join(format!("miss-{}.log", results.misses.len()));
        let _ = fs::create_dir_all(&self.folder);
        if let Err(error) = fs::write(&file, format!("{what}\n\n{log}\n")) {
            eprintln!("could not write {}: {error}", file.display());
        }
    }

    pub(crate) fn progress(&self) -> String {
        let results = self.results.lock().expect("no holder of this lock panics");
        let all = results.rows.iter().map(|(row, count)| format!("{row:?} {}/{}", count.held, count.cases));
        all.collect::<Vec<_>>().join("  ")
    }

    pub(crate) fn has_misses(&self) -> bool {
        !self.results.lock().expect("no holder of this lock panics").misses.is_empty()
    }

    /// The section of docs/reliability.md about one part.
    pub(crate) fn markdown(&self, head: &str, rows: &[Row]) -> String {
        let results = self.results.lock().expect("no holder of this lock panics");
        let mut text = format!(
            "{head}\n\n| fault | goal | cases | held | checks | longest time to heal | |\n|---|---|---|---|---|---|---|\n"
        );
        for row in rows {
            let empty = Count::default();
            let count = results.rows.get(row).unwrap_or(&empty);
            let not_run = row.goal().saturating_sub(count.cases);
            let missed = count.cases - count.held;
            let verdict = match (missed, not_run) {
                (0, 0) => "held".to_owned(),
                (0, not_run) => format!("**missed**: {not_run} cases were not run"),
                (missed, 0) => format!("**missed**: {missed} of {} did not hold", count.cases),
                (missed, not_run) => {
                    format!("**missed**: {missed} of {} did not hold, {not_run} were not run", count.cases)
                }
            };
            let longest = if count.held == 0 { "–".to_owned() } else { seconds(count.longest) };
            let (fault, goal, checks) = (row.fault(), row.goal(), row.checks());
            let (cases, held) = (count.cases, count.held);
            let _ =
                writeln!(text, "| {fault} | {goal} | {cases} | {held} | {checks} | {longest} | {verdict} |");
        }
        text.push_str("\n<details><summary>By kind</summary>\n\n| fault | kind | cases | held | longest |\n|---|---|---|---|---|\n");
        for ((row, kind), count) in results.kinds.iter().filter(|((row, _), _)| rows.contains(row)) {
            let is_moment = kind.starts_with(MOMENT);
            let held = if is_moment { String::new() } else { count.held.to_string() };
            let longest = if count.held == 0 { String::new() } else { seconds(count.longest) };
            let _ = writeln!(text, "| {row:?} | {kind} | {} | {held} | {longest} |", count.cases);
        }
        text.push_str("\n</details>\n");
        let misses: Vec<&String> = results
            .misses
            .iter()
            .filter(|(row, _)| row.is_some_and(|row| rows.contains(&row)))
            .map(|(_, what)| what)
            .collect();
        if !misses.is_empty() {
            text.push_str("\nCases that did not hold:\n\n");
            for miss in misses {
                let _ = writeln!(text, "- {}", miss.replace('\n', " "));
            }
        }
        text
    }
}

/// The beginning of a kind that is the moment of a kill: it is counted with the kill, so it holds or misses with it.
const MOMENT: &str = "moment: ";

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
