//! Signatures that real programs made, `git commit -S` with ssh-keygen and with gpg, against policies.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use driftless_config::{Reference, Verify, VerifyMode};
use driftless_git::{Cause, CommitSource, Repository, RepositoryOptions, signing_key_ends};
use driftless_model::{CommitId, Timestamp, VersionRange};

use crate::{
    fetch::{open, options},
    origin::Origin,
};

/// Repository, policy, answer: who signed the tip, or why it is refused.
async fn verdict(repository: &Repository, policy: &Verify) -> Result<String, String> {
    let checkout = repository.fetch(None).await.unwrap();
    repository.verify(&checkout.commit.id, policy).await.unwrap()
}

async fn refusal(repository: &Repository, policy: &Verify) -> String {
    verdict(repository, policy).await.expect_err("it is refused")
}

fn local(origin: &Origin, reference: Reference) -> Repository {
    open(RepositoryOptions { reference, ..options(origin, origin.path().to_str().unwrap()) })
}

fn main() -> Reference {
    Reference::Branch("main".into())
}

fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn ssh_key(folder: &Path, name: &str, kind: &[&str]) -> String {
    let path = folder.join(name);
    run(Command::new("ssh-keygen").args(["-q", "-N", "", "-C", name, "-f"]).arg(&path).arg("-t").args(kind));
    fs::read_to_string(path.with_extension("pub")).unwrap().trim().to_owned()
}

fn sign_with_ssh(origin: &Origin, key: &Path) {
    origin.work(&["config", "gpg.format", "ssh"]);
    origin.work(&["config", "user.signingkey", key.to_str().unwrap()]);
}

/// A signed commit on `main`.
fn signed_commit(origin: &Origin, message: &str) -> String {
    origin.work(&["commit", "-q", "--allow-empty", "-S", "-m", message]);
    origin.work(&["push", "-q", "--force", "origin", "HEAD:main"]);
    origin.work(&["rev-parse", "HEAD"])
}

fn allowing(lines: &[String]) -> Verify {
    Verify { allowed_signers: lines.to_vec(), ..Verify::default() }
}

#[tokio::test]
async fn ssh_signatures_of_every_key_type_are_verified() {
    let origin = Origin::new();
    let folder = origin.dir.path().join("keys");
    fs::create_dir(&folder).unwrap();
    let repository = local(&origin, main());
    let stranger = ssh_key(&folder, "stranger", &["ed25519"]);

    for (name, kind) in [
        ("ed", vec!["ed25519"]),
        ("rsa", vec!["rsa", "-b", "3072"]),
        ("p256", vec!["ecdsa", "-b", "256"]),
        ("p384", vec!["ecdsa", "-b", "384"]),
        ("p521", vec!["ecdsa", "-b", "521"]),
    ] {
        let public = ssh_key(&folder, name, &kind);
        sign_with_ssh(&origin, &folder.join(name));
        signed_commit(&origin, "first line\n\nand -----BEGIN SSH SIGNATURE-----\nmore\n");
        let policy = allowing(&[format!("eve@example.com {stranger}"), format!("ada@example.com {public}")]);
        let signer = verdict(&repository, &policy).await.unwrap_or_else(|it| panic!("{name}: {it}"));
        assert!(signer.starts_with("ada@example.com (SHA256:"), "{signer}");
        let why = refusal(&repository, &allowing(&[format!("eve@example.com {stranger}")])).await;
        assert!(why.contains("not among the allowed signers") && why.contains("SHA256:"), "{why}");
    }

    origin.commit("compose.yaml", "unsigned");
    let policy = allowing(&[format!("eve@example.com {stranger}")]);
    assert_eq!(refusal(&repository, &policy).await, "it is not signed");
}

