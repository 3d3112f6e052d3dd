//! The platforms that images are asked for, and those that they are needed for.

use driftless_model::{Image, Platform, PlatformImage, Workload};

use super::Facts;

impl Facts<'_> {
    /// Whether an image is that of a workload's container, and pulled. Images that the agent builds, and those that a container
    /// mounts, are taken as they are.
    fn is_pulled(&self, workload: &Workload, image: &str) -> bool {
        workload.build.is_none() && image == self.image(workload)
    }

    /// The platform that a workload names for an image, in the words of the manifest.
    pub(crate) fn named_platform<'w>(&self, workload: &'w Workload, image: &str) -> Option<&'w String> {
        workload.container.host.platform.as_ref().filter(|_| self.is_pulled(workload, image))
    }

    /// An image with the platform that a workload names for it: what is pulled.
    pub(crate) fn asked_image(&self, workload: &Workload, image: &str) -> PlatformImage {
        let platform = self.named_platform(workload, image).map(|named| Platform::parse(named));
        PlatformImage { name: image.to_owned(), platform }
    }

    /// The platform that a workload needs an image for: the one that it names, or the engine's own where another workload names
    /// one for the same image. `None`: an image for any platform does.
    pub(crate) fn needed_platform(&self, workload: &Workload, image: &str) -> Option<Platform> {
        let named = self.named_platform(workload, image).map(|named| Platform::parse(named));
        let is_named_by_others =
            || self.named_platforms.of(image).next().is_some() && self.is_pulled(workload, image);
        named.or_else(|| self.own_platform().filter(|_| is_named_by_others()))
    }

    /// Whether an image that the engine has is for the platform that a workload needs. A workload that names none does not get
    /// what was pulled for another one.
    pub(super) fn is_for_platform(&self, workload: &Workload, image: &str, found: &Image) -> bool {
        let engine = &self.observed.engine_traits;
        let Some(needed) = self.needed_platform(workload, image) else { return true };
        if workload.container.platform().is_some() {
            return found.is_for(&needed, engine);
        }
        let mut others = self.named_platforms.of(image);
        found.is_native_to(&needed) || !others.any(|other| found.is_for(other, engine))
    }

    /// The engine's own platform, if it is known.
    fn own_platform(&self) -> Option<Platform> {
        let architecture = self.observed.engine_architecture.as_ref()?;
        Some(Platform::parse(&format!("linux/{architecture}")))
    }
}
