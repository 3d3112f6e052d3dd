//! Images that the agent makes itself: another image under the same name is not used.

use std::{collections::BTreeSet, sync::Arc};

use driftless_model::{
    Build, Container, HELPER_IMAGE, Image, ObjectsOfOthers, PROXY_IMAGE, SignatureRule, VerifiedImage,
    Workload, label,
};
use driftless_plan::{Action, Plan, RequiredSignature, Wait, WaitReason};

use crate::fixture::{NOON, Stage, stack, workload};

fn built() -> Workload {
    let mut build = Build { files: "00".into(), context: "app".into(), ..Build::default() };
    build.identify();
    let image = build.reference("shop-web:1");
    Workload { build: Some(build), ..workload(&image, 1) }
}

fn is_image_made(plan: &Plan) -> bool {
    plan.steps
        .iter()
        .any(|step| matches!(step.action, Action::BuildImage { .. } | Action::ImportImage { .. }))
}

#[test]
fn foreign_image_under_the_name_of_an_own_one_is_not_used() {
    for workload in [built(), workload(HELPER_IMAGE, 1), workload(PROXY_IMAGE, 1)] {
        let image = workload.container.image.clone();
        let mut stage = Stage::new(stack([("web", workload)]));
        let foreign = Image { id: "sha256:foreign".into(), ..Image::default() };
        stage.world.observed.images.insert(image.clone(), foreign);
        let plan = stage.round();
        assert!(is_image_made(&plan), "{image}: {plan}");
        assert_ne!(stage.world.observed.images[&image].id, "sha256:foreign");
        crate::prune::settle(&mut stage);
        // The agent's own image is not made again.
        stage.world.observed.instances.clear();
        let plan = stage.round();
        assert!(!is_image_made(&plan) && !plan.steps.is_empty(), "{image}: {plan}");
        let made = plan.steps.iter().find_map(|step| match &step.action {
            Action::CreateInstance(creation) => creation.made_image.clone(),
            _ => None,
        });
        assert_eq!(made.as_ref(), Some(&stage.world.observed.images[&image].id), "{image}: {plan}");
    }
}

fn image_with(labels: &[(&str, &str)]) -> Image {
    let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let defaults = Arc::new(Container { labels, ..Container::default() });
    Image { id: "sha256:foreign".into(), defaults, ..Image::default() }
}

#[test]
fn built_image_with_the_label_of_a_helper_is_not_used() {
    let mut stage = Stage::new(stack([("web", workload(HELPER_IMAGE, 1))]));
    let forged = image_with(&[(label::HELPER, HELPER_IMAGE), (label::BUILD, "ab")]);
    stage.world.observed.images.insert(HELPER_IMAGE.to_owned(), forged);
    let plan = stage.round();
    assert!(is_image_made(&plan), "{plan}");
}

#[test]
fn built_image_that_is_not_shared_is_for_its_own_application() {
    let (own, other) = ("shop", "another");
    for (labels, is_used) in [
        (vec![(label::BUILD, "ab"), (label::BUILT_BY, other), (label::NOT_SHARED, "true")], false),
        (vec![(label::BUILD, "ab"), (label::BUILT_BY, own), (label::NOT_SHARED, "true")], true),
        (vec![(label::BUILD, "ab"), (label::BUILT_BY, other)], true),
        (vec![(label::BUILD, "ab")], true),
    ] {
        let mut stage = Stage::new(stack([("web", workload("postgres:17.7", 1))]));
        assert_eq!(stage.stack.app.as_str(), own);
        stage.world.observed.images.insert("postgres:17.7".to_owned(), image_with(&labels));
        let plan = stage.round();
        let is_pulled = plan.steps.iter().any(|step| matches!(step.action, Action::PullImage { .. }));
        assert_eq!(is_pulled, !is_used, "{labels:?}: {plan}");
        crate::prune::settle(&mut stage);
    }
}

#[test]
fn failed_pull_names_the_application_that_does_not_share() {
    let mut stage = Stage::new(stack([("web", workload("infra-tools", 1))]));
    let labels = [(label::BUILD, "ab"), (label::BUILT_BY, "infra"), (label::NOT_SHARED, "infra")];
    stage.world.observed.images.insert("infra-tools".to_owned(), image_with(&labels));
    stage.world.registry = Some(BTreeSet::new());
    stage.round();
    let plan = stage.round();
    let hint = "; the image of this name on the host was built for the application `infra`, which shares nothing (`otherApplications`)";
    let is_said = |wait: &Wait| wait.is(WaitReason::ImagePullBackOff) && wait.to_string().contains(hint);
    assert!(plan.waits.iter().any(is_said), "{plan}");
}

