//! Containers that the engine or a tool has changed are read as Git has them.

use bollard::models as api;
use driftless_model::{ContainerId, Health, LimitKind, MountSource, Readiness, State, label};

use super::{Defaults, container::container};
use crate::mount_paths::MountPaths;

fn read(json: serde_json::Value, defaults: &Defaults) -> driftless_model::Container {
    let found: api::ContainerInspectResponse = serde_json::from_value(json).unwrap();
    let paths = MountPaths { content: "/c".into(), secret: "/s".into(), app: "/a".into() };
    container(&found, &paths, defaults)
}

#[test]
fn size_of_a_memory_file_system_as_a_share_is_kept_as_text() {
    let tmpfs = serde_json::json!({ "/tmp": "size=50%,mode=1770", "/run": "size=64m" });
    let found = read(serde_json::json!({ "HostConfig": { "Tmpfs": tmpfs } }), &Defaults::default());
    let sources: Vec<&MountSource> = found.mounts.iter().map(|mount| &mount.source).collect();
    assert_eq!(
        sources,
        [
            &MountSource::Tmpfs { size: Some(64 << 20), mode: None },
            &MountSource::Tmpfs { size: None, mode: Some(0o1770) },
        ]
    );
    let options = &found.host.mount_options;
    assert_eq!(options["/tmp"].tmpfs, ["size=50%"]);
    assert!(!options.contains_key("/run"));
}

#[test]
fn link_in_the_former_place_leads_to_the_same_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (former, present) = (folder.path().join("former"), folder.path().join("present"));
    let paths = MountPaths { content: "/c".into(), secret: "/s".into(), app: present.join("applications") };
    std::fs::create_dir_all(paths.app.join("shop/data")).unwrap();
    let source = former.join("applications/shop/data");
    let json = serde_json::json!({
        "Config": { "Labels": { (label::APPLICATION): "shop" } },
        "HostConfig": { "Mounts": [{ "Type": "bind", "Source": source, "Target": "/data" }] },
    });
    let found: api::ContainerInspectResponse = serde_json::from_value(json).unwrap();
    let path = || container(&found, &paths, &Defaults::default()).mounts[0].app_folder().map(str::to_owned);
    std::fs::create_dir_all(&source).unwrap();
    assert_eq!(path(), None, "a copy is another folder");
    std::fs::remove_dir_all(&former).unwrap();
    assert_eq!(path(), None, "it is gone");
    std::os::unix::fs::symlink(&present, &former).unwrap();
    assert_eq!(path().as_deref(), Some("data"));
}

#[test]
fn labels_of_docker_desktop_are_not_read() {
    let labels = serde_json::json!({ "desktop.docker.io/binds/0/Source": "/home/ada", "tier": "web" });
    let found = read(serde_json::json!({ "Config": { "Labels": labels } }), &Defaults::default());
    assert_eq!(found.labels.into_keys().collect::<Vec<_>>(), ["tier"]);
}

#[test]
fn swap_is_not_read_where_the_kernel_cannot_limit_it() {
    let json = serde_json::json!({ "HostConfig": { "Memory": 1024, "MemorySwap": -1 } });
    assert_eq!(read(json.clone(), &Defaults::default()).resources.memory_swap, Some(-1));
    let defaults = Defaults { unsupported_limits: [LimitKind::MemorySwap].into(), ..Defaults::default() };
    assert_eq!(read(json, &defaults).resources.memory_swap, None);
}

#[test]
fn health_check_of_an_image_does_not_count_in_kubernetes() {
    let paths = MountPaths { content: "/c".into(), secret: "/s".into(), app: "/a".into() };
    let observed = |labels: serde_json::Value| {
        let json = serde_json::json!({
            "Config": { "Labels": labels, "Healthcheck": { "Test": ["CMD", "/check"] } },
            "State": {
                "Status": "running", "Running": true, "StartedAt": "2026-01-01T00:00:00Z",
                "Health": { "Status": "unhealthy" },
            },
        });
        let found: api::ContainerInspectResponse = serde_json::from_value(json).unwrap();
        let instance = super::instance(&ContainerId::from("a"), &found, &paths, &Defaults::default());
        // Its commands are those of the engine, and not of a user.
        assert_eq!(instance.config.healthcheck.as_ref().map(|check| check.test.len()), Some(2));
        (instance.state, instance.readiness)
    };
    let (state, readiness) = observed(serde_json::json!({ (label::AGENT): "ours" }));
    assert!(matches!(state, State::Running { health: Health::Healthy, .. }), "{state:?}");
    assert!(matches!(readiness, Readiness::Ready { .. }), "{readiness:?}");
    let of_compose = serde_json::json!({ (label::AGENT): "ours", (label::compose::PROJECT): "shop" });
    for labels in [of_compose, serde_json::json!({})] {
        let (state, readiness) = observed(labels);
        assert!(matches!(state, State::Running { health: Health::Unhealthy, .. }), "{state:?}");
        assert!(matches!(readiness, Readiness::NotReady { .. }), "{readiness:?}");
    }
}
