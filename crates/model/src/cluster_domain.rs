//! The domain of a pod that has its own DNS name in a headless Service, so that `hostname -f` prints the name that a cluster
//! would print. It follows from the specification, and is no part of it.

use crate::Container;

const SUFFIX: &str = ".svc.cluster.local";
/// The longest domain that the kernel takes.
const MAX_LENGTH: usize = 64;

impl Container {
    /// The domain of a container without one: `db.default.svc.cluster.local` if it is `db-0` and has the alias
    /// `db-0.db.default.svc.cluster.local`.
    pub fn cluster_domain(&self) -> Option<&str> {
        let host = self.hostname.as_deref()?;
        let aliases = self.networks().values().flat_map(|network| &network.aliases);
        let mut domains = aliases.filter_map(|alias| alias.strip_prefix(host)?.strip_prefix('.'));
        domains.find(|domain| {
            let service = domain.strip_suffix(SUFFIX);
            // The Service and the namespace. The name of a Service itself has the namespace only.
            domain.len() <= MAX_LENGTH && service.is_some_and(|name| name.split('.').count() == 2)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Attachment, NetworkMode};

    #[test]
    fn domain_is_that_of_the_pods_name_in_its_service() {
        let domain = |host: Option<&str>, aliases: &[&str]| {
            let aliases = aliases.iter().map(ToString::to_string).collect();
            let attachment = Box::new(Attachment { aliases, ..Attachment::default() });
            let container = Container {
                hostname: host.map(str::to_owned),
                network_mode: NetworkMode::Networks(BTreeMap::from([("shop".to_owned(), attachment)])),
                ..Container::default()
            };
            container.cluster_domain().map(str::to_owned)
        };
        let all = ["db-0", "db-0.db", "db-0.db.prod", "db-0.db.prod.svc.cluster.local"];
        assert_eq!(domain(Some("db-0"), &all).as_deref(), Some("db.prod.svc.cluster.local"));
        assert_eq!(domain(Some("web"), &all), None);
        assert_eq!(domain(None, &all), None);
        assert_eq!(domain(Some("web"), &["web.prod.svc.cluster.local"]), None, "the name of a Service");
        let long = format!("a.{}.b.svc.cluster.local", "x".repeat(60));
        assert_eq!(domain(Some("a"), &[&long]), None);
    }
}
