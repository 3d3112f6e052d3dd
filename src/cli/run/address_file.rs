//! The file with the address of the running agent, in its state directory, which no other agent uses. With it
//! `driftless healthcheck` finds an agent whose configuration file has changed, or was refused.

use std::{fs, io::Read as _, path::Path, process};

use nix::{errno::Errno, sys::signal::kill, unistd::Pid};

const NAME: &str = "address";

/// The longest file, in bytes.
const LONGEST: u64 = 256;

/// Notes the URL of this process.
pub(super) fn write(state_dir: &Path, url: &str) {
    let path = state_dir.join(NAME);
    // A full disk does not keep the file of an earlier start, which would be wrong.
    let _ = fs::remove_file(&path);
    if let Err(error) = fs::write(&path, format!("{} {url}\n", process::id())) {
        tracing::warn!(path = %path.display(), %error, "could not write the address for `driftless healthcheck`");
    }
}

/// The URL of the agent that uses a state directory. `None`: there is no file of a running process.
pub(in crate::cli) fn read(state_dir: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(state_dir.join(NAME)).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    // Without the end of the line it is not written completely.
    let (process, url) = text.strip_suffix('\n')?.split_once(' ')?;
    is_running(process.parse().ok()?).then(|| url.to_owned())
}

fn is_running(process: i32) -> bool {
    process > 0 && matches!(kill(Pid::from_raw(process), None), Ok(()) | Err(Errno::EPERM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_that_of_a_running_process() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), None);
        write(folder.path(), "http://127.0.0.1:1");
        write(folder.path(), "https://127.0.0.1:8484");
        assert_eq!(read(folder.path()).as_deref(), Some("https://127.0.0.1:8484"));
        // The kernel gives no process a number like the first.
        for text in ["2147483647 http://a\n", "0 http://a\n", "-1 http://a\n", "1 http://a", "1\n", ""] {
            fs::write(folder.path().join(NAME), text).unwrap();
            assert_eq!(read(folder.path()), None, "{text:?}");
        }
    }
}
