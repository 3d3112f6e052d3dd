//! Newer images of services, by the registry or by the agent on another manager, and logins.

use driftless_model::{Attempt, ContentId, UpdateMode};
use driftless_plan::{
    followed_images, image_check, note_running_images, service_digests, with_resolved_images,
};

use super::*;

const WEB: &str = "web:1";

fn newer(letter: char) -> String {
    format!("web:1@sha256:{}", letter.to_string().repeat(64))
}

fn followed() -> Cluster {
    let mut cluster = shop();
    cluster.policy.image_update.mode = UpdateMode::Apply;
    cluster.settle();
    cluster
}

impl Cluster {
    /// Notes what runs, as a round does before it plans.
    fn note(&mut self, has_led: bool) -> bool {
        let images = followed_images(&self.stack, &self.policy);
        let observed = self.seen();
        note_running_images(&mut self.record, &self.stack, &images, &observed, has_led)
    }

    fn resolved(&self) -> Option<&str> {
        self.record.followed_images[WEB].resolved.as_deref()
    }

    /// Deploys an image in place of that of Git.
    fn deploy(&mut self, image: &str) -> Vec<String> {
        let of_git = self.stack.clone();
        self.stack = with_resolved_images(&of_git, &[(WEB, image)].into()).unwrap();
        let steps = self.settle();
        self.stack = of_git;
        steps
    }
}

#[test]
fn digest_of_a_service_is_the_running_one() {
    let mut cluster = followed();
    assert!(!cluster.note(false), "Git names the same image");
    let running = |cluster: &Cluster| {
        let known = &cluster.record.followed_images[WEB];
        known.running.values().cloned().collect::<Vec<String>>()
    };
    assert_eq!(running(&cluster), ["sha256:1"]);
    let image = newer('b');
    cluster.record.followed_images.get_mut(WEB).unwrap().resolved = Some(image.clone());
    let steps = cluster.deploy(&image);
    assert_eq!(steps, [format!("find the digest of {image}"), "update service shop_web".to_owned()]);
    assert!(!cluster.note(true));
    assert_eq!(running(&cluster), [format!("sha256:{}", "b".repeat(64))]);
    assert_eq!(cluster.resolved(), Some(image.as_str()));
}

#[test]
fn platforms_of_all_nodes_count() {
    let mut cluster = followed();
    let node = |platform: &str| SwarmNode { platform: platform.to_owned(), ..SwarmNode::default() };
    for (id, platform) in [("n2", "linux/x86_64"), ("n3", "linux/aarch64"), ("n4", "")] {
        cluster.swarm.nodes.insert(id.to_owned(), node(platform));
    }
    let update = cluster.policy.image_update.clone();
    let observed = cluster.seen();
    let (_, _, platforms) = image_check(&cluster.record, (&cluster.stack, &observed), (WEB, &update));
    assert_eq!(platforms, ["linux/aarch64", "linux/x86_64"].map(|name| Some(name.to_owned())).into());
    // On one host, that of the engine, which the driver knows.
    let (_, _, platforms) =
        image_check(&cluster.record, (&cluster.stack, &Observed::default()), (WEB, &update));
    assert_eq!(platforms, [None].into());
}

