//! Mounts of running processes whose source is in a folder, such as the bind mounts of containers. They stay at the folder when
//! it is renamed.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
};

/// One line of `/proc/PID/mountinfo`, as `proc(5)` describes it.
#[derive(Debug, PartialEq, Eq)]
struct MountLine {
    /// The number of the file system's device.
    device: String,
    /// The folder or file of the file system that is mounted.
    source: PathBuf,
    /// The path at which it is mounted, as the process sees it.
    target: PathBuf,
}

impl MountLine {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').skip(2);
        let (device, source, target) = (fields.next()?, fields.next()?, fields.next()?);
        Some(Self { device: device.to_owned(), source: unescape(source), target: unescape(target) })
    }
}

/// The mounts of a process. Empty: it has ended, or this process may not know.
fn mounts_of(process: &str) -> Vec<MountLine> {
    let mountinfo = fs::read(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    String::from_utf8_lossy(&mountinfo).lines().filter_map(MountLine::parse).collect()
}

/// A path of `mountinfo`, in which `\040` stands for a space.
fn unescape(path: &str) -> PathBuf {
    let mut parts = path.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (digits, part.get(3..)) {
            (Some(letter), Some(rest)) => plain.extend([&*char::from(letter).to_string(), rest]),
            _ => plain.extend(["\\", part]),
        }
    }
    PathBuf::from(plain)
}

/// The device of a folder, and its path in that file system. `None`: none of the mounts has it.
fn place_of<'a>(folder: &Path, mounts: &'a [MountLine]) -> Option<(&'a str, PathBuf)> {
    let holding = mounts.iter().filter(|mount| folder.starts_with(&mount.target));
    // Of two mounts at one path, the later one hides the other.
    let mount = holding.max_by_key(|mount| mount.target.components().count())?;
    let inner = folder.strip_prefix(&mount.target).ok()?;
    Some((&mount.device, mount.source.join(inner)))
}

/// The paths at and below a folder at which this process has file systems mounted. Links in its path are not followed.
pub(crate) fn mount_points_in(folder: &Path) -> BTreeSet<PathBuf> {
    targets_in(folder, mounts_of("self"))
}

fn targets_in(folder: &Path, mounts: Vec<MountLine>) -> BTreeSet<PathBuf> {
    mounts.into_iter().map(|mount| mount.target).filter(|target| target.starts_with(folder)).collect()
}

/// The folders and files in a folder that running processes have mounted, as paths in it. Processes of other PID namespaces than
/// that of this process are not seen. A mount that this process has at the same place, such as that of the folder's disk, does not
/// count.
pub(crate) fn mounted_in(folder: &Path) -> BTreeSet<PathBuf> {
    let own = mounts_of("self");
    let Ok(folder) = folder.canonicalize() else { return BTreeSet::new() };
    let Some((device, path)) = place_of(&folder, &own) else { return BTreeSet::new() };
    let sources = mounts_of_others(&own).filter(|mount| mount.device == device).map(|mount| mount.source);
    sources.filter_map(|source| Some(source.strip_prefix(&path).ok()?.to_owned())).collect()
}

/// The mounts of all processes, without those that this process has at the same place.
fn mounts_of_others(own: &[MountLine]) -> impl Iterator<Item = MountLine> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = processes.filter_map(|process| process.file_name().into_string().ok());
    let numbers = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    numbers.flat_map(|process| mounts_of(&process)).filter(move |mount| !own.contains(mount))
}

/// Those of these applications of which running processes have mounted a folder in any state directory. `applications` is the name of
/// the folder with the folders of applications.
pub(crate) fn mounted_anywhere(applications: &str, names: &BTreeSet<String>) -> BTreeSet<String> {
    if names.is_empty() {
        return BTreeSet::new();
    }
    let sources = mounts_of_others(&mounts_of("self")).map(|mount| mount.source).collect();
    applications_of(applications, names, &sources)
}

fn applications_of(
    applications: &str,
    names: &BTreeSet<String>,
    sources: &BTreeSet<PathBuf>,
) -> BTreeSet<String> {
    let is_in = |source: &PathBuf, name: &String| {
        let folders: Vec<&OsStr> = source.iter().collect();
        folders.windows(2).any(|pair| *pair == [OsStr::new(applications), OsStr::new(name)])
    };
    names.iter().filter(|name| sources.iter().any(|source| is_in(source, name))).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo_are_read() {
        let line =
            r"76 49 254:0 /srv/my\040shop/a\134b /mnt rw,relatime shared:1 master:2 - ext4 /dev/vda rw";
        let (device, source) = ("254:0".to_owned(), PathBuf::from(r"/srv/my shop/a\b"));
        assert_eq!(MountLine::parse(line), Some(MountLine { device, source, target: "/mnt".into() }));
        assert_eq!(MountLine::parse("76 49 254:0 /srv"), None);
        assert_eq!(unescape(r"\04"), Path::new(r"\04"));
    }

    fn mount(device: &str, source: &str, target: &str) -> MountLine {
        MountLine { device: device.to_owned(), source: source.into(), target: target.into() }
    }

    #[test]
    fn mount_points_at_and_below_a_folder_are_found() {
        let mounts = |targets: &[&str]| targets.iter().map(|target| mount("1", "/", target)).collect();
        let found = |targets: &[&str]| targets_in(Path::new("/srv/apps"), mounts(targets));
        assert!(found(&["/", "/srv", "/srv/apps-2"]).is_empty());
        let inner = ["/srv/apps", "/srv/apps/photos", "/srv/apps/photos/data"];
        assert_eq!(found(&inner), inner.iter().map(PathBuf::from).collect());
    }

    #[test]
    fn folders_of_applications_are_found_in_any_directory() {
        let names = BTreeSet::from(["shop".to_owned(), "blog".to_owned()]);
        let found = |source: &str| applications_of("applications", &names, &BTreeSet::from([source.into()]));
        let shop = BTreeSet::from(["shop".to_owned()]);
        assert_eq!(found("/var/lib/driftless/applications/shop/data"), shop);
        assert_eq!(found("/applications/shop"), shop, "the directory is a disk of its own");
        for other in ["/srv/applications/shop-2/data", "/srv/shop/applications", "/srv/blog"] {
            assert_eq!(found(other), BTreeSet::new(), "{other}");
        }
    }

    #[test]
    fn folder_is_found_in_the_innermost_mount() {
        let mounts = [
            mount("1", "/", "/"),
            mount("2", "/", "/var"),
            mount("3", "/@state", "/var/lib"),
            mount("4", "/", "/var/library"),
            mount("2", "/old", "/var"),
        ];
        let place = |folder: &str| place_of(Path::new(folder), &mounts).unwrap();
        assert_eq!(place("/srv/agent"), ("1", "/srv/agent".into()));
        assert_eq!(place("/var/agent"), ("2", "/old/agent".into()));
        assert_eq!(place("/var/lib/agent"), ("3", "/@state/agent".into()));
        assert_eq!(place_of(Path::new("/srv"), &[]), None);
    }
}
