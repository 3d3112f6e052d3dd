//! `deploy/install.sh` against a server of releases: install, verify, upgrade, uninstall.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use axum::{Router, extract::State};
use http::{StatusCode, Uri};
use tokio::net::TcpListener;

/// A server of releases, and a root folder to install below.
pub(crate) struct Releases {
    folder: tempfile::TempDir,
    pub(crate) url: String,
}

impl Releases {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/releases", listener.local_addr().unwrap());
        let router = Router::new().fallback(file).with_state(folder.path().to_owned());
        tokio::spawn(driftless_web::serve(listener, router, std::future::pending()));
        Self { folder, url }
    }

    /// Publishes a release with a program that prints its version.
    pub(crate) fn publish(&self, version: &str) {
        self.publish_program(version, "gnu", &format!("#!/bin/sh\necho driftless {version}\n"));
    }

    /// Adds the archive with this program for a C library to a release.
    fn publish_program(&self, version: &str, library: &str, script: &str) {
        let target = format!("{}-unknown-linux-{library}", std::env::consts::ARCH);
        let name = format!("driftless-{version}-{target}");
        let release = self.folder.path().join(format!("releases/v{version}"));
        let tree = release.join(&name);
        fs::create_dir_all(tree.join("man")).unwrap();
        fs::create_dir_all(tree.join("completions")).unwrap();
        fs::create_dir_all(tree.join("docs")).unwrap();
        fs::write(tree.join("docs/troubleshooting.md"), version).unwrap();
        let program = tree.join("driftless");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy("deploy/driftless.service", tree.join("driftless.service")).unwrap();
        for file in
            ["man/driftless.1", "man/driftless-run.1", "completions/driftless.bash", "completions/_driftless"]
        {
            fs::write(tree.join(file), version).unwrap();
        }
        for file in ["completions/driftless.fish", "driftless.schema.json", "driftless.example.yaml"] {
            fs::write(tree.join(file), version).unwrap();
        }
        let shell =
            format!("tar -czf {name}.tar.gz {name} && rm -r {name} && sha256sum {name}.tar.gz >> SHA256SUMS");
        let done = Command::new("sh").args(["-c", &shell]).current_dir(&release).status().unwrap();
        assert!(done.success());
    }

    /// Adds the script of the release.
    pub(crate) fn publish_script(&self, version: &str) {
        let release = self.folder.path().join(format!("releases/v{version}"));
        fs::copy("deploy/install.sh", release.join("install.sh")).unwrap();
    }

    fn installed(&self, path: &str) -> PathBuf {
        self.folder.path().join("root").join(path)
    }

    /// Runs the script below the root folder.
    async fn run(&self, arguments: &[&str]) -> (bool, String) {
        let root = self.folder.path().join("root");
        let mut command = tokio::process::Command::new("deploy/install.sh");
        let command = command.args(["--from", &self.url, "--root"]).arg(root).args(arguments);
        let output = command.stdin(Stdio::null()).output().await.unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    }
}

async fn file(State(folder): State<PathBuf>, uri: Uri) -> Result<Vec<u8>, StatusCode> {
    fs::read(folder.join(uri.path().trim_start_matches('/'))).map_err(|_| StatusCode::NOT_FOUND)
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[tokio::test]
async fn script_installs_upgrades_and_uninstalls_a_verified_release() {
    let releases = Releases::start().await;
    releases.publish("1.0.0");
    releases.publish("1.1.0");
    let program = releases.installed("opt/bin/driftless");

    let (done, said) = releases.run(&["--prefix", "/opt", "--version", "1.0.0"]).await;
    assert!(done && said.contains("installed driftless 1.0.0"), "{said}");
    assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o777, 0o755);
    let unit = text(&releases.installed("etc/systemd/system/driftless.service"));
    assert!(unit.contains("ExecStart=/opt/bin/driftless run") && !unit.contains("/usr/local/"), "{unit}");
    let folder = releases.installed("etc/driftless");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    fs::write(folder.join("driftless.yaml"), "mine").unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o750)).unwrap();

    let (done, said) = releases.run(&["--prefix", "/opt", "--version", "v1.1.0"]).await;
    assert!(done && said.contains("upgraded from driftless 1.0.0 to driftless 1.1.0"), "{said}");
    assert_eq!(text(&releases.installed("opt/share/man/man1/driftless-run.1")), "1.1.0");
    assert_eq!(text(&releases.installed("opt/share/driftless/docs/troubleshooting.md")), "1.1.0");
    assert_eq!(text(&folder.join("driftless.yaml")), "mine");
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o750, "as the operator set it");

    let (done, said) = releases.run(&["--prefix", "/opt", "--uninstall"]).await;
    assert!(done && said.contains("containers keep running"), "{said}");
    assert_eq!(text(&folder.join("driftless.yaml")), "mine");
    let left = Command::new("find").arg(releases.installed("")).args(["-type", "f"]).output().unwrap();
    let left = String::from_utf8(left.stdout).unwrap();
    assert_eq!(left.lines().count(), 1, "{left}");
}

