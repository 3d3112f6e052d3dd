//! Test images, made from scratch on the spot: no registry is needed.

use std::{path::Path, process::Command, sync::Mutex};

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

/// Starts whatever command it is given, and stays: what stands for all images of foreign projects. It has a
/// variable, a label and a volume of its own.
pub fn placeholder() -> String {
    static MADE: Mutex<bool> = Mutex::new(false);
    let mut is_made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = "driftless-e2e/placeholder:1.0";
    if !*is_made {
        let context = tempfile::tempdir().unwrap();
        std::fs::copy("/bin/busybox", context.path().join("busybox")).expect("see deploy/test-tools.sh");
        let dockerfile = "FROM scratch\nCOPY busybox /bin/busybox\nCOPY busybox /bin/sh\nENV PATH=/bin FROM_IMAGE=yes\nVOLUME /image-data\nLABEL from=image\nSTOPSIGNAL SIGKILL\nENTRYPOINT [\"/bin/busybox\", \"sh\", \"-c\", \"echo started; while :; do sleep 100000; done\"]\nCMD [\"start\"]\n";
        std::fs::write(context.path().join("Dockerfile"), dockerfile).unwrap();
        // Times of files would make another image each time.
        let file = std::fs::File::options().write(true).open(context.path().join("busybox")).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        Docker::default().run(&["build", "-q", "-t", image, &context.path().display().to_string()]);
        *is_made = true;
    }
    image.to_owned()
}