#[test]
fn build_says_whether_its_application_shares_the_names() {
    let mut workload = built();
    let build = workload.build.as_mut().unwrap();
    build.tags =
        ["shop-web:1", "shop-base", "postgres:17.7", "ghcr.io/infra/shop-x:1", HELPER_IMAGE, "shop/web"]
            .map(str::to_owned)
            .to_vec();
    build.labels.insert(label::HELPER.to_owned(), HELPER_IMAGE.to_owned());
    let tags = ["shop-web:1", "shop-base", "postgres:17.7", "ghcr.io/infra/shop-x:1", "shop/web"];
    for (objects, project) in [(ObjectsOfOthers::Allowed, None), (ObjectsOfOthers::Forbidden, Some("shop"))] {
        let mut stage = Stage::new(stack([("web", workload.clone())]));
        stage.policy.objects_of_others = objects;
        let plan = stage.round();
        let build = plan.steps.iter().find_map(|step| match &step.action {
            Action::BuildImage { build, .. } => Some(build.clone()),
            _ => None,
        });
        let build = build.expect("the image is missing");
        assert_eq!(build.tags, tags);
        assert_eq!(build.labels.get(label::BUILT_BY).map(String::as_str), Some("shop"));
        assert_eq!(build.labels.get(label::NOT_SHARED).map(String::as_str), project);
        assert!(!build.labels.contains_key(label::HELPER));
        assert_eq!(Some(&build.digest), workload.build.as_ref().map(|build| &build.digest));
    }
}

/// A workload that wants no container, and one with an image that is built from that of the first.
fn base_and_app() -> Stage {
    let building = |name: &str, build: Build, replicas: u32| {
        let mut build = Build { context: name.to_owned(), ..build };
        build.identify();
        let image = build.reference(name);
        Workload { build: Some(build), ..workload(&image, replicas) }
    };
    let base = building("shop-base", Build::default(), 0);
    let bases = [("shop-base".to_owned(), base.container.image.clone())].into();
    let app = building("shop-app", Build { bases, ..Build::default() }, 1);
    Stage::new(stack([("app", app), ("base", base)]))
}

fn image_of(stage: &Stage, name: &str) -> String {
    stage.stack.workloads[&name.into()].container.image.clone()
}

#[test]
fn missing_base_of_the_application_is_built_first() {
    let mut stage = base_and_app();
    let plan = stage.round();
    let steps = plan.steps.iter().filter_map(|step| match &step.action {
        Action::BuildImage { image, .. } => Some((image.clone(), step.after.clone())),
        _ => None,
    });
    let builds: Vec<(String, Vec<usize>)> = steps.collect();
    assert_eq!(builds, [(image_of(&stage, "base"), vec![]), (image_of(&stage, "app"), vec![0])], "{plan}");
    crate::prune::settle(&mut stage);
    // The base alone is needed only for a build.
    stage.world.observed.images.remove(&image_of(&stage, "base"));
    assert!(!is_image_made(&stage.round()));
}

#[test]
fn failed_base_holds_back_the_images_built_from_it() {
    let mut stage = base_and_app();
    let base = image_of(&stage, "base");
    stage.world.broken.insert(base.clone());
    stage.round();
    let plan = stage.round();
    let is_said = |wait: &Wait| wait.is(WaitReason::BuildFailed) && wait.to_string().contains(&base);
    assert!(plan.waits.iter().any(is_said) && !is_image_made(&plan), "{plan}");
}

/// A stage whose images must all be signed.
fn guarded(workloads: impl IntoIterator<Item = (&'static str, Workload)>) -> Stage {
    let mut stage = Stage::new(stack(workloads));
    let rule = SignatureRule { images: "*".to_owned(), key: "/etc/driftless/cosign.pub".into() };
    stage.policy.verify_images = vec![rule];
    stage
}

fn is_verified_first(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| matches!(step.action, Action::VerifyImage { .. }))
}

#[test]
fn image_that_another_workload_builds_needs_no_signature() {
    let builds = built();
    let uses = workload(&builds.container.image, 1);
    let mut stage = guarded([("web", builds), ("worker", uses)]);
    for _ in 0..4 {
        let plan = stage.round();
        assert!(!is_verified_first(&plan), "{plan}");
    }
    let running: Vec<&str> =
        stage.world.observed.instances.values().map(|it| it.instance.workload.as_str()).collect();
    assert_eq!(running, ["web", "worker"]);
}

#[test]
fn one_signed_digest_of_an_image_is_enough() {
    let digest = |letter: &str| format!("sha256:{}", letter.repeat(64));
    let mut stage = guarded([("web", workload("web:1", 1))]);
    let digests = ["a", "b"].map(|letter| format!("web@{}", digest(letter))).to_vec();
    let image = Image { id: "sha256:web".into(), digests, ..Image::default() };
    stage.world.observed.images.insert("web:1".to_owned(), image);
    assert!(is_verified_first(&stage.round_cut_short(0, |_| 0)));

    let keys = [("/etc/driftless/cosign.pub".into(), "sha256:key".to_owned())].into();
    stage.record.verified_images.insert(digest("b"), VerifiedImage { keys, at: NOON });
    let plan = stage.round_cut_short(0, |_| 0);
    assert!(!is_verified_first(&plan), "{plan}");
    let signature = plan.steps.iter().find_map(|step| match &step.action {
        Action::CreateInstance(creation) => Some(creation.signature.clone()),
        _ => None,
    });
    assert_eq!(signature, Some(RequiredSignature::Verified { id: "sha256:web".to_owned() }), "{plan}");
}
