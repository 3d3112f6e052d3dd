//! Reads one image of the engine, with the platforms that it has it for.

use std::{collections::BTreeSet, sync::Arc};

use bollard::models as api;
use driftless_model::{Image, Platform, Timestamp};
use http::Method;

use crate::{
    call_error::CallError,
    connection::Connection,
    deadline::{DEADLINE, within},
    from_engine,
    transport::ApiVersion,
};

/// From this version on, the engine lists the platforms of an image in the containerd store.
const MANIFESTS: ApiVersion = ApiVersion::new(1, 48);

/// An image, by name or id; `None` if the engine does not have it. The reference must be one that can stand in a path.
pub(crate) async fn find_image(connection: &Connection, reference: &str) -> Result<Option<Image>, CallError> {
    let version = connection.api_version().await?;
    let is_containerd_store = connection.defaults().is_containerd_store;
    let found = if is_containerd_store && version >= MANIFESTS {
        let path = format!("/images/{reference}/json?manifests=true");
        within(DEADLINE, connection.transport().send_json(Method::GET, &path, Vec::new())).await
    } else {
        connection.call(DEADLINE, connection.docker().inspect_image(reference)).await
    };
    match found {
        Ok(found) => Ok(Some(image(found, is_containerd_store))),
        Err(error) if matches!(error.code(), Some(400 | 404)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn image(found: api::ImageInspect, is_containerd_store: bool) -> Image {
    Image {
        defaults: Arc::new(from_engine::image_defaults(&found)),
        platforms: platforms(&found, is_containerd_store),
        id: found.id.unwrap_or_default(),
        tagged: found.metadata.and_then(|metadata| Timestamp::parse(&metadata.last_tag_time?)),
        digests: found.repo_digests.unwrap_or_default(),
    }
}

/// The engine describes the image for one platform. In the containerd store it may have others, which an older engine does not
/// tell, so that nothing is known then.
fn platforms(found: &api::ImageInspect, is_containerd_store: bool) -> BTreeSet<Platform> {
    if let Some(manifests) = &found.manifests {
        let available = manifests.iter().filter(|manifest| manifest.available);
        let data = available.filter_map(|manifest| manifest.image_data.as_ref());
        return data
            .map(|data| &data.platform)
            .filter_map(|it| parse(&it.os, &it.architecture, &it.variant))
            .collect();
    }
    let own = parse(&found.os, &found.architecture, &found.variant);
    own.filter(|_| !is_containerd_store).into_iter().collect()
}

#[expect(clippy::ref_option, reason = "the engine's fields")]
fn parse(os: &Option<String>, architecture: &Option<String>, variant: &Option<String>) -> Option<Platform> {
    let given = |part: &Option<String>| part.clone().filter(|part| !part.is_empty());
    let (os, architecture) = (given(os)?, given(architecture)?);
    let parts: Vec<String> = [os, architecture].into_iter().chain(given(variant)).collect();
    Some(Platform::parse(&parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(json: serde_json::Value, is_containerd_store: bool) -> Vec<String> {
        let found = serde_json::from_value(json).unwrap();
        platforms(&found, is_containerd_store).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn platforms_of_an_image_are_read() {
        let own = serde_json::json!({ "Os": "linux", "Architecture": "arm", "Variant": "v7" });
        assert_eq!(texts(own.clone(), false), ["linux/arm/v7"]);
        assert!(texts(own, true).is_empty(), "an older engine does not tell all of them");
        assert!(texts(serde_json::json!({ "Os": "", "Architecture": "amd64" }), false).is_empty());
        let manifest = |available: bool, architecture: &str| {
            serde_json::json!({
                "ID": "sha256:1", "Descriptor": {}, "Available": available, "Kind": "image",
                "Size": { "Total": 1, "Content": 1 },
                "ImageData": {
                    "Platform": { "os": "linux", "architecture": architecture }, "Containers": [], "Size": { "Unpacked": 0 },
                },
            })
        };
        let manifests = [manifest(true, "amd64"), manifest(false, "s390x"), manifest(true, "arm64")];
        let found = serde_json::json!({ "Os": "linux", "Architecture": "amd64", "Manifests": manifests });
        assert_eq!(texts(found, true), ["linux/amd64", "linux/arm64"]);
    }
}
