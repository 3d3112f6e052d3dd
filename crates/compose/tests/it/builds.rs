//! Images that services build: their names by content, and the images of other services that they are built from.

use driftless_files::MemoryFiles;
use driftless_manifest::render;
use driftless_model::WorkloadName;

use crate::loading::{app, at, stack};

#[test]
fn mounted_image_that_is_built_is_mounted_by_its_content() {
    let compose = "services:\n  app:\n    build: .\n    image: app:1\n  web:\n    image: web\n    volumes:\n      - {type: \
                   image, source: 'app:1', target: /app}\n      - {type: image, source: 'other:1', target: /other}\n";
    let mounted = |dockerfile: &str| -> (String, Vec<String>) {
        let files = [("app/compose.yaml", compose), ("app/Dockerfile", dockerfile)];
        let stack = stack(&files, at("app"));
        let image = |name: &str| &stack.workloads[&WorkloadName::from(name)];
        (image("app").container.image.clone(), image("web").mounted_images().cloned().collect())
    };
    let (first, images) = mounted("FROM scratch\n");
    assert_eq!(images, [first.clone(), "other:1".to_owned()]);
    let (second, images) = mounted("FROM scratch\nENV A=1\n");
    assert_eq!(images, [second.clone(), "other:1".to_owned()]);
    assert_ne!(first, second);
}

/// The images of `base`, `app` and `tool`, which are built from each other.
fn built_images(base: &str, app: &str) -> Vec<String> {
    let compose = "services:\n  app: {build: {context: ./app, args: {BASE: base:1}}}\n  base: {build: ./base, image: 'base:1'}\n  tool: {build: \
                   {context: ./app, dockerfile_inline: 'FROM shop-app'}}\n  web: {image: shop-app}\nname: shop\n";
    let files = [("app/compose.yaml", compose), ("app/base/Dockerfile", base), ("app/app/Dockerfile", app)];
    let stack = stack(&files, at("app"));
    let image = |name: &str| stack.workloads[&WorkloadName::from(name)].container.image.clone();
    assert_eq!(image("web"), image("app"));
    ["base", "app", "tool"].map(image).to_vec()
}

#[test]
fn images_of_other_services_are_part_of_the_content() {
    let (first, second) = ("FROM base:1\nENV A=1\n", "FROM base:1\nENV A=2\n");
    for app in ["ARG BASE\nFROM $BASE\n", "FROM scratch\nCOPY --from=base:1 /x /x\n"] {
        let (one, other) = (built_images(first, app), built_images(second, app));
        assert!(one.iter().zip(&other).all(|(one, other)| one != other), "{one:?} {other:?}");
    }
    let app = "FROM alpine\n";
    let (one, other) = (built_images(first, app), built_images(second, app));
    assert_ne!(one[0], other[0]);
    assert_eq!(one[1..], other[1..]);
}

#[test]
fn target_is_built_from_the_images_of_its_own_stages() {
    let service = |name: &str| format!("  {name}: {{build: {{context: ./all, target: {name}}}}}\n");
    let services: String = ["a", "b", "c"].map(service).concat();
    let compose = format!("name: shop\nservices:\n{services}  tool: {{build: ./tool}}\n");
    let images = |tool: &str| -> Vec<String> {
        let all = "FROM alpine AS a\nFROM shop-a AS b\nCOPY --from=shop-tool /x /x\nFROM shop-b AS c\n";
        let files = [
            ("app/compose.yaml", compose.as_str()),
            ("app/all/Dockerfile", all),
            ("app/tool/Dockerfile", tool),
        ];
        let stack = stack(&files, at("app"));
        let image = |name: &str| stack.workloads[&WorkloadName::from(name)].container.image.clone();
        ["a", "b", "c"].map(image).to_vec()
    };
    let (one, other) = (images("FROM scratch\n"), images("FROM scratch\nENV A=1\n"));
    assert_eq!(one[0], other[0]);
    assert!(one[1] != other[1] && one[2] != other[2], "{one:?} {other:?}");
}

/// With these limits, engines before 23.0 use the classic builder, which builds all stages up to the target.
#[test]
fn build_with_limits_has_the_images_of_all_stages_before() {
    let images = |more: &str, tool: &str| -> String {
        let compose = format!(
            "name: shop\nservices:\n  app: {{build: {{context: ./app, target: app{more}}}}}\n  tool: {{build: ./tool}}\n"
        );
        let files = [
            ("app/compose.yaml", compose.as_str()),
            ("app/app/Dockerfile", "FROM shop-tool AS unneeded\nFROM alpine AS app\n"),
            ("app/tool/Dockerfile", tool),
        ];
        let stack = stack(&files, at("app"));
        stack.workloads[&WorkloadName::from("app")].container.image.clone()
    };
    for (more, depends) in [("", false), (", shm_size: 64m", true), (", ulimits: {nofile: 1024}", true)] {
        let (one, other) = (images(more, "FROM scratch\n"), images(more, "FROM scratch\nENV A=1\n"));
        assert_eq!(one != other, depends, "{more}");
    }
}

#[test]
fn images_that_are_built_from_each_other_are_refused() {
    let compose = "services:\n  a: {build: {context: ., dockerfile_inline: FROM shop-b}}\n  b:\n    build: {context: ., \
                   dockerfile_inline: FROM shop-a}\n  c: {build: {context: ., dockerfile_inline: FROM shop-b}}\nname: shop\n";
    let files = MemoryFiles::new([("app/compose.yaml", compose)]);
    let findings = render(&files, &app(&files, at("app"))).findings;
    let found: Vec<String> =
        findings.iter().filter(|finding| finding.is_error()).map(ToString::to_string).collect();
    let [error] = found.as_slice() else { panic!("{found:?}") };
    assert!(error.starts_with("app/compose.yaml:2:"), "{error}");
    assert!(error.contains("these images are built from each other: a → b → a"), "{error}");
}
