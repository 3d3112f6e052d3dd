//! Test images, made from scratch on the spot: no registry is needed.

use std::{os::unix::fs::PermissionsExt, path::Path, process::Command, sync::Mutex};

use super::Docker;

/// The small HTTP server of `examples/server`, as `driftless-e2e/server:VERSION`.
pub fn server(version: &str) -> String {
    server_as(&Docker::default(), &format!("driftless-e2e/server:{version}"), version)
}

/// The same under any name, on any engine.
pub fn server_as(docker: &Docker, image: &str, version: &str) -> String {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    // A test that failed in here has said why; the others may try for themselves.
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/image.sh");
    let mut command = Command::new(script);
    if let Some(host) = &docker.host {
        command.env("DOCKER_HOST", host);
    }
    let made = command.args([image, version]).output().expect("examples/image.sh can be run");
    assert!(made.status.success(), "could not make {image}: {}", String::from_utf8_lossy(&made.stderr));
    image.to_owned()
}

/// Starts the command that it is given, and stays. It replaces all images of foreign projects. It has a
/// variable, a label and a volume of its own.
pub fn placeholder() -> String {
    static MADE: Mutex<bool> = Mutex::new(false);
    of_busybox(
        &MADE,
        "driftless-e2e/placeholder:1.0",
        &[],
        r#"ENV PATH=/bin FROM_IMAGE=yes
VOLUME /image-data
LABEL from=image
STOPSIGNAL SIGKILL
ENTRYPOINT ["/bin/busybox", "sh", "-c", "echo started; while :; do sleep 100000; done"]
CMD ["start"]
"#,
    )
}

/// Tells what it sees, and stays: see `manifests/look.sh`.
pub fn look() -> String {
    static MADE: Mutex<bool> = Mutex::new(false);
    of_busybox(
        &MADE,
        "driftless-e2e/look:1.0",
        &[("look", include_str!("../manifests/look.sh"))],
        r#"COPY look /bin/look
ENV PATH=/bin FROM_IMAGE=yes
WORKDIR /folder-of-image
VOLUME /image-data
EXPOSE 7070
ENTRYPOINT ["/bin/look", "from", "the image"]
CMD ["by", "default"]
"#,
    )
}

/// An image of busybox and some scripts, made once.
fn of_busybox(made: &Mutex<bool>, image: &str, scripts: &[(&str, &str)], dockerfile: &str) -> String {
    let mut is_made = made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !*is_made {
        let context = tempfile::tempdir().unwrap();
        let busybox = context.path().join("busybox");
        std::fs::copy("/bin/busybox", &busybox).expect("see scripts/test-tools.sh");
        let mut files = vec![busybox];
        for (name, text) in scripts {
            let path = context.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            files.push(path);
        }
        let start = "FROM scratch\nCOPY busybox /bin/busybox\nCOPY busybox /bin/sh\n";
        std::fs::write(context.path().join("Dockerfile"), format!("{start}{dockerfile}")).unwrap();
        // Times of files would make another image each time.
        for file in files {
            let file = std::fs::File::options().write(true).open(file).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        Docker::default().run(&["build", "-q", "-t", image, &context.path().display().to_string()]);
        *is_made = true;
    }
    image.to_owned()
}
