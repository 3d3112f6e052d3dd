//! Values that are text only because a variable stood in them, or because of quotes: at some places the specification
//! takes them for numbers and truth values.

use super::reader::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cast {
    Integer,
    Float,
    Boolean,
}

/// The longest path at which a value is cast has so many parts.
const LONGEST: usize = 6;

impl Cast {
    /// What a text is taken for at a path, if not for text.
    pub(super) fn at(path: &Path<'_>) -> Option<Self> {
        let mut parts = [""; LONGEST];
        let length = collect(path, &mut parts)?;
        match parts.get(..length)? {
            ["services", _, rest @ ..] => service(rest),
            ["networks", _, "external" | "internal" | "attachable" | "enable_ipv4" | "enable_ipv6"]
            | ["volumes" | "secrets" | "configs", _, "external"] => Some(Self::Boolean),
            _ => None,
        }
    }

    /// The text as YAML writes such a value.
    pub(super) fn apply(self, text: &str) -> Option<String> {
        match self {
            Self::Integer => text.parse::<i64>().ok().map(|it| it.to_string()),
            Self::Float => text.parse::<f64>().ok().filter(|it| it.is_finite()).map(|it| it.to_string()),
            Self::Boolean => super::scalar::boolean(text).map(|it| it.to_string()),
        }
    }

    pub(super) fn expected(self) -> &'static str {
        match self {
            Self::Integer => "a whole number",
            Self::Float => "a number",
            Self::Boolean => "`true` or `false`",
        }
    }
}

fn service(path: &[&str]) -> Option<Cast> {
    match path {
        [
            "cpu_count" | "cpu_period" | "cpu_quota" | "cpu_rt_period" | "cpu_rt_runtime" | "cpu_shares"
            | "oom_score_adj" | "pids_limit" | "scale",
        ]
        | ["deploy", "replicas"]
        | ["deploy", "update_config" | "rollback_config", "parallelism"]
        | ["deploy", "restart_policy", "max_attempts"]
        | ["deploy", "placement", "max_replicas_per_node"]
        | ["healthcheck", "retries"]
        | ["ports", "[]", "target"]
        | ["ulimits", _]
        | ["ulimits", _, "hard" | "soft"] => Some(Cast::Integer),
        ["cpu_percent" | "cpus"] | ["deploy", "update_config" | "rollback_config", "max_failure_ratio"] => {
            Some(Cast::Float)
        }
        ["init" | "oom_kill_disable" | "privileged" | "read_only" | "stdin_open" | "tty"]
        | ["depends_on", _, "required" | "restart"]
        | ["healthcheck", "disable"]
        | ["volumes", "[]", "read_only"]
        | ["volumes", "[]", "volume", "nocopy"] => Some(Cast::Boolean),
        _ => None,
    }
}

/// The parts of a path, where any index is `[]`. `None`: there are too many.
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

    #[test]
    fn only_the_listed_places_are_cast() {
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
    fn words_of_older_yaml_are_truth_values_there() {
        assert_eq!(Cast::Boolean.apply("on").as_deref(), Some("true"));
        assert_eq!(Cast::Boolean.apply("1"), None);
        assert_eq!(Cast::Integer.apply("+05").as_deref(), Some("5"));
        assert_eq!(Cast::Integer.apply(""), None);
        assert_eq!(Cast::Float.apply("0.50").as_deref(), Some("0.5"));
    }
}