#[tokio::test]
async fn a_key_may_be_limited_revoked_or_listed_for_something_else() {
    let origin = Origin::new();
    let folder = origin.dir.path().join("keys");
    fs::create_dir(&folder).unwrap();
    let public = ssh_key(&folder, "ada", &["ed25519"]);
    let short = ssh_key(&folder, "short", &["rsa", "-b", "1024"]);
    sign_with_ssh(&origin, &folder.join("ada"));
    let commit = signed_commit(&origin, "signed");
    let repository = local(&origin, main());

    for (options, wanted) in [
        ("valid-before=\"20200101Z\"", "was trusted until 2020-01-01"),
        ("valid-after=\"29990101\"", "is trusted from 2999-01-01"),
        ("namespaces=\"file\"", "other purposes"),
        ("cert-authority", "certificate authority"),
    ] {
        let why = refusal(&repository, &allowing(&[format!("ada@example.com {options} {public}")])).await;
        assert!(why.contains(wanted), "{why}");
    }
    // A second line for the same key may allow what the first does not.
    let lines = [
        format!("ada@example.com valid-before=\"20200101\" {public}"),
        format!("ada@example.com namespaces=\"git\",valid-before=\"29990101\" {public}"),
    ];
    assert!(verdict(&repository, &allowing(&lines)).await.is_ok());

    // From a file, which is read each time.
    let file = folder.join("allowed_signers");
    let from_file = Verify { allowed_signers_file: Some(file.clone()), ..Verify::default() };
    assert!(refusal(&repository, &from_file).await.contains("could not read the keys in"));
    fs::write(&file, format!("# ours\nada@example.com,*@example.com {public}\n")).unwrap();
    assert!(verdict(&repository, &from_file).await.is_ok());
    let revoked = folder.join("revoked");
    fs::write(&revoked, format!("{public}\n")).unwrap();
    let policy = Verify { revoked_keys_file: Some(revoked.clone()), ..from_file.clone() };
    assert!(refusal(&repository, &policy).await.contains("which is revoked"));
    run(Command::new("ssh-keygen").args(["-k", "-q", "-f"]).arg(&revoked).arg(folder.join("ada.pub")));
    assert!(refusal(&repository, &policy).await.contains("binary revocation list"));
    fs::write(&file, "ada@example.com what=ever ssh-ed25519 AAAA\n").unwrap();
    assert!(refusal(&repository, &from_file).await.contains("line 1"));

    // The same signature under another message.
    let policy = allowing(&[format!("ada@example.com {public}")]);
    let raw = origin.work(&["cat-file", "commit", &commit]);
    fs::write(folder.join("forged"), format!("{}\n", raw.replace("signed", "forged"))).unwrap();
    let place = folder.join("forged");
    let forged = origin.work(&["hash-object", "-w", "-t", "commit", place.to_str().unwrap()]);
    origin.work(&["push", "-q", "--force", "origin", &format!("{forged}:refs/heads/main")]);
    assert!(refusal(&repository, &policy).await.contains("is false"));

    sign_with_ssh(&origin, &folder.join("short"));
    signed_commit(&origin, "short");
    let why = refusal(&repository, &allowing(&[format!("ada@example.com {short}")])).await;
    assert!(why.contains("too short"), "{why}");
}

#[tokio::test]
async fn tags_are_verified_by_name_and_a_moved_one_is_seen() {
    let origin = Origin::new();
    let folder = origin.dir.path().join("keys");
    fs::create_dir(&folder).unwrap();
    let public = ssh_key(&folder, "ada", &["ed25519"]);
    sign_with_ssh(&origin, &folder.join("ada"));
    let lines = [format!("ada@example.com {public}")];
    let policy = |mode| Verify { mode, ..allowing(&lines) };
    let push = || drop(origin.work(&["push", "-q", "--force", "--tags", "origin"]));
    let latest = || Reference::Semver(VersionRange::parse("1.x").unwrap());

    origin.commit("compose.yaml", "one");
    origin.work(&["tag", "v1.0.0"]);
    push();
    let repository = local(&origin, latest());
    let checkout = repository.fetch(None).await.unwrap();
    assert_eq!(checkout.tag.as_deref(), Some("v1.0.0"));
    assert!(refusal(&repository, &policy(VerifyMode::Tag)).await.contains("no annotated tag"));

    // The commit stays; only the tag is replaced, now with a signature.
    origin.work(&["tag", "-f", "-s", "-m", "first", "v1.0.0"]);
    push();
    let signer = verdict(&repository, &policy(VerifyMode::Tag)).await.unwrap();
    assert!(signer.starts_with("ada@example.com"), "{signer}");
    assert_eq!(refusal(&repository, &policy(VerifyMode::Both)).await, "it is not signed");

    signed_commit(&origin, "signed");
    origin.work(&["tag", "-a", "-m", "no signature", "v1.1.0"]);
    push();
    assert!(refusal(&repository, &policy(VerifyMode::Tag)).await.contains("`v1.1.0`: it is not signed"));
    assert!(verdict(&repository, &policy(VerifyMode::Commit)).await.is_ok());
    origin.work(&["tag", "-s", "-m", "both", "v1.2.0"]);
    push();
    assert!(verdict(&repository, &policy(VerifyMode::Both)).await.is_ok());

    // An old signed tag under a new name.
    origin.work(&["update-ref", "refs/tags/v1.3.0", "refs/tags/v1.0.0"]);
    push();
    let why = refusal(&repository, &policy(VerifyMode::Tag)).await;
    assert!(why.contains("made as `v1.0.0`"), "{why}");
}

