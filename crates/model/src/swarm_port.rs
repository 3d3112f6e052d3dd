//! The ports that services of a Swarm publish.

use std::{collections::BTreeSet, fmt};

use serde_json::Value;

/// A port that a service of a Swarm publishes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SwarmPort {
    pub number: u64,
    pub protocol: String,
    /// Whether it is a port of the nodes of its tasks, and not of the routing mesh.
    pub is_of_nodes: bool,
}

impl SwarmPort {
    /// The ports in the `EndpointSpec` or the `Endpoint` of a service, without those whose number the Swarm chooses.
    pub fn listed(endpoint: &Value) -> BTreeSet<Self> {
        let ports = endpoint.get("Ports").and_then(Value::as_array);
        let read = |port: &Value| {
            let text = |key: &str| port.get(key).and_then(Value::as_str);
            Some(Self {
                number: port.get("PublishedPort")?.as_u64().filter(|number| *number > 0)?,
                protocol: text("Protocol").unwrap_or("tcp").to_owned(),
                is_of_nodes: text("PublishMode") == Some("host"),
            })
        };
        ports.into_iter().flatten().filter_map(read).collect()
    }

    /// Whether a Swarm refuses a service with this port while another service has the other one. For ports of nodes it looks for a
    /// node where they are free.
    pub fn collides(&self, other: &Self) -> bool {
        self.number == other.number
            && self.protocol == other.protocol
            && !(self.is_of_nodes && other.is_of_nodes)
    }
}

impl fmt::Display for SwarmPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.protocol)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ports_collide_by_number_and_protocol_but_not_on_nodes() {
        let endpoint = json!({"Ports": [
            {"TargetPort": 80, "PublishedPort": 8080, "Protocol": "tcp", "PublishMode": "ingress"},
            {"TargetPort": 53, "PublishedPort": 8080, "Protocol": "udp", "PublishMode": "host"},
            {"TargetPort": 90},
        ]});
        let ports: Vec<SwarmPort> = SwarmPort::listed(&endpoint).into_iter().collect();
        assert_eq!(ports.iter().map(ToString::to_string).collect::<Vec<_>>(), ["8080/tcp", "8080/udp"]);
        let [tcp, udp] = &ports[..] else { panic!("{ports:?}") };
        assert!(tcp.collides(tcp) && !tcp.collides(udp) && !udp.collides(udp));
        assert!(udp.collides(&SwarmPort { is_of_nodes: false, ..udp.clone() }));
        assert!(SwarmPort::listed(&Value::Null).is_empty());
    }
}
