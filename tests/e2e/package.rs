//! The Debian package: installed, upgraded, removed and purged by dpkg below a root folder of its own.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// A root folder with a dpkg database.
struct Host {
    folder: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for path in ["root/var/lib/dpkg/updates", "root/var/lib/dpkg/info"] {
            fs::create_dir_all(folder.path().join(path)).unwrap();
        }
        for path in ["root/var/lib/dpkg/status", "root/var/lib/dpkg/available"] {
            fs::write(folder.path().join(path), "").unwrap();
        }
        Self { folder }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path)
    }

    /// A package of the real program under another version.
    fn package(&self, version: &str, configuration: &str) -> PathBuf {
        let program = env!("CARGO_BIN_EXE_driftless");
        let tree = self.folder.path().join(format!("tree-{version}"));
        fs::create_dir_all(tree.join("man")).unwrap();
        fs::create_dir_all(tree.join("completions")).unwrap();
        fs::create_dir_all(tree.join("docs")).unwrap();
        // The program of the tests has hundreds of megabytes of debug information.
        fs::write(tree.join("driftless"), format!("#!/bin/sh\necho driftless {version}\n")).unwrap();
        for (from, to) in [
            ("LICENSE", "LICENSE"),
            ("README.md", "README.md"),
            ("CHANGELOG.md", "CHANGELOG.md"),
            ("deploy/driftless.service", "driftless.service"),
            ("config/driftless.schema.json", "driftless.schema.json"),
            ("config/driftless.yaml", "driftless.example.yaml"),
            ("docs/troubleshooting.md", "docs/troubleshooting.md"),
        ] {
            fs::copy(from, tree.join(to)).unwrap();
        }
        run(Command::new(program).arg("man").arg(tree.join("man")));
        for (shell, file) in [("bash", "driftless.bash"), ("zsh", "_driftless"), ("fish", "driftless.fish")] {
            fs::write(
                tree.join("completions").join(file),
                run(Command::new(program).args(["completion", shell])),
            )
            .unwrap();
        }
        // The scripts as they are, with another configuration.
        let scripts = self.folder.path().join(format!("scripts-{version}"));
        run(Command::new("cp").args(["-r", "deploy/package"]).arg(&scripts));
        fs::write(scripts.join("driftless.yaml"), configuration).unwrap();
        let file = self.folder.path().join(format!("driftless_{version}_amd64.deb"));
        run(Command::new(scripts.join("deb.sh")).arg(&tree).args([version, "amd64", "2.31"]).arg(&file));
        file
    }

    fn dpkg(&self, arguments: &[&str]) {
        let root = format!("--root={}", self.path("").display());
        let force = "--force-depends,script-chrootless,architecture,confold";
        run(Command::new("dpkg").args([&root, force]).args(arguments));
    }
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn package_is_installed_upgraded_removed_and_purged() {
    let host = Host::new();
    let (first, second) = (host.package("1.0.0", "# one\n"), host.package("1.1.0", "# two\n"));
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    let fields = run(Command::new("dpkg-deb").args(["--field", first]));
    assert!(fields.contains("Depends: libc6 (>= 2.31)") && fields.contains("Version: 1.0.0"), "{fields}");

    host.dpkg(&["-i", first]);
    assert!(text(&host.path("usr/bin/driftless")).contains("driftless 1.0.0"));
    let unit = text(&host.path("lib/systemd/system/driftless.service"));
    assert!(unit.contains("ExecStart=/usr/bin/driftless run") && !unit.contains("/usr/local/"), "{unit}");
    assert!(host.path("usr/share/man/man1/driftless-run.1.gz").exists());
    assert!(text(&host.path("usr/share/doc/driftless/docs/troubleshooting.md")).contains("UnknownHost"));
    assert!(text(&host.path("usr/share/bash-completion/completions/driftless")).contains("healthcheck"));
    let configuration = host.path("etc/driftless/driftless.yaml");
    assert_eq!(text(&configuration), "# one\n");
    assert_eq!(fs::metadata(&configuration).unwrap().permissions().mode() & 0o777, 0o600);

    fs::write(&configuration, "# mine\n").unwrap();
    host.dpkg(&["-i", second]);
    assert!(text(&host.path("usr/bin/driftless")).contains("driftless 1.1.0"));
    assert_eq!(text(&configuration), "# mine\n", "a changed configuration stays");

    let state = host.path("var/lib/driftless");
    fs::create_dir_all(&state).unwrap();
    host.dpkg(&["-r", "driftless"]);
    assert!(!host.path("usr/bin/driftless").exists());
    assert_eq!(text(&configuration), "# mine\n");
    host.dpkg(&["-P", "driftless"]);
    assert!(!configuration.exists());
    assert!(state.exists(), "containers may mount files of the state directory");
}
