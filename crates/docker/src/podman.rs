//! Settings that Podman understands differently from Docker. They are refused before the call, because Podman's own message would
//! name something that the manifest does not contain. Everything else that Podman cannot do it reports itself.

use bollard::models as api;

use driftless_model::{Container, PortRange};

/// Podman limits the number of processes by default, which would look like drift. Before 5.6 it takes an empty list of words for no entry
/// point at all, and the image's counts.
pub(crate) fn without_its_defaults(mut body: api::ContainerCreateBody) -> api::ContainerCreateBody {
    body.host_config.get_or_insert_default().pids_limit.get_or_insert(-1);
    if let Some(words) = body.entrypoint.as_mut().filter(|words| words.is_empty()) {
        words.push(String::new());
    }
    body
}

/// Why Podman cannot run a container as specified, if it cannot.
pub(crate) fn unsupported(container: &Container) -> Option<String> {
    if container.security_opt.iter().any(|it| it.starts_with("seccomp={")) {
        let message = "Podman takes a seccomp profile by its path on the host, not by its content";
        return Some(message.to_owned());
    }
    let is_choice = |it: &PortRange| it.first != it.last;
    let PortRange { first, last } = container.ports.iter().filter_map(|it| it.host).find(is_choice)?;
    Some(format!(
        "Podman does not choose one of the ports {first}-{last}: give a single port, and one replica"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Port, Protocol};

    #[test]
    fn processes_are_only_limited_on_request() {
        let body = without_its_defaults(api::ContainerCreateBody::default());
        assert_eq!(body.host_config.unwrap_or_default().pids_limit, Some(-1));
        let host = api::HostConfig { pids_limit: Some(100), ..api::HostConfig::default() };
        let body =
            api::ContainerCreateBody { host_config: Some(host), ..api::ContainerCreateBody::default() };
        assert_eq!(without_its_defaults(body).host_config.unwrap_or_default().pids_limit, Some(100));
    }

    #[test]
    fn image_without_its_entry_point_is_asked_for_in_words() {
        let body =
            api::ContainerCreateBody { entrypoint: Some(Vec::new()), ..api::ContainerCreateBody::default() };
        assert_eq!(without_its_defaults(body).entrypoint, Some(vec![String::new()]));
        assert_eq!(without_its_defaults(api::ContainerCreateBody::default()).entrypoint, None);
    }

    #[test]
    fn seccomp_content_and_port_ranges_are_refused() {
        let port = |first, last| Port {
            container: 80,
            protocol: Protocol::Tcp,
            host_ip: None,
            host: Some(PortRange { first, last }),
        };
        let mut container = Container {
            ports: vec![port(80, 80)],
            security_opt: vec!["seccomp=unconfined".to_owned()],
            ..Container::default()
        };
        assert_eq!(unsupported(&container), None);
        container.ports.push(port(8000, 8002));
        assert!(unsupported(&container).is_some_and(|it| it.contains("8000-8002")));
        container.security_opt = vec![r#"seccomp={"defaultAction":"SCMP_ACT_ALLOW"}"#.to_owned()];
        assert!(unsupported(&container).is_some_and(|it| it.contains("seccomp")));
    }
}
