//! Figures, and the Markdown that shows them.

use std::{fs, process::Command, time::Duration};

/// The measurements in their order, and whether each goal was met.
#[derive(Default)]
pub struct Report {
    text: String,
    goals: Vec<[String; 4]>,
    section: String,
}

/// One line of a table of times.
pub struct Row<'a> {
    pub what: &'a str,
    pub samples: &'a Samples,
    /// Against what the table begins with.
    pub ratio: Option<f64>,
}

impl Report {
    pub fn section(&mut self, title: &str) {
        title.clone_into(&mut self.section);
        self.line("");
        self.line(&format!("## {title}"));
        self.line("");
    }

    /// A paragraph of the report.
    pub fn text(&mut self, text: &str) {
        for line in wrapped(text, 118) {
            self.line(&line);
        }
        self.line("");
    }

    pub fn table(&mut self, head: &[&str]) {
        self.row(head);
        self.row(&vec!["---"; head.len()]);
    }

    pub fn row<T: AsRef<str>>(&mut self, cells: &[T]) {
        let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
        self.line(&format!("| {} |", cells.join(" | ")));
    }

    /// Times, each with its median, its extremes and how many there are of it.
    pub fn times(&mut self, rows: &[Row<'_>]) {
        self.table(&["what", "median", "min", "max", "n", "ratio"]);
        for Row { what, samples, ratio } in rows {
            let ratio = ratio.map(ratio_text).unwrap_or_default();
            self.row(&[
                (*what).to_owned(),
                time(samples.median()),
                time(samples.min()),
                time(samples.max()),
                samples.len().to_string(),
                ratio,
            ]);
        }
        self.line("");
    }

    /// Adds a goal, the measured value, and whether the goal is met.
    pub fn goal(&mut self, goal: &str, found: &str, is_met: bool) {
        let verdict = if is_met { "met" } else { "**missed**" };
        self.line(&format!("Goal: {goal}. Found: **{found}**, {verdict}."));
        self.goals.push([self.section.clone(), goal.to_owned(), found.to_owned(), verdict.to_owned()]);
    }

    /// A part that could not be measured to its end, and why.
    pub fn failed(&mut self, part: &str, why: &str) {
        let why = why.lines().next().unwrap_or_default().replace('|', "/");
        self.line("");
        self.line(&format!("**The part `{part}` was not measured completely:** {why}"));
        self.goals.push([
            part.to_owned(),
            String::new(),
            "not measured completely".into(),
            "**failed**".into(),
        ]);
    }

    pub fn line(&mut self, line: &str) {
        println!("{line}");
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Shows the goals, and writes everything if it is everything.
    pub fn end(&self, is_whole: bool) {
        let mut text = "# Benchmarks\n\n".to_owned();
        let about = format!(
            "Written by `make bench`, in one run on one machine: {}. Absolute times depend on that machine and its \
             other load. The samples of each comparison alternate, so the ratios are what counts. \
             `BENCH_ONLY=drift,push,…` measures single parts and only prints them; `BENCH_SAMPLES` sets the number \
             of samples.",
            machine()
        );
        for line in wrapped(&about, 118) {
            text.push_str(&line);
            text.push('\n');
        }
        text.push_str("\n| topic | goal | found | |\n| --- | --- | --- | --- |\n");
        for goal in &self.goals {
            text.push_str(&format!("| {} |\n", goal.join(" | ")));
        }
        println!("\n{text}");
        if !is_whole {
            println!("Not everything was measured, so docs/benchmarks.md stays as it is.");
            return;
        }
        text.push_str(&self.text);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/benchmarks.md");
        fs::write(path, &text).unwrap();
        println!("written to {path}");
    }
}

/// Many measurements of one thing.
#[derive(Clone)]
pub struct Samples(Vec<Duration>);

impl Samples {
    pub fn new(mut samples: Vec<Duration>) -> Self {
        assert!(!samples.is_empty(), "something was measured");
        samples.sort_unstable();
        Self(samples)
    }

    pub fn median(&self) -> Duration {
        self.0[self.0.len() / 2]
    }

    /// The value that so many percent of the samples do not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() * percent / 100).min(self.0.len() - 1)]
    }

    pub fn min(&self) -> Duration {
        self.0[0]
    }

    pub fn max(&self) -> Duration {
        self.0[self.0.len() - 1]
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The quotient of this median and another one.
    pub fn against(&self, other: &Self) -> f64 {
        self.median().as_secs_f64() / other.median().as_secs_f64()
    }
}

pub fn time(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    if ms < 0.1 {
        format!("{:.1} µs", ms * 1000.0)
    } else if ms < 10.0 {
        format!("{ms:.2} ms")
    } else if ms < 10_000.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{:.1} s", ms / 1000.0)
    }
}

pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

pub fn ratio_text(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.0}") } else { format!("{ratio:.2}") }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().unwrap();
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

/// In general words: cores, versions, and how much else they had to do.
fn machine() -> String {
    let run = |program: &str, words: &[&str]| {
        let output = Command::new(program).args(words).output();
        output.map(|it| String::from_utf8_lossy(&it.stdout).trim().to_owned()).unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let engine = run("docker", &["version", "--format", "{{.Server.Version}}"]);
    let git = run("git", &["--version"]);
    let git = git.trim_start_matches("git version ");
    let date = run("date", &["-u", "+%Y-%m-%d"]);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').nth(2).unwrap_or_default();
    format!("{cores} cores, Docker Engine {engine}, Git {git}, load over the last 15 minutes {load}, {date}")
}