#[tokio::test]
async fn signed_tag_is_verified_after_a_restart() {
    let origin = Origin::new();
    let folder = origin.dir.path().join("keys");
    fs::create_dir(&folder).unwrap();
    let public = ssh_key(&folder, "ada", &["ed25519"]);
    sign_with_ssh(&origin, &folder.join("ada"));
    let policy = Verify { mode: VerifyMode::Tag, ..allowing(&[format!("ada@example.com {public}")]) };
    origin.commit("compose.yaml", "one");
    origin.work(&["tag", "-s", "-m", "first", "v1.4.0"]);
    origin.work(&["push", "-q", "--tags", "origin"]);

    for name in ["v1.4.0", "refs/tags/v1.4.0"] {
        let tag = || Reference::Tag(name.into());
        let commit = local(&origin, tag()).fetch(None).await.unwrap().commit.id;
        let signer = local(&origin, tag()).verify(&commit, &policy).await.unwrap();
        assert!(signer.as_ref().is_ok_and(|signer| signer.starts_with("ada@example.com")), "{signer:?}");
    }
    // Only a listing of the tags tells which of them is the highest in a range.
    let commit = origin.work(&["rev-parse", "HEAD"]);
    let reopened = local(&origin, Reference::Semver(VersionRange::parse("1.x").unwrap()));
    let error = reopened.verify(&CommitId::parse(&commit).unwrap(), &policy).await.unwrap_err();
    assert_eq!(error.cause, Cause::Interrupted, "{error}");
    assert!(verdict(&reopened, &policy).await.is_ok());
}

/// A home of gpg, which ends with its agent.
struct Gpg {
    home: PathBuf,
    program: PathBuf,
}