#[tokio::test]
async fn script_installs_nothing_that_is_not_verified() {
    let releases = Releases::start().await;
    releases.publish("1.0.0");
    let archive = fs::read_dir(releases.folder.path().join("releases/v1.0.0"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .unwrap();
    let good = fs::read(&archive).unwrap();
    fs::write(&archive, [good.as_slice(), b"more"].concat()).unwrap();
    let (done, said) = releases.run(&["--version", "1.0.0"]).await;
    assert!(!done && said.contains("nothing was installed") && said.contains("checksum"), "{said}");
    fs::write(&archive, good).unwrap();
    let sums = archive.with_file_name("SHA256SUMS");
    let named = text(&sums);
    fs::write(&sums, named.replace("driftless-1.0.0", "driftless-9.0.0")).unwrap();
    let (done, said) = releases.run(&["--version", "1.0.0"]).await;
    assert!(!done && said.contains("does not name"), "{said}");
    let (done, said) = releases.run(&["--version", "2.0.0"]).await;
    assert!(!done && said.contains("could not fetch"), "{said}");
    let (done, said) = releases.run(&[]).await;
    assert!(!done && said.contains("name the version"), "{said}");
    assert!(!releases.installed("usr/local/bin/driftless").exists());
    fs::write(&sums, named).unwrap();
    assert!(releases.run(&["--version", "1.0.0"]).await.0, "the release itself is in order");
}

#[tokio::test]
async fn static_program_is_installed_where_glibc_is_missing() {
    let releases = Releases::start().await;
    releases.publish_program("1.0.0", "gnu", "#!/lib/no-such-loader\n");
    let (done, said) = releases.run(&["--version", "1.0.0"]).await;
    assert!(!done && said.contains("does not run on this host"), "{said}");
    releases.publish_program("1.0.0", "musl", "#!/bin/sh\necho static driftless 1.0.0\n");
    let (done, said) = releases.run(&["--version", "1.0.0"]).await;
    assert!(done && said.contains("installed static driftless 1.0.0"), "{said}");
}

#[tokio::test]
async fn script_and_package_do_not_hide_each_other() {
    let releases = Releases::start().await;
    releases.publish("1.0.0");
    let unit = |folder: &str| releases.installed(folder).join("systemd/system/driftless.service");
    let maintain = |script: &str, action: &str| {
        let mut command = Command::new(format!("deploy/package/{script}"));
        let output = command.arg(action).env("DPKG_ROOT", releases.installed("")).output().unwrap();
        assert!(output.status.success(), "{script}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(maintain("postinst", "configure"), "");
    assert!(releases.run(&["--version", "1.0.0"]).await.0);
    let warned = maintain("postinst", "configure");
    assert!(warned.contains("hides the unit of this package"), "{warned}");
    let warned = maintain("prerm", "remove");
    assert!(warned.contains("the service is not stopped"), "{warned}");
    // A copy of the package's unit that somebody has changed.
    let changed = text(&unit("etc")).replace("/usr/local/bin/", "/usr/bin/");
    fs::write(unit("etc"), changed).unwrap();
    assert_eq!(maintain("postinst", "configure") + &maintain("prerm", "remove"), "");

    fs::create_dir_all(unit("lib").parent().unwrap()).unwrap();
    fs::write(unit("lib"), "").unwrap();
    let (done, said) = releases.run(&["--version", "1.0.0"]).await;
    assert!(!done && said.contains("the Debian package is installed"), "{said}");
}

/// A program in the place of cosign: it checks a signature of the same form, base64 of ECDSA over SHA-256, with OpenSSL.
const COSIGN: &str = r#"#!/bin/sh
[ "$1 $2 $4" = "verify-blob --key --signature" ] || exit 9
base64 -d "$5" > "$5.raw" && exec openssl dgst -sha256 -verify "$3" -signature "$5.raw" "$6"
"#;

#[tokio::test]
async fn release_must_be_signed_if_a_key_is_named() {
    let releases = Releases::start().await;
    releases.publish("1.0.0");
    let folder = releases.folder.path();
    let tools = folder.join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("cosign"), COSIGN).unwrap();
    fs::set_permissions(tools.join("cosign"), fs::Permissions::from_mode(0o755)).unwrap();
    let shell = "openssl ecparam -name prime256v1 -genkey -noout -out key.pem && openssl ec -in key.pem -pubout -out key.pub && \
                 openssl dgst -sha256 -sign key.pem releases/v1.0.0/SHA256SUMS | base64 -w0 > releases/v1.0.0/SHA256SUMS.sig";
    assert!(Command::new("sh").args(["-c", shell]).current_dir(folder).output().unwrap().status.success());
    let run = || async {
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        let mut command = tokio::process::Command::new("deploy/install.sh");
        command.env("PATH", path).args(["--from", &releases.url, "--version", "1.0.0", "--root"]);
        let output = command.arg(folder.join("root")).arg("--key").arg(folder.join("key.pub")).output().await;
        let output = output.unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let sums = folder.join("releases/v1.0.0/SHA256SUMS");
    let good = text(&sums);
    fs::write(&sums, format!("{good}{good}")).unwrap();
    let (done, said) = run().await;
    assert!(
        !done && said.contains("the signature of SHA256SUMS is not valid; nothing was installed"),
        "{said}"
    );
    assert!(!releases.installed("usr/local/bin/driftless").exists());
    fs::write(&sums, good).unwrap();
    let (done, said) = run().await;
    assert!(done && said.contains("installed driftless 1.0.0"), "{said}");
}
