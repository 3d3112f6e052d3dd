//! The uses of each image of the engine, and so the images that the agent brought and nobody needs any more.

use std::{collections::BTreeMap, time::Duration};

use driftless_model::{BroughtImage, ImageUse, KeepReason, ListedImage, RevisionImages, Timestamp};

/// An image that was pulled or built within this time is kept: its container may not be created yet.
const NEW: Duration = Duration::from_hours(1);

/// The reasons to keep each image. Images without one come first, the oldest of them at the beginning.
pub fn image_uses(
    images: &[ListedImage],
    brought: &[BroughtImage],
    revisions: &[RevisionImages],
    now: Timestamp,
) -> Vec<ImageUse> {
    let brought: BTreeMap<&str, &BroughtImage> =
        brought.iter().map(|image| (image.id.as_str(), image)).collect();
    let use_of = |image: &ListedImage| {
        let known = brought.get(image.id.as_str()).copied();
        ImageUse {
            id: image.id.clone(),
            names: image.names.clone(),
            bytes: image.bytes,
            brought_at: known.map(|known| known.at),
            kept_for: reasons(image, known, revisions, now),
        }
    };
    let mut uses: Vec<ImageUse> = images.iter().map(use_of).collect();
    uses.sort_by_cached_key(|image| (!image.is_unneeded(), image.brought_at, image.names.clone()));
    uses
}

fn reasons(
    image: &ListedImage,
    brought: Option<&BroughtImage>,
    revisions: &[RevisionImages],
    now: Timestamp,
) -> Vec<KeepReason> {
    let mut reasons: Vec<KeepReason> =
        image.containers.iter().map(|name| KeepReason::Container { name: name.clone() }).collect();
    let needs = |revision: &&RevisionImages| revision.images.iter().any(|name| image.is_named(name));
    reasons.extend(
        revisions
            .iter()
            .filter(needs)
            .map(|revision| KeepReason::Revision { app: revision.app.clone(), number: revision.number }),
    );
    let Some(brought) = brought else {
        reasons.push(KeepReason::NotBrought);
        return reasons;
    };
    let others = image.names.iter().filter(|name| !brought.names.contains(*name));
    reasons.extend(others.map(|name| KeepReason::OtherName { name: name.clone() }));
    if now.since(brought.at) < NEW {
        reasons.push(KeepReason::New);
    }
    reasons
}