#[test]
fn image_of_another_agent_is_taken_over() {
    let mut cluster = followed();
    cluster.note(true);
    let own = cluster.record.clone();
    let (first, second) = (newer('b'), newer('c'));
    cluster.record.followed_images.get_mut(WEB).unwrap().resolved = Some(first.clone());
    cluster.deploy(&first);
    // A restart after the image was resolved and before it was deployed: the agent wrote the service itself.
    let others = cluster.record.clone();
    cluster.record.followed_images.get_mut(WEB).unwrap().resolved = Some(second.clone());
    assert!(!cluster.note(false));
    assert_eq!(cluster.resolved(), Some(second.as_str()));

    // The agent on another manager, also without a record: the service was written by somebody else.
    for record in [own, Record::default()] {
        cluster.record = record;
        assert!(cluster.note(false), "another target");
        assert_eq!(cluster.resolved(), Some(first.as_str()));
        assert!(!cluster.note(false));
    }
    // One that led all the time knows better.
    cluster.record.followed_images.get_mut(WEB).unwrap().resolved = Some(second.clone());
    assert!(!cluster.note(true));
    assert_eq!(cluster.resolved(), Some(second.as_str()));
    cluster.swarm.nodes.get_mut("n1").unwrap().is_leader = false;
    assert!(cluster.note(true), "its node leads no more");
    assert_eq!(cluster.resolved(), Some(first.as_str()));

    // An image that the Swarm itself went back to says nothing.
    cluster.record.followed_images.get_mut(WEB).unwrap().resolved = Some(second.clone());
    cluster.swarm.services.get_mut("shop_web").unwrap().update_state = "rollback_completed".to_owned();
    assert!(!cluster.note(false));
    cluster.swarm.services.get_mut("shop_web").unwrap().update_state = "completed".to_owned();

    // The leader went back to what Git names.
    cluster.swarm.nodes.get_mut("n1").unwrap().is_leader = true;
    cluster.record = others;
    cluster.settle();
    cluster.record = Record::default();
    cluster.note(false);
    assert_eq!(cluster.resolved(), None);
    // An image of another repository, or of another tag, is none that an update resolves.
    for image in [newer('d').replace("web:1", "web:2"), newer('d').replace("web:1", "else/web:1")] {
        cluster.spec("shop_web")["Labels"]["com.docker.stack.image"] = image.into();
        assert!(!cluster.note(false));
    }
}

#[test]
fn digests_of_services_are_those_of_the_revision() {
    let mut cluster = followed();
    let digests = service_digests(&cluster.stack, &cluster.seen());
    let of = |image: &str| (image.to_owned(), format!("{image}@sha256:1"));
    assert_eq!(digests, [of("db:1"), of(WEB)].into());
    cluster.deploy(&newer('b'));
    let digests = service_digests(&cluster.stack, &cluster.seen());
    assert_eq!(digests, [of("db:1")].into(), "a resolved image has its digest in the stack");
}

#[test]
fn another_login_is_sent_with_one_update() {
    let mut cluster = shop();
    let login = |cluster: &mut Cluster, content: &str| {
        let web = cluster.stack.workloads.get_mut(&"web".into()).unwrap();
        web.pull_secrets = [ContentId(content.to_owned())].into();
    };
    login(&mut cluster, "one");
    cluster.settle();
    assert_eq!(cluster.settle(), Vec::<String>::new());
    login(&mut cluster, "two");
    let before = cluster.swarm.services["shop_web"].spec["TaskTemplate"].clone();
    let plan = cluster.round();
    let [step] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
    let Action::Swarm(action) = &step.action else { panic!("{:?}", step.action) };
    let SwarmAction::UpdateService { secrets, .. } = &**action else { panic!("{action:?}") };
    assert_eq!(secrets, &[ContentId("two".to_owned())]);
    assert_eq!(cluster.swarm.services["shop_web"].spec["TaskTemplate"], before, "no task is replaced");
    assert_eq!(cluster.settle(), Vec::<String>::new());
}

#[test]
fn image_for_32_bit_arm_is_placed_on_any_architecture() {
    let mut cluster = Cluster::new([("web", workload("web:1", 1))]);
    let platforms = [("linux", "amd64"), ("linux", "arm"), ("windows", "amd64")];
    let resolved = ResolvedImage {
        image: "web:1@sha256:1".to_owned(),
        platforms: platforms.map(|(os, arch)| (os.to_owned(), arch.to_owned())).into(),
    };
    cluster.record.swarm.get_or_insert_default().images.insert("web:1".to_owned(), resolved);
    cluster.settle();
    let expected = json!([
        {"Architecture": "", "OS": "linux"}, {"Architecture": "amd64", "OS": "linux"},
        {"Architecture": "amd64", "OS": "windows"},
    ]);
    assert_eq!(cluster.swarm.services["shop_web"].spec["TaskTemplate"]["Placement"]["Platforms"], expected);
}

