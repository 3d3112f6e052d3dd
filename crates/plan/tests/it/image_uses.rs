use driftless_model::{AppName, BroughtImage, ImageUse, KeepReason, ListedImage, RevisionImages, Timestamp};
use driftless_plan::image_uses;

const HOUR: u64 = 3_600_000;
const NOW: Timestamp = Timestamp(1_000 * HOUR);

fn listed(id: &str, names: &[&str], digests: &[&str]) -> ListedImage {
    ListedImage {
        id: id.to_owned(),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        digests: digests.iter().map(|digest| (*digest).to_owned()).collect(),
        ..ListedImage::default()
    }
}

/// Brought this many hours ago.
fn brought(id: &str, names: &[&str], hours: u64) -> BroughtImage {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    BroughtImage { id: id.to_owned(), names, at: Timestamp(NOW.0 - hours * HOUR), is_pulled: true }
}

fn revision(number: u64, images: &[&str]) -> RevisionImages {
    let images = images.iter().map(|image| (*image).to_owned()).collect();
    RevisionImages { app: AppName::from("shop"), number, images }
}

fn unneeded(uses: &[ImageUse]) -> Vec<&str> {
    uses.iter().filter(|image| image.is_unneeded()).map(|image| image.id.as_str()).collect()
}

#[test]
fn only_images_that_the_agent_brought_are_unneeded() {
    let images = [listed("a", &["web:1"], &[]), listed("b", &["web:2"], &[]), listed("c", &[], &[])];
    let known = [brought("b", &["web:2"], 50), brought("c", &["web:3"], 90)];
    let uses = image_uses(&images, &known, &[], NOW);
    assert_eq!(unneeded(&uses), ["c", "b"], "oldest first");
    assert_eq!(uses[2].kept_for, [KeepReason::NotBrought]);
}

#[test]
fn containers_and_revisions_keep_their_images() {
    let mut used = listed("a", &[], &["web@sha256:a"]);
    used.containers.insert("shop-web-1".to_owned());
    let images = [
        used,
        listed("b", &["web:latest"], &["web@sha256:b"]),
        listed("c", &[], &["web@sha256:c"]),
        listed("d", &["r.example:5000/team/web:1"], &[]),
        listed("e", &["web:old"], &["web@sha256:e"]),
    ];
    let known = ["a", "b", "c", "d", "e"]
        .map(|id| brought(id, &["web:latest", "web:old", "r.example:5000/team/web:1"], 90));
    let revisions = [
        // The tag has moved since, and the revision knows what it meant.
        revision(7, &["docker.io/library/web", "web@sha256:c"]),
        revision(6, &["r.example:5000/team/web:1"]),
    ];
    let uses = image_uses(&images, &known, &revisions, NOW);
    assert_eq!(unneeded(&uses), ["e"]);
    let kept_for = |id: &str| uses.iter().find(|image| image.id == id).unwrap().kept_for.clone();
    let by = |number| vec![KeepReason::Revision { app: AppName::from("shop"), number }];
    assert_eq!(kept_for("a"), [KeepReason::Container { name: "shop-web-1".to_owned() }]);
    assert_eq!([kept_for("b"), kept_for("c"), kept_for("d")], [by(7), by(7), by(6)]);
}

#[test]
fn new_images_and_those_that_others_named_are_kept() {
    let images = [listed("a", &["web:1"], &[]), listed("b", &["web:2", "backup:before-update"], &[])];
    let mut known = vec![brought("a", &["web:1"], 0), brought("b", &["web:2"], 90)];
    let uses = image_uses(&images, &known, &[], NOW);
    let reasons: Vec<&[KeepReason]> = uses.iter().map(|image| image.kept_for.as_slice()).collect();
    let other_name = KeepReason::OtherName { name: "backup:before-update".to_owned() };
    assert_eq!(reasons, [[other_name].as_slice(), &[KeepReason::New]]);
    known[0].at = Timestamp(NOW.0 - HOUR);
    assert_eq!(unneeded(&image_uses(&images, &known, &[], NOW)), ["a"]);
}
