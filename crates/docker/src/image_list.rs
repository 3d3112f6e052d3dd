//! The list of images with the containers that use them, and the removal of one.

use std::collections::BTreeSet;

use bollard::query_parameters as query;
use driftless_model::{ImageRef, ListedImage};

use crate::{
    cache::Cache, call_error::CallError, connection::Connection, deadline::DEADLINE, docker::ImageParents,
    error::Error,
};

/// The engine writes this for an image whose name another image has got.
const NO_NAME: &str = "<none>";

/// All images but the intermediate ones of the classic builder.
pub(crate) async fn images(connection: &Connection) -> Result<Vec<ListedImage>, Error> {
    let listed = list(connection).await;
    listed.map_err(|error| error.classify("list the images"))
}

async fn list(connection: &Connection) -> Result<Vec<ListedImage>, CallError> {
    let options = query::ListImagesOptionsBuilder::new().all(false).build();
    let found = connection.call(DEADLINE, connection.docker().list_images(Some(options))).await?;
    let named = |names: Vec<String>| names.into_iter().filter(|name| !name.contains(NO_NAME)).collect();
    let mut images: Vec<ListedImage> = found
        .into_iter()
        .map(|image| ListedImage {
            id: image.id,
            names: named(image.repo_tags),
            digests: named(image.repo_digests),
            bytes: u64::try_from(image.size).unwrap_or_default(),
            containers: BTreeSet::new(),
        })
        .collect();
    // Later than the images: a container that is created in between is found.
    let options = query::ListContainersOptionsBuilder::new().all(true).build();
    let containers = connection.call(DEADLINE, connection.docker().list_containers(Some(options))).await?;
    for container in containers {
        let name = container.names.unwrap_or_default().first().map_or_else(
            || container.id.clone().unwrap_or_default(),
            |name| name.trim_start_matches('/').to_owned(),
        );
        let id = container.image_id.unwrap_or_default();
        // With the image store of containerd the id of a container's image may be that of one platform.
        let reference = container.image.filter(|reference| !reference.is_empty());
        let is_used =
            |image: &ListedImage| image.id == id || reference.as_deref().is_some_and(|it| image.is_named(it));
        images.iter_mut().filter(|image| is_used(image)).for_each(|image| {
            image.containers.insert(name.clone());
        });
    }
    Ok(images)
}

/// Removes an image that no container uses. The engine refuses if one does. It never removes a parent with a name or with another child.
pub(crate) async fn remove_image(
    connection: &Connection,
    cache: &Cache,
    image: &ListedImage,
    parents: ImageParents,
) -> Result<(), Error> {
    let mut result = Ok(());
    for reference in references(image) {
        let removal = connection.docker().remove_image(&reference, Some(removal_options(parents)), None);
        result = match connection.call(DEADLINE, removal).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error.rejected(&format!("remove the image {reference}"))),
        };
        if result.is_err() {
            break;
        }
    }
    cache.invalidate_images();
    result
}

fn removal_options(parents: ImageParents) -> query::RemoveImageOptions {
    query::RemoveImageOptionsBuilder::new().force(false).noprune(parents == ImageParents::Keep).build()
}

/// The references to remove for an image to be gone: its id, or each of its names if they are in several repositories, where the
/// engine refuses the id.
fn references(image: &ListedImage) -> Vec<String> {
    let repository = |name: &String| {
        let name = ImageRef::parse(name);
        (name.registry().to_owned(), name.repository().to_owned())
    };
    let repositories: BTreeSet<_> = image.names.iter().chain(&image.digests).map(repository).collect();
    if repositories.len() <= 1 {
        return vec![image.id.clone()];
    }
    let named: BTreeSet<_> = image.names.iter().map(repository).collect();
    let without_name = image.digests.iter().filter(|digest| !named.contains(&repository(digest)));
    image.names.iter().chain(without_name).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_removed_only_if_asked_for() {
        assert!(removal_options(ImageParents::Keep).noprune);
        let removal = removal_options(ImageParents::Remove);
        assert!(!removal.noprune && !removal.force);
    }

    #[test]
    fn names_in_several_repositories_are_removed_one_by_one() {
        let image = |names: &[&str], digests: &[&str]| ListedImage {
            id: "sha256:1".to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            digests: digests.iter().map(|digest| (*digest).to_owned()).collect(),
            ..ListedImage::default()
        };
        assert_eq!(references(&image(&["web:1", "web:2"], &["web@sha256:a"])), ["sha256:1"]);
        assert_eq!(references(&image(&[], &[])), ["sha256:1"]);
        let several = image(&["web:1", "r.example/web:1"], &["web@sha256:a", "other@sha256:a"]);
        assert_eq!(references(&several), ["r.example/web:1", "web:1", "other@sha256:a"]);
    }
}
