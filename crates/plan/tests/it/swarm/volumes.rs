//! Volumes whose driver or options change in Git: nodes keep those that they have.

use driftless_model::{Mount, MountSource, Volume};

use super::*;

fn described(cluster: &mut Cluster, name: &str, options: &[(&str, &str)]) {
    let options = options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    cluster.stack.volumes.insert(name.to_owned(), Volume { options, ..Volume::default() });
    let mount = Mount {
        target: "/data".to_owned(),
        source: MountSource::Volume { name: name.to_owned(), no_copy: false },
        read_only: false,
    };
    cluster.stack.workloads.get_mut(&"db".into()).unwrap().container.mounts = vec![mount];
}

#[test]
fn changed_options_of_a_volume_hold_its_service() {
    let mut cluster = Cluster::new([("db", workload("db:1", 1))]);
    described(&mut cluster, "data", &[("device", ":/one")]);
    cluster.settle();
    described(&mut cluster, "data", &[("device", ":/two"), ("o", "password=hunter2")]);
    change(&mut cluster, "db", "db@sha256:2");
    assert_eq!(cluster.steps(), [""; 0]);
    let waits = cluster.waits();
    assert!(waits.contains("db needs the volume `data` with another driver or other options"), "{waits}");
    assert!(!waits.contains("hunter2"), "{waits}");
    assert_ne!(cluster.assess().sync, SyncStatus::Synced);
    // Another service that Git adds to it waits as well.
    let db = cluster.stack.workloads[&"db".into()].clone();
    cluster.stack.workloads.insert("other".into(), db);
    cluster.stack.swarm.insert("other".into(), SwarmService::default());
    assert_eq!(cluster.steps(), [""; 0]);
    cluster.stack.workloads.remove(&"other".into());
    // With another mode it would be stopped for nothing.
    cluster.stack.swarm.get_mut(&"db".into()).unwrap().mode = SwarmMode::Global;
    assert_eq!(cluster.steps(), [""; 0]);
    cluster.stack.swarm.get_mut(&"db".into()).unwrap().mode = SwarmMode::Replicated;
    // Another name is another volume.
    described(&mut cluster, "data2", &[("device", ":/two")]);
    assert_eq!(cluster.settle(), ["update service shop_db"]);
}

#[test]
fn volume_of_the_default_driver_is_unchanged() {
    let mut cluster = Cluster::new([("db", workload("db:1", 1))]);
    described(&mut cluster, "data", &[]);
    cluster.settle();
    cluster.stack.volumes.get_mut("data").unwrap().driver = Some("local".to_owned());
    change(&mut cluster, "db", "db@sha256:2");
    assert_eq!(cluster.settle(), ["update service shop_db"]);
    // An external one is described by its owner.
    described(&mut cluster, "data", &[("device", ":/one")]);
    cluster.stack.volumes.get_mut("data").unwrap().external = true;
    change(&mut cluster, "db", "db@sha256:3");
    assert_eq!(cluster.settle(), ["update service shop_db"]);
}