#[test]
fn image_that_no_registry_has_is_adopted_as_it_runs() {
    for (image, present) in [("web:1", "web:1"), ("web", "web:latest")] {
        let mut cluster = shop();
        change(&mut cluster, "web", image);
        cluster.settle();
        // As `docker stack deploy` makes it if no registry answers for the image.
        let spec = cluster.spec("shop_web");
        for name in ["driftless.agent", "driftless.application", "driftless.workload", "driftless.spec"] {
            spec["Labels"].as_object_mut().unwrap().remove(name);
        }
        spec["TaskTemplate"]["ContainerSpec"]["Image"] = present.into();
        cluster.record = Record::default();
        cluster.policy.adopt = Adopt::Auto;
        let next = cluster.now.after(Duration::from_hours(1));
        let attempt = Attempt { count: 1, next, error: "access denied".to_owned() };
        cluster.record.failures.insert(image.to_owned(), attempt);
        assert_eq!(cluster.settle(), ["update service shop_web"]);
        assert_eq!(cluster.swarm.services["shop_web"].image(), Some(present));
        // The next leader asks nobody either.
        cluster.record = Record::default();
        assert_eq!(cluster.settle(), [""; 0]);
    }
}

#[test]
fn image_that_somebody_set_is_not_taken_for_that_of_git() {
    for image in ["web:2@sha256:9", "else/web:1@sha256:9", "web@sha256:9"] {
        let mut cluster = Cluster::new([("web", workload("web:1", 1))]);
        cluster.settle();
        // Docker's client leaves the label with the image of the file as it is.
        let set_by_hand = |cluster: &mut Cluster| {
            cluster.record = Record::default();
            cluster.spec("shop_web")["TaskTemplate"]["ContainerSpec"]["Image"] = image.into();
        };
        let healed = ["find the digest of web:1", "update service shop_web"];
        set_by_hand(&mut cluster);
        assert!(service_digests(&cluster.stack, &cluster.seen()).is_empty(), "no rollback goes to {image}");
        assert_eq!(cluster.settle(), healed, "{image} with a new record");
        // `docker stack deploy` has made the service.
        set_by_hand(&mut cluster);
        cluster.policy.adopt = Adopt::Auto;
        let labels = cluster.spec("shop_web")["Labels"].as_object_mut().unwrap();
        labels.retain(|name, _| !name.starts_with("driftless."));
        assert_eq!(cluster.settle(), healed, "{image} of a service that is adopted");
        assert_eq!(cluster.swarm.services["shop_web"].image(), Some("web:1@sha256:1"));
    }
    // The names of the Docker Hub.
    let mut cluster = Cluster::new([("web", workload("docker.io/library/web", 1))]);
    cluster.settle();
    cluster.record = Record::default();
    cluster.spec("shop_web")["TaskTemplate"]["ContainerSpec"]["Image"] = "web:latest@sha256:1".into();
    assert_eq!(cluster.settle(), [""; 0]);
}

#[test]
fn digest_that_the_leader_resolved_counts_on_other_managers() {
    let mut cluster = Cluster::new([("web", workload("web:1", 1))]);
    cluster.settle();
    // The agent on another manager knows the digest from the state that all share.
    let resolved = cluster.record.swarm.as_ref().unwrap().images.clone();
    cluster.record = Record::default();
    cluster.record.swarm.get_or_insert_default().shared.digests = resolved;
    let by_hand = cluster.spec("shop_web");
    by_hand["TaskTemplate"]["ContainerSpec"]["Image"] = "web:1@sha256:9".into();
    let leader = cluster.swarm.nodes["n1"].clone();
    cluster.swarm.nodes.insert("n2".to_owned(), leader);
    cluster.swarm.nodes.get_mut("n1").unwrap().is_leader = false;
    let made = cluster.round();
    assert!(made.drifts.iter().any(|drift| drift.field.ends_with("Image")), "{made}");
    // Its node leads now.
    cluster.swarm.nodes.get_mut("n1").unwrap().is_leader = true;
    assert_eq!(cluster.settle(), ["update service shop_web"]);
    assert_eq!(cluster.swarm.services["shop_web"].image(), Some("web:1@sha256:1"));
}
