//! Strings that are numbers or booleans at their place: values in quotes, and values that came from a variable.

use crate::spec::{path::Path, scalar};

/// The type that the specification gives to a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    Integer,
    Float,
    Boolean,
}

/// The parts of the longest path at which a value is cast.
const LONGEST: usize = 6;

impl Cast {
    /// The type at a path. `None`: it stays a string.
    pub(crate) fn at(path: &Path<'_>) -> Option<Self> {
        let mut parts = [""; LONGEST];
        let length = collect(path, &mut parts)?;
        match parts.get(..length)? {
            ["services", _, rest @ ..] => service(rest),
            ["networks", _, "external" | "internal" | "attachable" | "enable_ipv4" | "enable_ipv6"]
            | ["volumes" | "secrets" | "configs", _, "external"] => Some(Self::Boolean),
            _ => None,
        }
    }

    /// The text as YAML writes a value of this type. `None`: it is not one.
    pub(crate) fn apply(self, text: &str) -> Option<String> {
        match self {
            Self::Integer => text.parse::<i64>().ok().map(|it| it.to_string()),
            Self::Float => text.parse::<f64>().ok().filter(|it| it.is_finite()).map(|it| it.to_string()),
            Self::Boolean => scalar::boolean(text).map(|it| it.to_string()),
        }
    }

    /// The type, for people.
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Self::Integer => "a whole number",
            Self::Float => "a number",
            Self::Boolean => "true or false",
        }
    }
}

/// The keys of a service that are cast themselves.
const SERVICE_KEYS: &[(&str, Cast)] = &[
    ("cpu_count", Cast::Integer),
    ("cpu_percent", Cast::Float),
    ("cpu_period", Cast::Integer),
    ("cpu_quota", Cast::Integer),
    ("cpu_rt_period", Cast::Integer),
    ("cpu_rt_runtime", Cast::Integer),
    ("cpu_shares", Cast::Integer),
    ("cpus", Cast::Float),
    ("init", Cast::Boolean),
    ("oom_kill_disable", Cast::Boolean),
    ("oom_score_adj", Cast::Integer),
    ("pids_limit", Cast::Integer),
    ("privileged", Cast::Boolean),
    ("read_only", Cast::Boolean),
    ("scale", Cast::Integer),
    ("stdin_open", Cast::Boolean),
    ("tty", Cast::Boolean),
];

fn service(path: &[&str]) -> Option<Cast> {
    match path {
        [key] => SERVICE_KEYS.iter().find(|(known, _)| known == key).map(|(_, cast)| *cast),
        ["deploy", "replicas"]
        | ["deploy", "update_config" | "rollback_config", "parallelism"]
        | ["deploy", "restart_policy", "max_attempts"]
        | ["deploy", "placement", "max_replicas_per_node"]
        | ["healthcheck", "retries"]
        | ["ports", "[]", "target"]
        | ["ulimits", _]
        | ["ulimits", _, "hard" | "soft"] => Some(Cast::Integer),
        ["deploy", "update_config" | "rollback_config", "max_failure_ratio"] => Some(Cast::Float),
        ["depends_on", _, "required" | "restart"]
        | ["healthcheck", "disable"]
        | ["volumes", "[]", "read_only"]
        | ["volumes", "[]", "volume", "nocopy"] => Some(Cast::Boolean),
        _ => None,
    }
}

/// The parts of a path, each index as `[]`. `None`: there are too many.
fn collect<'p>(path: &Path<'p>, parts: &mut [&'p str; LONGEST]) -> Option<usize> {
    let (parent, part) = match path {
        Path::Root => return Some(0),
        Path::Key(parent, key) => (parent, *key),
        Path::Index(parent, _) => (parent, "[]"),
    };
    let at = collect(parent, parts)?;
    *parts.get_mut(at)? = part;
    Some(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::keys::SERVICE;

    #[test]
    fn cast_keys_are_keys_of_a_service() {
        for (name, _) in SERVICE_KEYS {
            assert!(SERVICE.fields.iter().any(|key| key.name == *name), "{name}");
        }
    }

    #[test]
    fn only_listed_paths_are_cast() {
        let services = Path::Root.key("services");
        let web = services.key("web");
        let ports = web.key("ports");
        let first = ports.index(0);
        assert_eq!(Cast::at(&first.key("target")), Some(Cast::Integer));
        assert_eq!(Cast::at(&first.key("published")), None);
        assert_eq!(Cast::at(&web.key("privileged")), Some(Cast::Boolean));
        assert_eq!(Cast::at(&web.key("image")), None);
        assert_eq!(Cast::at(&Path::Root), None);
    }

    #[test]
    fn yaml_1_1_booleans_are_cast() {
        assert_eq!(Cast::Boolean.apply("on").as_deref(), Some("true"));
        assert_eq!(Cast::Boolean.apply("1"), None);
        assert_eq!(Cast::Integer.apply("+05").as_deref(), Some("5"));
        assert_eq!(Cast::Integer.apply(""), None);
        assert_eq!(Cast::Float.apply("0.50").as_deref(), Some("0.5"));
    }
}
