//! A full disk under the agent's state: what runs is kept right, the trouble is said, and with room it goes on.

use std::{fs, io::Write, path::PathBuf, process::Command};

use crate::harness::{Site, images, skip};

/// A small file system of its own, unmounted in the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` for who may not mount.
    fn at(path: PathBuf) -> Option<Self> {
        fs::create_dir_all(&path).unwrap();
        let options = "size=6m,mode=0700";
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&path).status();
        mounted.is_ok_and(|it| it.success()).then_some(Self(path))
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filling")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        while file.write_all(&[0]).is_ok() {}
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("filling")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn full_disk_keeps_containers_and_sync_resumes_with_room() {
    let site = Site::new("disk");
    let Some(disk) = SmallDisk::at(site.directory().join("state")) else {
        return skip("root", "mounting a small file system needs root");
    };
    let compose = |greeting| {
        let image = images::server("1.0");
        format!("services: {{web: {{image: {image}, environment: {{GREETING: {greeting}}}}}}}")
    };
    let agent = site.running(&compose("one")).await;
    let first = site.container("web").id();

    disk.fill();
    site.docker.run(&["rm", "-f", &site.name("web")]);
    let healed = site.replaced("web", &first).await.id();
    agent.until("the trouble is said", |it| it.status.message.contains("full")).await;
    let second = site.compose(&compose("two"));
    agent.sync().await;
    let is_full = |it: &driftless_model::StatusCondition| it.kind == "SourceReady" && it.reason == "DiskFull";
    let git = agent.until("Git's trouble is said", |it| it.status.conditions.iter().any(is_full)).await;
    assert!(git.status.message.contains("No space left on device"), "{}", git.status.message);
    assert_eq!(site.container("web").id(), healed, "what runs is left as it is");

    disk.make_room();
    agent.sync().await;
    let application = agent.settled(&second).await;
    assert_eq!(application.status.message, "", "nothing is wrong any more");
    assert_eq!(site.container("web").variable("GREETING").as_deref(), Some("two"));
    let history: Vec<String> =
        agent.history().await.into_iter().map(|revision| revision.commit.id.to_string()).collect();
    assert!(history.contains(&second), "{history:?}");
}
