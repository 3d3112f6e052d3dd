//! Images together with the platform that they are asked for.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Container, Platform, Workload};

/// The name of an image, and the platform that is asked for. Pulls of one name for two platforms are two pulls.
///
/// It is stored as it is printed: `web:2`, or `web:2 for linux/arm64`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub struct PlatformImage {
    pub name: String,
    /// `None`: the engine chooses, and the image is for its own platform if the registry has that.
    pub platform: Option<Platform>,
}

/// Between the name and the platform. No name of an image contains a space.
const FOR: &str = " for ";

impl PlatformImage {
    /// The image of a container.
    fn of(container: &Container) -> Self {
        Self { name: container.image.clone(), platform: container.platform() }
    }
}

impl Workload {
    /// The platform that the image of its container is pulled for, if it names one. A build looks at the platform itself.
    pub fn pulled_platform(&self) -> Option<Platform> {
        self.container.platform().filter(|_| self.build.is_none())
    }

    /// The images of its containers as they are pulled or built.
    pub fn own_images(&self) -> impl Iterator<Item = PlatformImage> {
        let image = |container: &Container| match self.build {
            None => PlatformImage::of(container),
            Some(_) => PlatformImage::from(container.image.clone()),
        };
        self.containers().map(image)
    }
}

impl fmt::Display for PlatformImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match &self.platform {
            Some(platform) => write!(f, "{FOR}{platform}"),
            None => Ok(()),
        }
    }
}

impl From<PlatformImage> for String {
    fn from(image: PlatformImage) -> Self {
        image.to_string()
    }
}

impl From<String> for PlatformImage {
    fn from(text: String) -> Self {
        match text.split_once(FOR) {
            Some((name, platform)) => {
                Self { name: name.to_owned(), platform: Some(Platform::parse(platform)) }
            }
            None => Self { name: text, platform: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Attempt, Record, Timestamp};

    #[test]
    fn failed_pulls_of_an_older_agent_are_read() {
        let attempt = Attempt { count: 3, next: Timestamp(5000), error: "no".to_owned() };
        let old = serde_json::json!({ "pulls": { "web:2": attempt } });
        let record: Record = serde_json::from_value(old).unwrap();
        assert_eq!(record.pulls, [("web:2".to_owned().into(), attempt)].into());
    }

    #[test]
    fn image_and_platform_are_read_as_they_are_written() {
        for platform in [None, Some("linux/arm64"), Some("armv7l"), Some("linux/arm/v6"), Some("amd64")] {
            let platform = platform.map(Platform::parse);
            let image = PlatformImage { name: "registry:5000/web:2".to_owned(), platform };
            let stored = serde_json::to_string(&BTreeMap::from([(image.clone(), 1)])).unwrap();
            let read: BTreeMap<PlatformImage, u32> = serde_json::from_str(&stored).unwrap();
            assert_eq!(read, [(image, 1)].into(), "{stored}");
        }
    }
}
