//! Encrypted files that another program wrote, and damaged ones.

#![allow(clippy::unwrap_used, clippy::pedantic)]

use std::{fs, path::PathBuf};

use driftless_sops::{Error, Keys, decrypt};
use proptest::prelude::*;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/files").join(name)
}

fn keys(names: &[&str]) -> Keys {
    let paths: Vec<PathBuf> = names.iter().map(|name| path(name)).collect();
    Keys::load(&paths).unwrap()
}

fn all_keys() -> Keys {
    keys(&["other-key.txt", "age-key.txt", "ssh-key", "pgp-key.asc"])
}

fn text(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

fn plain_of(name: &str, source: &str, keys: &Keys) -> Result<String, Error> {
    decrypt(name, source.as_bytes(), keys)
        .map(|plain| String::from_utf8(plain.expect("an encrypted file")).unwrap())
}

#[test]
fn dotenv_file_is_decrypted() {
    let expected = "# of the shop\nGREETING=hello\nPEM=line one\\nline two\nPORT_unencrypted=8080\nEMPTY=\n";
    assert_eq!(plain_of("app.env", &text("app.env"), &all_keys()).unwrap(), expected);
}

#[test]
fn yaml_file_keeps_its_lines() {
    let expected = "\
apiVersion: v1
kind: Secret
metadata:
  name: shop
  labels:
    tier: '8'
# the login
stringData:
  password: \"s3cret \\\"quoted\\\" \\\\ ü\"
  pem: \"line one\\nline two\\n\"
numbers:
- 1
- 2.5
- true
- null
";
    assert_eq!(plain_of("secret.yaml", &text("secret.yaml"), &all_keys()).unwrap(), expected);
}

#[test]
fn yaml_file_is_opened_by_each_of_its_recipients() {
    for key in ["age-key.txt", "pgp-key.asc"] {
        assert!(plain_of("secret.yaml", &text("secret.yaml"), &keys(&[key])).is_ok(), "{key}");
    }
}

#[test]
fn json_file_keeps_its_lines_without_the_metadata() {
    let source = text("app.json");
    let plain = plain_of("app.json", &source, &all_keys()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&plain).unwrap();
    assert_eq!(value, serde_json::json!({ "plain": "as it is", "secret_value": "hidden", "n_value": 42 }));
    let line = |text: &str| text.lines().position(|line| line.contains("n_value"));
    assert_eq!(line(&plain), line(&source));
}

#[test]
fn binary_file_is_its_data() {
    assert_eq!(plain_of("token.bin", &text("token.bin"), &all_keys()).unwrap(), "any\nbytes ü\n");
}

#[test]
fn encrypted_file_that_cannot_be_parsed_is_no_plain_one() {
    let source = text("token.bin");
    // The same key twice, which YAML refuses.
    let twice = source.replacen("\"data\"", "\"data\": \"\", \"data\"", 1);
    assert_ne!(twice, source);
    let error = decrypt("token.bin", twice.as_bytes(), &all_keys());
    assert!(matches!(error, Err(Error::Malformed(_))), "{error:?}");
    assert_eq!(decrypt("a.txt", b"about sops: its mac: {", &all_keys()), Ok(None));
}

#[test]
fn ini_file_is_decrypted() {
    let expected = "; of the shop\n[db]\nuser = shop\npassword = `a;b # c`\n\n[web]\nport = 8080\n\n";
    assert_eq!(plain_of("app.ini", &text("app.ini"), &all_keys()).unwrap(), expected);
}

#[test]
fn whole_age_files_are_decrypted() {
    for name in ["plain.txt.age", "armored.age"] {
        let bytes = fs::read(path(name)).unwrap();
        assert_eq!(decrypt(name, &bytes, &all_keys()), Ok(Some(b"whole file\n".to_vec())), "{name}");
    }
}

#[test]
fn missing_key_names_the_recipients() {
    let error = plain_of("secret.yaml", &text("secret.yaml"), &keys(&["other-key.txt"])).unwrap_err();
    let Error::NoKey { recipients } = &error else { panic!("{error}") };
    let public =
        text("age-key.txt").lines().find_map(|line| line.strip_prefix("# public key: ").map(str::to_owned));
    assert!(recipients.contains(&public.unwrap()) && recipients.contains("OpenPGP "), "{recipients}");
    assert!(error.to_string().contains("sops.keyFiles"), "{error}");
}

#[test]
fn changes_after_encryption_are_refused() {
    let yaml = text("secret.yaml");
    let value = |key: &str| {
        let line = yaml.lines().find(|line| line.trim_start().starts_with(key)).unwrap();
        line.split_once(": ").unwrap().1.to_owned()
    };
    let (password, pem) = (value("password:"), value("pem:"));
    let cases = [
        // A value in clear that the MAC covers.
        (yaml.replace("name: shop", "name: other"), Error::Mac),
        // A removed value.
        (yaml.replace(&format!("  pem: {pem}\n"), ""), Error::Mac),
        // A value at the place of another.
        (yaml.replace(&pem, &password), Error::Value),
        // A renamed key.
        (yaml.replace("password:", "user:"), Error::Value),
        // A value in clear where the rule asks for an encrypted one.
        (yaml.replace(&pem, "clear"), Error::Plain("stringData.pem".to_owned())),
    ];
    for (changed, expected) in cases {
        assert_ne!(changed, yaml);
        assert_eq!(plain_of("secret.yaml", &changed, &all_keys()), Err(expected));
    }
    let without_mac: String = yaml.split_inclusive('\n').filter(|line| !line.starts_with("  mac:")).collect();
    let error = plain_of("secret.yaml", &without_mac, &all_keys()).unwrap_err();
    assert_eq!(error, Error::Malformed("it has no MAC".to_owned()));
}

/// A text without the lines that contain one of these words.
fn without(source: &str, words: &[&str]) -> String {
    let is_kept = |line: &&str| !words.iter().any(|word| line.contains(word));
    source.split_inclusive('\n').filter(is_kept).collect()
}

#[test]
fn flat_files_without_a_mac_are_refused() {
    let expected = Err(Error::Malformed("it has no MAC".to_owned()));
    for (name, keys) in [
        ("app.env", ["sops_mac=", "sops_lastmodified=", "sops_version="]),
        ("app.ini", ["\nmac = ", "\nlastmodified = ", "\nversion = "].map(|key| &key[1..])),
    ] {
        let [mac, modified, version] = keys;
        for lost in [&[mac][..], &[mac, version], &[mac, modified]] {
            let changed = without(&text(name), lost);
            assert_eq!(decrypt(name, changed.as_bytes(), &all_keys()), expected, "{name} without {lost:?}");
        }
    }
    // A MAC without a version is all that a file needs.
    for (name, version) in [("app.env", "sops_version="), ("app.ini", "version = ")] {
        assert!(plain_of(name, &without(&text(name), &[version]), &all_keys()).is_ok(), "{name}");
    }
}

#[test]
fn encrypted_values_without_metadata_are_refused() {
    let before = |name: &str, mark: &str| text(name).split(mark).next().unwrap().to_owned();
    let value =
        text("app.env").lines().find_map(|line| line.strip_prefix("GREETING=").map(str::to_owned)).unwrap();
    let cases = [
        ("app.env", without(&text("app.env"), &["sops_"])),
        ("app.ini", before("app.ini", "[sops]")),
        ("secret.yaml", before("secret.yaml", "\nsops:")),
        ("token", format!("{value}\n")),
        ("quoted.env", format!("A=1\nB=\"{value}\"\n")),
        ("token.bin", format!("{{\"data\": \"{value}\"}}\n")),
        ("app.json", format!("{{\"list\": [1, \"{value}\"]}}\n")),
        ("sops.yaml", format!("sops: {{}}\na: {{b: '{value}'}}\n")),
    ];
    for (name, source) in cases {
        assert!(source.contains("ENC["), "{name}");
        assert_eq!(decrypt(name, source.as_bytes(), &all_keys()), Err(Error::NoMetadata), "{name}");
    }
    // The same key twice, which YAML refuses.
    let twice = format!("a: {value}\na: 1\n");
    assert!(matches!(decrypt("a.yaml", twice.as_bytes(), &all_keys()), Err(Error::Malformed(_))));
}

#[test]
fn files_that_mention_an_encrypted_value_are_plain() {
    let value =
        text("app.env").lines().find_map(|line| line.strip_prefix("GREETING=").map(str::to_owned)).unwrap();
    for (name, source) in [
        ("README.md", format!("# Secrets\n\nA value looks so:\n\n```yaml\npassword: {value}\n```\n")),
        ("a.md", format!("Write `KEY={value}`\nor so:\nKEY={value}\n")),
        ("a.env", format!("# A={value}\nB=1\nC=it is {value}\n")),
        ("a.ini", format!("; a = {value}\n[b]\nc = 1\n")),
        ("a.yaml", format!("# a: {value}\nb: 'it is {value}'\nc: |\n  d: {value}\n")),
        ("b.yaml", "password: ENC[AES256_GCM,data:…,iv:…,tag:…,type:str]\n".to_owned()),
        ("install.sh", "sops_version=3.10.2\ncurl \"https://example.com/$sops_version\"\n".to_owned()),
        ("tools.ini", "[sops]\nversion = 3.10.2\n[eth0]\nmac = 02:42:ac:11:00:02\n".to_owned()),
    ] {
        assert_eq!(decrypt(name, source.as_bytes(), &all_keys()), Ok(None), "{name}");
    }
}

#[test]
fn key_groups_and_services_are_refused_by_name() {
    let yaml = text("secret.yaml");
    let groups = yaml.replace("  kms: null\n", "  key_groups:\n  - age: []\n");
    let error = plain_of("secret.yaml", &groups, &all_keys()).unwrap_err();
    assert_eq!(error, Error::Unsupported("key groups (shares of several keys)".to_owned()));

    let only_kms = "a: ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]\nsops:\n  kms: [{arn: x, enc: y}]\n  mac: x\n";
    let error = plain_of("a.yaml", only_kms, &all_keys()).unwrap_err();
    assert_eq!(error, Error::Unsupported("AWS KMS".to_owned()));
}

#[test]
fn plain_files_are_left_alone() {
    for (name, source) in [
        ("a.yaml", "services: {sops: {image: sops, environment: {mac: 1}}}\n"),
        ("a.env", "sops=1\nmac=2\n"),
        ("a.txt", "sops and mac: a sentence\n"),
        ("a.json", "{\"sops\": {\"image\": \"mac\"}}"),
    ] {
        assert_eq!(decrypt(name, source.as_bytes(), &all_keys()), Ok(None), "{name}");
    }
}

#[test]
fn unusable_key_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    fs::write(&file, "no key\n").unwrap();
    let error = Keys::load(std::slice::from_ref(&file)).unwrap_err().to_string();
    assert!(error.contains(&file.display().to_string()) && !error.contains("no key\n"), "{error}");
    let error = Keys::load(&[folder.path().join("missing")]).unwrap_err().to_string();
    assert!(error.contains("could not read the key file"), "{error}");
}

#[test]
fn keys_are_not_in_debug_output() {
    assert_eq!(format!("{:?}", all_keys()), "Keys(3 age, 1 OpenPGP)");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Damaged files are refused or read as plain, and never harm.
    #[test]
    fn damaged_files_never_panic(file in 0_usize..6, at in 0_usize..4096, with in any::<u8>(), length in 0_usize..4096) {
        let name = ["app.env", "secret.yaml", "app.json", "app.ini", "token.bin", "armored.age"][file];
        let mut bytes = fs::read(path(name)).unwrap();
        let at = at % bytes.len();
        bytes[at] = with;
        let length = if length % 2 == 0 { bytes.len() } else { length % bytes.len() };
        let _ = decrypt(name, &bytes[..length], &keys(&["age-key.txt", "ssh-key"]));
    }
}
