//! The real Docker Compose, of both generations, to be held against and taken over from.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use super::Docker;

/// One installed release of Docker Compose.
#[derive(Clone, Debug)]
pub struct Compose {
    program: PathBuf,
}

impl Compose {
    /// Docker Compose 2. A test that needs it fails without it: a test that does nothing would look as if it had passed.
    #[track_caller]
    pub fn v2() -> Self {
        Self::find("2.")
            .expect("there is no Docker Compose 2 here; run scripts/test-compose.sh TARGET/test-tools")
    }

    /// docker-compose 1.29, which Debian 12 has and newer releases have not.
    pub fn v1() -> Option<Self> {
        Self::find("1.")
    }

    fn find(generation: &str) -> Option<Self> {
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target"), PathBuf::from);
        let places = [
            target.join("test-tools/docker-compose"),
            "/usr/libexec/docker/cli-plugins/docker-compose".into(),
            "/usr/local/lib/docker/cli-plugins/docker-compose".into(),
            "/usr/bin/docker-compose".into(),
            "/usr/local/bin/docker-compose".into(),
        ];
        for program in places.into_iter().filter(|it: &PathBuf| it.is_file()) {
            let asked = Command::new(&program).args(["version", "--short"]).stdin(Stdio::null()).output();
            let Ok(Output { status, stdout, .. }) = asked else { continue };
            let version = String::from_utf8_lossy(&stdout).trim().trim_start_matches('v').to_owned();
            if status.success() && version.starts_with(generation) {
                return Some(Self { program });
            }
        }
        None
    }

    /// Runs it on a project in a folder; fails the test if it fails.
    #[track_caller]
    pub fn run(&self, folder: &Path, project: &str, words: &[&str]) -> String {
        self.attempt(folder, project, words)
            .unwrap_or_else(|error| panic!("compose {} of {project}: {error}", words.join(" ")))
    }

    /// Its output, or output and errors when it failed.
    pub fn attempt(&self, folder: &Path, project: &str, words: &[&str]) -> Result<String, String> {
        let Output { status, stdout, stderr } =
            self.command(folder, project, words).output().expect("Docker Compose can be started");
        let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        if status.success() { Ok(out.trim().to_owned()) } else { Err(format!("{out}\n{err}")) }
    }

    pub fn command(&self, folder: &Path, project: &str, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("120").arg(&self.program).args(["-p", project]).args(words);
        command.current_dir(folder).env("COMPOSE_INTERACTIVE_NO_CLI", "1").stdin(Stdio::null());
        command
    }
}

/// The remains of a Compose project, removed when dropped.
pub struct Leftovers {
    pub docker: Docker,
    pub project: String,
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        let label = format!("label=com.docker.compose.project={}", self.project);
        for (list, remove) in [
            (["ps", "-aq"].as_slice(), ["rm", "-f", "-v"].as_slice()),
            (&["network", "ls", "-q"], &["network", "rm"]),
            (&["volume", "ls", "-q"], &["volume", "rm"]),
        ] {
            let found = self.docker.attempt(&[list, &["--filter", &label]].concat()).unwrap_or_default();
            for id in found.lines() {
                let _ = self.docker.attempt(&[remove, &[id]].concat());
            }
        }
    }
}
