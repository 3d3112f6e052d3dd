//! What Podman's socket takes for something else than Docker does. It is refused in our own words before it is asked for,
//! because Podman's answer would speak of something that nobody wrote. What else it cannot do it may say itself.

use bollard::models as api;

use driftless_model::{Container, PortRange};

/// Podman limits the processes of whatever does not say otherwise, and that would look like a change by hand.
pub(crate) fn without_its_defaults(mut body: api::ContainerCreateBody) -> api::ContainerCreateBody {
    body.host_config.get_or_insert_default().pids_limit.get_or_insert(-1);
    body
}

/// What of a container Podman would misunderstand, if anything.
pub(crate) fn misunderstood(container: &Container) -> Option<String> {
    if container.security_opt.iter().any(|it| it.starts_with("seccomp={")) {
        let message = "Podman takes a seccomp profile by its path on the host, and not by its content";
        return Some(message.to_owned());
    }
    let is_choice = |it: &PortRange| it.first != it.last;
    let PortRange { first, last } = container.ports.iter().filter_map(|it| it.host).find(is_choice)?;
    Some(format!("Podman does not choose one of the ports {first}-{last}; write one port, and one replica"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::{Port, Protocol};

    #[test]
    fn processes_are_limited_only_where_that_is_asked_for() {
        let body = without_its_defaults(api::ContainerCreateBody::default());
        assert_eq!(body.host_config.unwrap_or_default().pids_limit, Some(-1));
        let host = api::HostConfig { pids_limit: Some(100), ..api::HostConfig::default() };
        let body =
            api::ContainerCreateBody { host_config: Some(host), ..api::ContainerCreateBody::default() };
        assert_eq!(without_its_defaults(body).host_config.unwrap_or_default().pids_limit, Some(100));
    }

    #[test]
    fn podman_rejects_profiles_and_port_choices_only() {
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
        assert_eq!(misunderstood(&container), None);
        container.ports.push(port(8000, 8002));
        assert!(misunderstood(&container).is_some_and(|it| it.contains("8000-8002")));
        container.security_opt = vec![r#"seccomp={"defaultAction":"SCMP_ACT_ALLOW"}"#.to_owned()];
        assert!(misunderstood(&container).is_some_and(|it| it.contains("seccomp")));
    }
}