impl Gpg {
    fn new(folder: &Path) -> Self {
        let home = folder.join("gpg");
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        let program = folder.join("gpg.sh");
        // Git cannot be told of a home or a time, so it runs this.
        let script = format!(
            "#!/bin/sh\nexec gpg --homedir '{0}' --batch --pinentry-mode loopback --passphrase '' ${{AT:+--faked-system-time \"$AT\"}} \"$@\"\n",
            home.display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { home, program }
    }

    fn run(&self, arguments: &[&str], at: &str) -> String {
        run(Command::new(&self.program).env("AT", at).arg("-q").args(arguments))
    }

    /// Returns the fingerprint.
    fn key(&self, name: &str, usage: &str, expires: &str, at: &str) -> String {
        let user = format!("{name} <{name}@example.com>");
        self.run(&["--quick-gen-key", &user, "ed25519", usage, expires], at);
        self.fingerprints(name)[0].clone()
    }

    /// Of the primary key and of its subkeys.
    fn fingerprints(&self, name: &str) -> Vec<String> {
        let listed = self.run(&["--with-colons", "--with-subkey-fingerprint", "--list-keys", name], "");
        let prints = listed.lines().filter(|it| it.starts_with("fpr:"));
        prints.map(|it| it.split(':').nth(9).unwrap().to_owned()).collect()
    }

    fn export(&self, names: &[&str], to: &Path) -> Verify {
        let text = self.run(&[&["--armor", "--export"], names].concat(), "");
        fs::write(to, format!("{text}\n")).unwrap();
        Verify { keyring_file: Some(to.to_owned()), ..Verify::default() }
    }

    /// Signs with the key of that fingerprint as if it were that time.
    fn commit(&self, origin: &Origin, key: &str, at: &str) {
        let at = if at.is_empty() { String::new() } else { format!("AT={at} ") };
        let wrapper = self.home.with_extension("now");
        fs::write(&wrapper, format!("#!/bin/sh\n{at}exec '{}' \"$@\"\n", self.program.display())).unwrap();
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
        origin.work(&["config", "gpg.format", "openpgp"]);
        origin.work(&["config", "gpg.program", wrapper.to_str().unwrap()]);
        origin.work(&["config", "user.signingkey", &format!("{key}!")]);
        signed_commit(origin, "signed with gpg");
    }
}

impl Drop for Gpg {
    fn drop(&mut self) {
        let _ = Command::new("gpgconf").arg("--homedir").arg(&self.home).args(["--kill", "all"]).status();
    }
}

#[tokio::test]
async fn gpg_signatures_are_checked_by_expiry_and_revocation() {
    let origin = Origin::new();
    let gpg = Gpg::new(origin.dir.path());
    let ring = origin.dir.path().join("ring.asc");
    let repository = local(&origin, main());
    let long_ago = "20200101T000000";

    let ada = gpg.key("ada", "sign", "never", "");
    gpg.commit(&origin, &ada, "");
    let policy = gpg.export(&["ada"], &ring);
    let signer = verdict(&repository, &policy).await.unwrap();
    assert_eq!(signer, format!("ada <ada@example.com> ({ada})"));
    let binary = origin.dir.path().join("ring.gpg");
    gpg.run(&["--output", binary.to_str().unwrap(), "--export", "ada"], "");
    let from_binary = Verify { keyring_file: Some(binary), ..Verify::default() };
    assert!(verdict(&repository, &from_binary).await.is_ok());

    // Somebody who is not in the keyring, alone and together with somebody who is.
    let eve = gpg.key("eve", "sign", "never", "");
    gpg.commit(&origin, &eve, "");
    let why = refusal(&repository, &policy).await;
    assert!(why.contains(&eve) && why.contains("not in the keyring"), "{why}");
    assert!(verdict(&repository, &gpg.export(&["ada", "eve"], &ring)).await.is_ok());
    let why = refusal(&repository, &allowing(&[])).await;
    assert!(why.contains("no OpenPGP key is trusted"), "{why}");

    // A signing subkey of a primary that may only certify; then the subkey expires.
    let bob = gpg.key("bob", "cert", "never", long_ago);
    gpg.run(&["--quick-add-key", &bob, "ed25519", "sign", "never"], long_ago);
    gpg.run(&["--quick-add-key", &bob, "rsa3072", "sign", "1y"], long_ago);
    let subkeys = gpg.fingerprints("bob");
    gpg.commit(&origin, &subkeys[1], "");
    let policy = gpg.export(&["bob"], &ring);
    assert!(verdict(&repository, &policy).await.unwrap().contains(&subkeys[1]));
    gpg.commit(&origin, &subkeys[2], "20200601T000000");
    let why = refusal(&repository, &policy).await;
    assert!(why.contains("subkey") && why.contains("has expired"), "{why}");

    // A primary that expired, with a signature from the time before.
    let old = gpg.key("old", "sign", "1y", long_ago);
    gpg.commit(&origin, &old, "20200601T000000");
    let why = refusal(&repository, &gpg.export(&["old"], &ring)).await;
    assert!(why.contains("has expired"), "{why}");
    // Its owner makes it live longer: the newest word counts.
    gpg.run(&["--quick-set-expire", &old, "never"], "");
    assert!(verdict(&repository, &gpg.export(&["old"], &ring)).await.is_ok());

    // Revoked: by the certificate that gpg makes with each key.
    gpg.commit(&origin, &ada, "");
    let before = gpg.run(&["--armor", "--export", "ada"], "");
    let certificate = gpg.home.join(format!("openpgp-revocs.d/{ada}.rev"));
    let text = fs::read_to_string(&certificate).unwrap().replace(":-----BEGIN", "-----BEGIN");
    fs::write(&certificate, text).unwrap();
    gpg.run(&["--import", certificate.to_str().unwrap()], "");
    let why = refusal(&repository, &gpg.export(&["ada"], &ring)).await;
    assert!(why.contains("is revoked"), "{why}");
    // The keyring may have older copies of the key.
    let after = fs::read_to_string(&ring).unwrap();
    for copies in [format!("{before}\n{after}"), format!("{after}\n{before}\n")] {
        fs::write(&ring, copies).unwrap();
        let policy = Verify { keyring_file: Some(ring.clone()), ..Verify::default() };
        let why = refusal(&repository, &policy).await;
        assert!(why.contains("is revoked"), "{why}");
    }
    fs::write(&ring, after).unwrap();

    // Neither half a keyring nor something else is one.
    let whole = fs::read(&ring).unwrap();
    fs::write(&ring, &whole[..whole.len() / 2]).unwrap();
    let broken = Verify { keyring_file: Some(ring.clone()), ..Verify::default() };
    assert!(refusal(&repository, &broken).await.contains("not a keyring"));
    fs::write(&ring, "hello").unwrap();
    assert!(refusal(&repository, &broken).await.contains("ring.asc"));
}

#[tokio::test]
async fn signature_of_the_tip_covers_its_merged_commits() {
    let origin = Origin::new();
    let folder = origin.dir.path().join("keys");
    fs::create_dir(&folder).unwrap();
    let public = ssh_key(&folder, "ada", &["ed25519"]);
    sign_with_ssh(&origin, &folder.join("ada"));
    origin.work(&["checkout", "-q", "-b", "side"]);
    origin.work(&["commit", "-q", "--allow-empty", "-m", "unsigned"]);
    origin.work(&["checkout", "-q", "main"]);
    origin.work(&["merge", "-q", "--no-ff", "-S", "-m", "merged", "side"]);
    origin.work(&["push", "-q", "origin", "main"]);
    let policy = allowing(&[format!("ada@example.com {public}")]);
    assert!(verdict(&local(&origin, main()), &policy).await.is_ok());
}

#[tokio::test]
async fn unreadable_signing_key_is_reported_at_the_start() {
    let origin = Origin::new();
    let policies = vec![allowing(&["ada@example.com ssh-ed25519 AAAA".to_owned()])];
    let options = RepositoryOptions { policies, ..options(&origin, origin.path().to_str().unwrap()) };
    let error = Repository::open(options).unwrap_err().to_string();
    assert!(error.contains("allowedSigners, line 1"), "{error}");
}

#[test]
fn ends_of_openpgp_keys_are_those_of_their_last_signing_key() {
    let folder = tempfile::tempdir().unwrap();
    let gpg = Gpg::new(folder.path());
    // The mark stops the clock of gpg: a key that is made a second later ends a second later.
    let at = "20260101T000000!";
    let ada = gpg.key("ada", "sign", "30d", at);
    gpg.key("eve", "sign", "never", at);
    let cy = gpg.key("cy", "cert", "90d", at);
    gpg.run(&["--quick-add-key", &cy, "ed25519", "sign", "60d"], at);
    let keyring = gpg.export(&["ada", "eve", "cy"], &folder.path().join("keyring.asc"));
    let ends = signing_key_ends(&keyring).unwrap();
    let day = |day: u64| Timestamp(Timestamp::parse("2026-01-01T00:00:00Z").unwrap().0 + day * 86_400_000);
    let mut found: Vec<_> = ends.into_iter().map(|key| (key.fingerprint, key.created, key.ends)).collect();
    found.sort_by_key(|key| key.2);
    assert_eq!(found, [(ada, day(0), day(30)), (cy, day(0), day(60))]);
    assert_eq!(signing_key_ends(&Verify::default()), Ok(Vec::new()));
}
