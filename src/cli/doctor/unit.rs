//! The systemd unit of the agent, which may let it write to some folders only.

use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

/// The folders of units and of their drop-ins. Only the first unit counts, but all drop-ins.
const FOLDERS: &[&str] =
    &["etc/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"];

const UNIT: &str = "driftless.service";

/// The largest file that is read, in bytes.
const LARGEST_FILE: u64 = 1 << 16;

/// The keys that give a unit folders of its own, with the folder of these.
const OWN_FOLDERS: &[(&str, &str)] = &[
    ("StateDirectory", "/var/lib"),
    ("CacheDirectory", "/var/cache"),
    ("LogsDirectory", "/var/log"),
    ("RuntimeDirectory", "/run"),
];

/// Whether the unit of the agent keeps it from writing to a folder. `root` is the root of the file system.
pub(super) fn is_read_only(root: &Path, folder: &Path) -> bool {
    let text = text(root);
    if values(&text, "ProtectSystem").last() != Some(&"strict") {
        return false;
    }
    let own = |(key, parent): &(&str, &str)| -> Vec<PathBuf> {
        words(&text, key).into_iter().map(|name| Path::new(parent).join(name)).collect()
    };
    let more = words(&text, "ReadWritePaths").into_iter();
    let more = more.map(|path| PathBuf::from(path.trim_start_matches(['-', '+'])));
    !OWN_FOLDERS.iter().flat_map(own).chain(more).any(|writable| folder.starts_with(writable))
}

/// The values of a key, in the order in which they are set.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for line in text.lines() {
        let value = line.trim().strip_prefix(key).and_then(|rest| rest.trim_start().strip_prefix('='));
        found.extend(value.map(str::trim));
    }
    found
}

/// The words of all values of a key.
fn words<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    values(text, key).into_iter().flat_map(str::split_whitespace).collect()
}

/// The unit, followed by its drop-ins. Empty: there is none.
fn text(root: &Path) -> String {
    let mut folders = FOLDERS.iter().map(|folder| root.join(folder));
    let Some(mut text) = folders.find_map(|folder| read(&folder.join(UNIT))) else { return String::new() };
    for folder in FOLDERS.iter().rev() {
        let Ok(entries) = fs::read_dir(root.join(folder).join(format!("{UNIT}.d"))) else { continue };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for more in paths.iter().filter_map(|path| read(path)) {
            text.push('\n');
            text.push_str(&more);
        }
    }
    text
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LARGEST_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packaged_unit_lets_the_agent_write_to_its_folders() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let is_read_only = |path: &str| is_read_only(root, Path::new(path));
        assert!(!is_read_only("/srv/driftless"), "there is no unit");
        let units = root.join("lib/systemd/system");
        fs::create_dir_all(&units).unwrap();
        fs::write(units.join(UNIT), include_str!("../../../deploy/driftless.service")).unwrap();
        for path in ["/var/lib/driftless", "/var/lib/driftless/below", "/var/log/driftless", "/tmp/x"] {
            assert!(!is_read_only(path), "{path}");
        }
        for path in ["/srv/driftless", "/var/lib/driftless-2", "/"] {
            assert!(is_read_only(path), "{path}");
        }
        let drop_ins = root.join("etc/systemd/system/driftless.service.d");
        fs::create_dir_all(&drop_ins).unwrap();
        fs::write(drop_ins.join("override.conf"), "[Service]\nReadWritePaths=/srv/driftless").unwrap();
        assert!(!is_read_only("/srv/driftless/applications"));
        fs::write(drop_ins.join("strict.conf"), "[Service]\nProtectSystem = full").unwrap();
        assert!(!is_read_only("/opt/driftless"));
    }
}
