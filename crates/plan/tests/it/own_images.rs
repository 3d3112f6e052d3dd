//! Images that the agent makes itself: another image under the same name is not used.

use driftless_model::{Build, HELPER_IMAGE, Image, PROXY_IMAGE, Workload};
use driftless_plan::{Action, Plan};

use crate::stage::{Stage, stack, workload};

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
