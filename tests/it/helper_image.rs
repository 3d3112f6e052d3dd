//! The tag of a proxy's image follows its content.

use std::{fs, path::Path};

use driftless_model::PROXY_IMAGE;
use sha2::{Digest, Sha256};

/// Files outside of `crates/proxy` that the program of a proxy consists of.
const FILES: [&str; 2] = ["src/cli/proxy.rs", "crates/model/src/forward.rs"];
/// The libraries that carry connections.
const LIBRARIES: [&str; 6] = ["mio", "nix", "rustix", "socket2", "tokio", "tokio-util"];

/// The code of a file without comments and tests, which change nothing.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

fn digest() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = fs::read_dir(root.join("crates/proxy/src")).unwrap().map(|it| it.unwrap().path());
    let mut files: Vec<_> = folder.chain(FILES.iter().map(|it| root.join(it))).collect();
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        hash.update(code(&file));
    }
    let lock = fs::read_to_string(root.join("Cargo.lock")).unwrap();
    for package in lock.split("[[package]]") {
        let value = |key: &str| package.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")));
        let name = value("name").unwrap_or_default().trim_matches('"');
        if LIBRARIES.contains(&name) {
            hash.update(format!("{name} {}\n", value("version").unwrap()));
        }
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn tag_of_the_proxy_image_follows_its_content() {
    let image = format!("driftless/helper:proxy-{}", digest());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/model/src/helper.rs");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text.replace(PROXY_IMAGE, &image)).unwrap();
    } else {
        assert_eq!(
            PROXY_IMAGE, image,
            "the proxy has changed, so its image needs another tag: UPDATE_DOCS=1 cargo test --test it helper_image::"
        );
    }
}
