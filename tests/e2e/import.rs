//! Containers that Docker Compose and `docker run` started become files in Git, and an agent that follows them adopts the
//! same containers.

use std::{fs, os::unix::fs::PermissionsExt};

use driftless_model::SyncStatus;
use serde_json::json;

use crate::harness::{Compose, Container, Docker, Leftovers, Settings, Site, free_port, images, is_settled};

const PASSWORD: &str = "it's $ecret \\ \"quoted\"";

/// A container that is removed when this is dropped.
struct Removed {
    docker: Docker,
    name: String,
}

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = self.docker.attempt(&["rm", "-f", &self.name]);
    }
}

#[tokio::test]
async fn imported_containers_are_adopted_without_a_restart() {
    let values = tempfile::NamedTempFile::new().unwrap();
    let more = json!({ "valuesFrom": [{ "file": values.path() }] });
    let mut site = Site::with("import", Settings { more: Some(more), ..Settings::default() });
    let (image, compose) = (images::placeholder(), Compose::v2());
    let loose = site.also("loose");
    let _leftovers = Leftovers { docker: site.docker.clone(), project: site.app.clone() };
    // Dropped first: its volume can be removed only after it.
    let _container = Removed { docker: site.docker.clone(), name: loose.clone() };
    let started = start(&mut site, &compose, &image, &loose);

    let agent = crate::harness::Agent::new(&site.directory(), &site.app, &site.server.url(), &site.settings);
    let sites = site.directory().join("work/sites");
    let folder = sites.to_str().unwrap();
    let import = || agent.command(&["import", folder, &site.app, &loose]).output().unwrap();
    let output = import();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("as in Git, keeps running") && !said.contains("replaced"), "{said}");
    let read = |app: &str, file: &str| fs::read_to_string(sites.join(app).join(file)).unwrap();
    for app in [&site.app, &loose] {
        let text = read(app, "compose.yaml");
        assert!(text.contains("${DB_PASSWORD}") && !text.contains("ecret"), "{text}");
        assert!(!text.contains("PATH:") && !text.contains("pull_policy"), "no defaults: {text}");
        let mode = fs::metadata(sites.join(app).join(".env")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let text = read(&loose, "compose.yaml");
    assert!(
        text.contains("external: true") && text.contains("uid=1000") && !text.contains("runtime:"),
        "{text}"
    );
    let elsewhere = site.directory().join("as-json");
    let words = ["import", elsewhere.to_str().unwrap(), &site.app, "-o", "json"];
    let output = agent.command(&words).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let app = &report["applications"][0];
    assert_eq!((&app["name"], &app["secrets"][0]), (&site.app.as_str().into(), &"DB_PASSWORD".into()));
    assert!(app["adoption"].as_array().unwrap().iter().any(|it| it.as_str().unwrap().contains("as in Git")));
    let before = read(&site.app, "compose.yaml");
    let again = import();
    assert_eq!((again.status.code(), read(&site.app, "compose.yaml")), (Some(2), before));

    fs::write(values.path(), read(&site.app, ".env")).unwrap();
    let commit = site.repository.commit(&[("README.md", "imported")]);
    let tracked = crate::harness::git(&site.directory().join("work"), &["ls-files"]);
    assert!(!tracked.lines().any(|file| file.ends_with("/.env")), "{tracked}");
    let variable = format!("DB_PASSWORD={PASSWORD}");
    let checked = agent.command(&["validate", folder, "--variable", &variable]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));

    let mut agent = agent;
    agent.launch();
    agent.ready().await;
    for app in [&site.app, &loose] {
        let advice = format!("driftless adopt {app}");
        agent
            .until_named(app, "it asks before it adopts", |application| {
                application.status.sync == SyncStatus::OutOfSync
                    && application.status.message.contains(&advice)
            })
            .await;
    }
    let said = agent.said("adopt --all");
    assert!(!said.contains("replaced"), "{said}");
    for app in [&site.app, &loose] {
        agent.until_named(app, "it is settled", |application| is_settled(application, &commit)).await;
    }
    assert_eq!(running(&site, &loose), started, "{said}");
    // It is the agent's own from now on.
    site.docker.run(&["kill", &loose]);
    site.until("it is started again", |docker| docker.container(&loose).filter(|it| it.state() == "running"))
        .await;
}

/// Starts a project and a container that belongs to none. Returns the ids and the times of their start.
fn start(site: &mut Site, compose: &Compose, image: &str, loose: &str) -> Vec<(String, String)> {
    let project = site.directory().join("elsewhere");
    fs::create_dir_all(&project).unwrap();
    let password = PASSWORD.replace('$', "$$");
    let text = json!({
        "services": {
            "web": {
                "image": image,
                "command": ["--name", "50$$ off"],
                "environment": { "DB_PASSWORD": password, "GREETING": "hello" },
                "depends_on": { "db": { "condition": "service_started" } },
                "networks": { "front": { "aliases": ["www"] }, "default": null },
                "restart": "unless-stopped",
                "labels": { "team": "shop" },
                "oom_score_adj": 100,
                "stop_grace_period": "1s",
            },
            "db": {
                "image": image,
                "volumes": ["data:/var/lib/data", "/tmp:/host:ro"],
                "mem_limit": "64m",
                "stop_grace_period": "1s",
                "scale": 2,
            },
        },
        "networks": { "front": { "internal": true } },
        "volumes": { "data": {} },
    });
    fs::write(project.join("compose.yaml"), text.to_string()).unwrap();
    compose.run(&project, &site.app, &["up", "-d"]);
    let volume = format!("{}-loose", site.app);
    // With a label by which it is removed in the end.
    let label = format!("com.docker.compose.project={}", site.app);
    site.docker.run(&["volume", "create", "--label", &label, &volume]);
    let port = format!("127.0.0.1:{}:8080", free_port());
    let (mount, password) = (format!("{volume}:/data"), format!("DB_PASSWORD={PASSWORD}"));
    let options = ["-d", "--name", loose, "-v", &mount, "-p", &port, "-e", &password, "--restart", "always"];
    let more = ["--ulimit", "nofile=1024:2048", "--cap-drop", "NET_RAW", "--stop-timeout", "1", "--init"];
    let tmpfs = ["--tmpfs", "/run:rw,noexec,uid=1000,size=1m", image];
    let id = site.docker.run(&[&["run"], &options[..], &more[..], &tmpfs[..]].concat());
    site.remove_too(id.trim());
    running(site, loose)
}

/// The ids of all containers and the times of their start.
fn running(site: &Site, loose: &str) -> Vec<(String, String)> {
    let filter = format!("label=com.docker.compose.project={}", site.app);
    let ids = site.docker.run(&["ps", "-aq", "--no-trunc", "--filter", &filter]);
    let ids = ids.lines().map(str::to_owned).chain([loose.to_owned()]);
    let found: Vec<Container> = ids.filter_map(|id| site.docker.container(&id)).collect();
    let mut found: Vec<_> = found.iter().map(|it| (it.id(), it.started())).collect();
    found.sort();
    assert_eq!(found.len(), 4);
    found
}
