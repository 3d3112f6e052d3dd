//! The images that the agent makes of its own executable.

use std::time::Duration;

use crate::{Container, Forwards, ImageRef, NetworkMode, Peer, RestartPolicy, WorkloadName, label};

/// The image of the container that holds the namespaces of a pod or of a proxy. The agent imports it, without a registry.
///
/// The number counts the ways in which it is called, not releases: an upgrade of the agent keeps it, and so replaces
/// no pod.
pub const HELPER_IMAGE: &str = "driftless/helper:2";

/// The image of a proxy. Its tag is a digest of the proxy's source code and libraries, so an upgrade of the agent brings a
/// newer proxy exactly if there is one. `UPDATE_DOCS=1 cargo test --test it helper_image::` writes it.
pub const PROXY_IMAGE: &str = "driftless/helper:proxy-ff9de9446148";

/// The repository of all images that the agent makes of itself.
const HELPER_REPOSITORY: &str = "driftless/helper";
/// The tags of all proxies begin so. Stacks of earlier revisions name older ones.
const PROXY_TAGS: &str = "driftless/helper:proxy-";
/// Proxies of earlier releases.
const FORMER_PROXIES: [&str; 2] = ["driftless/helper:3", "driftless/helper:4"];

/// A new worker of a proxy that has run for so long has taken everything over: it ends if it cannot.
pub const HANDOVER_TIME: Duration = Duration::from_secs(2);

/// Whether the agent makes the image from itself, instead of pulling it.
pub fn is_helper_image(image: &str) -> bool {
    image == HELPER_IMAGE || is_proxy_image(image)
}

/// Whether a name, in any spelling, may be that of an image that this release or another one makes from itself.
///
/// ```
/// use driftless_model::is_helper_name;
///
/// assert!(is_helper_name("docker.io/driftless/helper:9"));
/// assert!(!is_helper_name("ghcr.io/driftless/helper:2") && !is_helper_name("driftless/helpers"));
/// ```
pub fn is_helper_name(image: &str) -> bool {
    let image = ImageRef::parse(image);
    image.registry() == ImageRef::DOCKER_HUB && image.repository() == HELPER_REPOSITORY
}

/// Whether an image under the name of a helper is one that the agent made. A build can give it the label of a helper, and has always
/// that of a build, too. `value` finds the value of a label.
pub fn is_made_helper<'a>(image: &str, value: impl Fn(&str) -> Option<&'a str>) -> bool {
    value(label::HELPER) == Some(image) && value(label::BUILD).is_none()
}

/// Whether containers of the image forward for others.
pub fn is_proxy_image(image: &str) -> bool {
    image.starts_with(PROXY_TAGS) || FORMER_PROXIES.contains(&image)
}

/// The two containers of a proxy: the one that stays, with the names and ports that the caller gives it, and the worker in its
/// network. `proxy` is the workload of the first.
pub fn proxy_containers(forwards: &Forwards, proxy: &WorkloadName) -> [Container; 2] {
    let base = Container {
        restart: RestartPolicy::UnlessStopped,
        read_only: true,
        cap_drop: vec!["ALL".to_owned()],
        security_opt: vec!["no-new-privileges".to_owned()],
        ..Container::default()
    };
    let stays =
        Container { image: HELPER_IMAGE.to_owned(), command: Some(vec!["pause".to_owned()]), ..base.clone() };
    let command = std::iter::once("proxy".to_owned()).chain(forwards.command());
    let worker = Container {
        image: PROXY_IMAGE.to_owned(),
        command: Some(command.collect()),
        network_mode: NetworkMode::Of(Peer::Workload(proxy.clone())),
        // Some engines allow only root to listen on ports below 1024.
        cap_add: vec!["NET_BIND_SERVICE".to_owned()],
        ..base
    };
    [stays, worker]
}

/// The name of the proxy whose worker has this name.
pub fn proxy_of(worker: &str) -> &str {
    worker.strip_suffix("_worker").unwrap_or(worker)
}

/// The name of the workload that forwards for the proxy with this name.
pub fn worker_of(proxy: &str) -> String {
    format!("{proxy}_worker")
}
