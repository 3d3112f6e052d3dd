//! Polls, clones and fetches, against the `git` program on the same server.

use std::{
    fs,
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

use driftless_clock::Clock;
use driftless_config::{Proxy, Reference};
use driftless_git::{CommitSource, Credentials, FetchPermits, Repository, RepositoryOptions};
use driftless_model::{CommitId, RepoUrl};
use tokio::time::Instant;

use crate::{
    few,
    harness::{GitServer, git as run},
    process,
    report::{Report, Row, Samples, megabytes, ratio_text},
    samples,
};

/// References of the repository with many of them.
const REFERENCES: usize = 10_000;
/// Commits of the large repository; each brings six objects.
const COMMITS: usize = 16_700;
/// Folders of folders of manifests in it.
const WIDTH: usize = 32;

/// Everything that is served, in one temporary folder.
struct Ground {
    directory: tempfile::TempDir,
    server: GitServer,
}

pub async fn git(report: &mut Report) {
    let directory = tempfile::Builder::new().prefix("driftless-bench-").tempdir().unwrap();
    let served = directory.path().join("served");
    for name in ["small.git", "references.git", "large.git"] {
        fs::create_dir_all(served.join(name)).unwrap();
        run(&served.join(name), &["init", "-q", "--bare", "-b", "main", "."]);
    }
    let server = GitServer::start(&served);
    let ground = Ground { directory, server };
    import(&ground.bare("small.git"), &commit_of("small", 1, false));
    many_references(&ground.bare("references.git"));
    polls(report, &ground);
    clones(report, &ground);
}

impl Ground {
    fn bare(&self, name: &str) -> PathBuf {
        self.directory.path().join("served").join(name)
    }

    fn url(&self, name: &str) -> String {
        self.server.url().replace("infra.git", name)
    }

    /// A folder that does not exist yet.
    fn place(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

fn polls(report: &mut Report, ground: &Ground) {
    let mut found = Vec::new();
    for name in ["small.git", "references.git"] {
        let url = ground.url(name);
        let mirror = ground.place(&format!("mirror-{name}"));
        let mut poller = Poller::start(&url, &mirror);
        let (mut ours, mut one, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..samples() {
            ours.push(poller.poll());
            one.push(process::timed(&mut program(&["ls-remote", &url, "refs/heads/main"])).0);
            all.push(process::timed(&mut program(&["ls-remote", &url])).0);
        }
        let peaks = (poller.peak(), process::peak_of(&mut program(&["ls-remote", &url])));
        found.push((Samples::new(ours), Samples::new(one), Samples::new(all), peaks));
    }
    report.section("Poll without a new commit");
    report.text(&format!(
        "A poll is the agent's work every minute: ask the server where its branch is, and see that the mirror has \
         that commit. Samples alternate with `git ls-remote`, a new process each time, once for that branch and once \
         for all references. One repository has one branch, the other {REFERENCES} references. The server is `git \
         http-backend`, which starts a process for each of two requests. At their peaks the agent's part (as a \
         process of its own, with its first clone) held {} and {} of memory, and `git ls-remote` {} and {}.",
        megabytes(found[0].3.0),
        megabytes(found[1].3.0),
        megabytes(found[0].3.1),
        megabytes(found[1].3.1),
    ));
    let names = ["one branch".to_owned(), format!("{REFERENCES} references")];
    let mut rows = Vec::new();
    for (name, (ours, one, all, _)) in names.iter().zip(&found) {
        rows.push((format!("{name}: `git ls-remote URL refs/heads/main`"), one, 1.0));
        rows.push((format!("{name}: `git ls-remote URL`"), all, all.against(one)));
        rows.push((format!("{name}: a poll"), ours, ours.against(one)));
    }
    let rows: Vec<Row<'_>> =
        rows.iter().map(|(what, samples, ratio)| Row { what, samples, ratio: Some(*ratio) }).collect();
    report.times(&rows);
    for (name, (ours, one, ..)) in names.iter().zip(&found) {
        let ratio = ours.against(one);
        let found = format!("{} × its time", ratio_text(ratio));
        report.goal(&format!("no slower than `git ls-remote`, {name}"), &found, ratio <= 1.0);
    }
}

fn clones(report: &mut Report, ground: &Ground) {
    let bare = ground.bare("large.git");
    let mut stream = String::new();
    for number in 0..COMMITS {
        stream.push_str(&commit_of(&format!("large-{number}"), number, false));
    }
    import(&bare, &stream);
    run(&bare, &["repack", "-adq"]);
    let counted = run(&bare, &["count-objects", "-v"]);
    let count = |name: &str| {
        let line = counted.lines().find_map(|it| it.strip_prefix(name)).unwrap_or_default();
        line.trim().parse::<u64>().unwrap_or_default()
    };
    let (objects, size) = (count("in-pack:"), count("size-pack:") * 1024);
    let url = ground.url("large.git");
    let (mine, its) = (ground.place("mirror-large"), ground.place("clone-large.git"));
    let clear = || {
        for folder in [&mine, &its] {
            let _ = fs::remove_dir_all(folder);
        }
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..few() {
        clear();
        theirs.push(process::timed(&mut clone(&url, &its)).0);
        ours.push(process::timed(&mut agent("fetch", &url, &mine)).0);
    }
    clear();
    let peaks =
        (process::peak_of(&mut agent("fetch", &url, &mine)), process::peak_of(&mut clone(&url, &its)));
    let (clones, git_clones) = (Samples::new(ours), Samples::new(theirs));

    let fetch = || {
        let mut command = program(&["fetch", "-q", "origin", "+refs/heads/main:refs/heads/main"]);
        command.current_dir(&its);
        command
    };
    let mut poller = Poller::start(&url, &mine);
    let (mut ours, mut fresh, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..samples() {
        import(&bare, &commit_of(&format!("more-{round}"), round, true));
        theirs.push(process::timed(&mut fetch()).0);
        ours.push(poller.poll());
    }
    poller.end();
    for round in 0..few() {
        import(&bare, &commit_of(&format!("fresh-{round}"), round, true));
        run(&its, &["fetch", "-q", "origin", "+refs/heads/main:refs/heads/main"]);
        fresh.push(process::timed(&mut agent("fetch", &url, &mine)).0);
    }
    import(&bare, &commit_of("last", 0, true));
    let fetch_peaks = (process::peak_of(&mut agent("fetch", &url, &mine)), process::peak_of(&mut fetch()));
    let (fetches, fresh, git_fetches) = (Samples::new(ours), Samples::new(fresh), Samples::new(theirs));
    let head = run(&bare, &["rev-parse", "main"]);
    assert_eq!(run(&its, &["rev-parse", "main"]), head, "both are where the server is");

    report.section("Clone and fetch");
    report.text(&format!(
        "A repository of {objects} objects, {} packed, over HTTP: {COMMITS} commits to {} manifests. The first clone \
         is a whole process on both sides: the agent's part, which reads every file of the newest commit before it \
         accepts it, and `git clone --bare --single-branch`. Then one commit after another is fetched by a running \
         agent and by `git fetch` in a bare clone. The last line is a fetch by an agent that was just started and \
         reads every file again.",
        megabytes(size),
        WIDTH * WIDTH,
    ));
    report.times(&[
        Row { what: "`git clone`", samples: &git_clones, ratio: Some(1.0) },
        Row { what: "first clone by the agent", samples: &clones, ratio: Some(clones.against(&git_clones)) },
        Row { what: "`git fetch` of one commit", samples: &git_fetches, ratio: Some(1.0) },
        Row { what: "fetch by the agent", samples: &fetches, ratio: Some(fetches.against(&git_fetches)) },
        Row { what: "fetch after a start", samples: &fresh, ratio: Some(fresh.against(&git_fetches)) },
    ]);
    report.table(&["peak memory of the largest process", "agent", "git"]);
    report.row(&["first clone".to_owned(), megabytes(peaks.0), megabytes(peaks.1)]);
    report.row(&["fetch of one commit".to_owned(), megabytes(fetch_peaks.0), megabytes(fetch_peaks.1)]);
    report.line("");
    report.text(
        "The agent maps the pack into memory. The mapped pages count here, and the kernel can reclaim them \
                 at any time.",
    );
    for (what, ours, theirs) in [("clone", &clones, &git_clones), ("fetch", &fetches, &git_fetches)] {
        let ratio = ours.against(theirs);
        report.goal(
            &format!("near `git {what}`: ≤ 1.25 ×"),
            &format!("{} ×", ratio_text(ratio)),
            ratio <= 1.25,
        );
    }
}

/// One commit in the form of `git fast-import`, to one manifest among many. The first of a stream has no parent.
fn commit_of(subject: &str, number: usize, has_parent: bool) -> String {
    let text = manifest(subject, number);
    let path = format!("sites/g{}/a{}/compose.yaml", number % WIDTH, number / WIDTH % WIDTH);
    let parent = if has_parent { "from refs/heads/main^0\n" } else { "" };
    // A date of its own makes every commit another one.
    let date = 1_700_000_000 + number;
    format!(
        "commit refs/heads/main\ncommitter Ops <ops@example.com> {date} +0000\ndata {}\n{subject}\n{parent}M 100644 \
         inline {path}\ndata {}\n{text}\n",
        subject.len(),
        text.len()
    )
}

fn manifest(subject: &str, number: usize) -> String {
    let mut text = format!("# {subject}\nservices:\n");
    for service in 0..6 {
        // Something that no other file has, as digests and names are.
        let token = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(service * 7);
        text.push_str(&format!(
            "  service{service}:\n    image: registry.example.com/team/service{service}:{}-{token:016x}\n    restart: \
             unless-stopped\n    environment:\n      PORT: \"{}\"\n      TOKEN_ID: {token:x}\n",
            number % 97,
            8000 + service
        ));
    }
    text
}

fn import(bare: &Path, stream: &str) {
    let mut command = program(&["fast-import", "--quiet", "--force"]);
    let mut child = command.current_dir(bare).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(stream.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "the commits are taken");
}

fn many_references(bare: &Path) {
    import(bare, &commit_of("many", 1, false));
    let id = run(bare, &["rev-parse", "main"]);
    let mut child =
        program(&["update-ref", "--stdin"]).current_dir(bare).stdin(Stdio::piped()).spawn().unwrap();
    let orders: String = (1..REFERENCES)
        .map(|number| match number % 10 {
            0..3 => format!("create refs/tags/v0.{number} {id}\n"),
            _ => format!("create refs/heads/team/topic-{number} {id}\n"),
        })
        .collect();
    child.stdin.take().unwrap().write_all(orders.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "the references are made");
    run(bare, &["pack-refs", "--all"]);
}

/// Git without the machine's own configuration.
fn program(words: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(words).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command
}

fn clone(url: &str, place: &Path) -> Command {
    let mut command = program(&["clone", "-q", "--bare", "--single-branch", "--no-tags", url]);
    command.arg(place);
    command
}

/// The agent's part in a process of its own: this program again.
fn agent(task: &str, url: &str, mirror: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env("BENCH_CHILD", task).env("BENCH_URL", url).env("BENCH_MIRROR", mirror);
    command
}

/// The fetching part of an agent, in a child process. It polls on request.
struct Poller {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Poller {
    fn start(url: &str, mirror: &Path) -> Self {
        let mut command = agent("poll", url, mirror);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut poller = Self { child, orders, answers };
        // The first one clones.
        poller.poll();
        poller
    }

    /// The duration that the child measured.
    fn poll(&mut self) -> Duration {
        self.orders.write_all(b"poll\n").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        Duration::from_nanos(line.trim().parse().expect("it polls"))
    }

    fn peak(&self) -> u64 {
        process::peak(self.child.id()).expect("it runs")
    }

    fn end(mut self) {
        drop(self.orders);
        self.child.wait().unwrap();
    }
}

/// Runs a task of this program in a child process.
pub async fn child(task: &str) {
    let variable = |name: &str| std::env::var(name).unwrap();
    let options = RepositoryOptions {
        url: RepoUrl::parse(&variable("BENCH_URL")).unwrap(),
        reference: Reference::Branch("main".into()),
        credentials: Credentials::none(),
        ca_file: None,
        proxy: Proxy::Direct,
        submodules: false,
        submodule_paths: Vec::new(),
        policies: Vec::new(),
        timeout: Duration::from_mins(5),
        idle_timeout: Duration::from_mins(1),
        mirror: PathBuf::from(variable("BENCH_MIRROR")),
        most_bytes: 1 << 30,
        clone_pause: Duration::from_mins(5),
        download_pause: Duration::ZERO,
        permits: FetchPermits::default(),
        clock: Clock::System,
    };
    let repository = Repository::open(options).unwrap();
    if task == "fetch" {
        repository.fetch(None).await.unwrap();
        return;
    }
    let mut known: Option<CommitId> = None;
    for line in std::io::stdin().lines() {
        line.unwrap();
        let began = Instant::now();
        let checkout = repository.fetch(known.as_ref()).await.unwrap();
        println!("{}", began.elapsed().as_nanos());
        known = Some(checkout.commit.id);
    }
}
