//! `driftless preview` of two commits of a large repository, as a step of CI runs it.

use std::{fmt::Write as _, fs, path::Path, process::Command, time::Duration};

use crate::{
    harness::git,
    process,
    report::{Report, Row, Samples, megabytes, time},
    samples,
};

/// Numbers of files: in the commit, and changed by the next commit.
const SIZES: [(usize, usize); 2] = [(100, 10), (1000, 10)];

pub fn preview(report: &mut Report) {
    let directory = tempfile::tempdir().unwrap();
    let (mut previews, mut diffs, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    let mut processors = Vec::new();
    for (files, changed) in SIZES {
        let bare = repository(&directory.path().join(files.to_string()), files, changed);
        let (mut ours, mut theirs, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..samples() {
            let before = process::cpu_of_children();
            let (took, output) = process::timed(&mut command(&bare));
            cpu.push(process::cpu_of_children() - before);
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                matches!(output.status.code(), Some(0 | 1)),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            assert!(text.contains("app7"), "the change is named: {text}");
            ours.push(took);
            let mut diff = Command::new("git");
            diff.args(["diff", "main~1", "main"]).current_dir(&bare);
            theirs.push(process::timed(&mut diff).0);
        }
        memory.push(process::peak_of(&mut command(&bare)));
        previews.push(Samples::new(ours));
        processors.push(Samples::new(cpu));
        diffs.push(Samples::new(theirs));
    }
    report.section("Preview of a change");
    report.text(&format!(
        "`driftless preview --base main~1 --head main` runs in a clone with that many Compose files of three \
         services each; the newer commit changes ten of them. Each sample is a new process without a cache of its \
         own; the disk cache is warm. `git diff` of the same two commits compares text without parsing it. The \
         processor time is the sum over all threads and does not depend on other load. At its peak the process held \
         {} and {} of memory.",
        megabytes(memory[0]),
        megabytes(memory[1]),
    ));
    report.times(&[
        Row { what: "100 files: `git diff`", samples: &diffs[0], ratio: None },
        Row { what: "100 files: preview", samples: &previews[0], ratio: Some(1.0) },
        Row { what: "100 files: preview, processor time", samples: &processors[0], ratio: None },
        Row { what: "1,000 files: `git diff`", samples: &diffs[1], ratio: None },
        Row {
            what: "1,000 files: preview",
            samples: &previews[1],
            ratio: Some(previews[1].against(&previews[0])),
        },
        Row { what: "1,000 files: preview, processor time", samples: &processors[1], ratio: None },
    ]);
    let took = previews[1].median();
    report.goal("≤ 1 s for 1,000 Compose files", &time(took), took <= Duration::from_secs(1));
}

fn command(repository: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_driftless"));
    command.args(["preview", "--base", "main~1", "--head", "main"]).arg(repository);
    command
}

/// A bare clone with two commits, packed as clones are.
fn repository(folder: &Path, files: usize, changed: usize) -> std::path::PathBuf {
    let work = folder.join("work");
    fs::create_dir_all(&work).unwrap();
    git(&work, &["init", "-q", "-b", "main", "."]);
    let write = |number: usize, version: &str| {
        let app = work.join(format!("sites/app{number}"));
        fs::create_dir_all(&app).unwrap();
        fs::write(app.join("compose.yaml"), compose(number, version)).unwrap();
    };
    (0..files).for_each(|it| write(it, "1.0"));
    git(&work, &["add", "-A"]);
    git(&work, &["commit", "-q", "-m", "first"]);
    (0..changed).for_each(|it| write(it, "1.1"));
    git(&work, &["commit", "-q", "-a", "-m", "second"]);
    let bare = folder.join("infra.git");
    let url = format!("file://{}", work.display());
    git(folder, &["clone", "-q", "--bare", &url, bare.to_str().unwrap()]);
    bare
}

fn compose(number: usize, version: &str) -> String {
    let mut text = "services:\n".to_owned();
    for service in ["web", "api", "worker"] {
        let _ = write!(
            text,
            "  {service}:\n    image: registry.example.com/app{number}/{service}:{version}\n    restart: unless-stopped\n    \
             environment:\n      APP: app{number}\n      PORT: \"8080\"\n    healthcheck: {{test: [CMD, /bin/true], \
             interval: 10s}}\n    volumes: [{service}:/data]\n    deploy: {{resources: {{limits: {{memory: 256M}}}}}}\n"
        );
    }
    text + "volumes:\n  web:\n  api:\n  worker:\n"
}
