//! Places whose value is a path on the host: the source of a mount, the file of a config or secret, and the folder that a
//! volume binds; and those that name another Compose file.

use crate::spec::path::Path;

/// Whether an empty value in a text is the start of such a path, so that the path is another one at the root of the host.
/// `at` is its place in the text.
pub(crate) fn is_start(path: &Path<'_>, text: &str, at: usize) -> bool {
    let is_absolute = at == 0 && text.starts_with('/');
    match path {
        Path::Index(Path::Key(Path::Key(Path::Key(Path::Root, "services"), _), "volumes"), _) => {
            is_absolute && text.contains(':')
        }
        Path::Key(Path::Index(Path::Key(_, "volumes"), _), "source")
        | Path::Key(Path::Key(Path::Key(Path::Root, "configs" | "secrets"), _), "file") => is_absolute,
        // Without a device at all, the engine mounts nothing.
        Path::Key(Path::Key(Path::Key(Path::Key(Path::Root, "volumes"), _), "driver_opts"), "device") => {
            is_absolute || text.is_empty()
        }
        Path::Root | Path::Key(..) | Path::Index(..) => false,
    }
}

/// Whether an empty value in a text is the whole source of a mount, so that it has none. `at` is its place in the text.
pub(crate) fn is_source(path: &Path<'_>, text: &str, at: usize) -> bool {
    match path {
        Path::Index(Path::Key(Path::Key(Path::Key(Path::Root, "services"), _), "volumes"), _) => {
            at == 0 && text.starts_with(':')
        }
        Path::Key(Path::Index(Path::Key(_, "volumes"), _), "source") => text.is_empty(),
        Path::Root | Path::Key(..) | Path::Index(..) => false,
    }
}

/// Whether a value is the path of another Compose file.
pub(crate) fn is_compose_file(path: &Path<'_>) -> bool {
    match path {
        Path::Key(Path::Root, "include")
        | Path::Key(Path::Key(Path::Key(Path::Key(Path::Root, "services"), _), "extends"), "file") => true,
        Path::Index(parent, _) => is_compose_file(parent),
        Path::Key(parent, key) => {
            *key == "path" && matches!(parent, Path::Index(..)) && is_compose_file(parent)
        }
        Path::Root => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the value in the place of `_` is the start of a path.
    fn check(path: &Path<'_>, text: &str) -> bool {
        let at = text.find('_').unwrap();
        is_start(path, &text.replace('_', ""), at)
    }

    #[test]
    fn starts_of_paths_are_recognised() {
        let services = Path::Root.key("services");
        let service = services.key("db");
        let mounts = service.key("volumes");
        let mount = mounts.index(0);
        assert!(check(&mount, "_/data:/var/lib/db") && check(&mount, "__/data:/x:ro"));
        for text in ["./_/data:/x", "_data:/x", "/srv/_/data:/x", "data:/x/_", "_/data"] {
            assert!(!check(&mount, text), "{text}");
        }
        assert!(check(&mount.key("source"), "_/data"));
        assert!(!check(&mount.key("source"), "_") && !check(&mount.key("target"), "_/data"));
        for section in ["configs", "secrets"] {
            let section = Path::Root.key(section);
            let file = section.key("key");
            assert!(check(&file.key("file"), "_/key.pem"));
            assert!(!check(&file.key("content"), "_/key.pem"));
        }
        let volumes = Path::Root.key("volumes");
        let volume = volumes.key("data");
        let options = volume.key("driver_opts");
        assert!(check(&options.key("device"), "_/data") && check(&options.key("device"), "_"));
        assert!(!check(&options.key("device"), ":/export/_") && !check(&options.key("o"), "_"));
        assert!(!check(&service.key("command"), "_/bin/sh"));
    }

    #[test]
    fn whole_sources_are_recognised() {
        let services = Path::Root.key("services");
        let service = services.key("db");
        let mounts = service.key("volumes");
        let mount = mounts.index(0);
        assert!(is_source(&mount, ":/media", 0) && is_source(&mount.key("source"), "", 0));
        assert!(!is_source(&mount, "/srv:/media", 0) && !is_source(&mount, "/srv::ro", 5));
        assert!(!is_source(&mount.key("target"), "", 0) && !is_source(&service.key("image"), "", 0));
    }

    #[test]
    fn paths_of_other_compose_files_are_recognised() {
        let include = Path::Root.key("include");
        let item = include.index(1);
        let paths = item.key("path");
        assert!(is_compose_file(&item) && is_compose_file(&paths) && is_compose_file(&paths.index(0)));
        assert!(!is_compose_file(&item.key("env_file")) && !is_compose_file(&item.key("env_file").index(0)));
        let services = Path::Root.key("services");
        let service = services.key("include");
        let extends = service.key("extends");
        assert!(is_compose_file(&extends.key("file")) && !is_compose_file(&extends.key("service")));
        assert!(!is_compose_file(&service) && !is_compose_file(&service.key("image")));
    }
}
