//! Commands of kubectl that `driftless` does not have: the error names what to use instead.

use clap::{
    builder::StyledStr,
    error::{ContextKind, ContextValue},
};

const IN_GIT: &str =
    "change the manifest in Git: the agent applies each commit, and `driftless sync APP` at once";

const IN_DOCKER: &str =
    "use `docker exec -it CONTAINER COMMAND` on the host; `docker ps` lists the containers";

const ONE_HOST: &str =
    "there is one host and nothing is scheduled; `driftless suspend APP` stops changes of an application";

/// The words of kubectl, each with the advice.
const INSTEAD: &[(&str, &str)] = &[
    ("annotate", IN_GIT),
    ("api-resources", "`driftless get --help` lists the kinds"),
    ("api-versions", "`driftless get --help` lists the kinds"),
    ("apply", IN_GIT),
    ("attach", "use `docker attach CONTAINER` on the host, or `driftless logs -f APP/WORKLOAD`"),
    (
        "autoscale",
        "`driftless scale APP/WORKLOAD NUMBER --until WHEN` runs another number of instances for a time",
    ),
    ("cluster-info", "`driftless doctor` checks the agent and its engine"),
    ("cordon", ONE_HOST),
    ("cp", "use `docker cp` on the host; `docker ps` lists the containers"),
    ("debug", IN_DOCKER),
    ("drain", ONE_HOST),
    ("edit", IN_GIT),
    ("exec", IN_DOCKER),
    ("explain", "docs/kubernetes.md has the table of all fields; `driftless validate` checks manifests"),
    ("expose", IN_GIT),
    ("label", IN_GIT),
    ("patch", IN_GIT),
    (
        "port-forward",
        "publish a port in Git, or reach the pod at its address, which `driftless get pods -o wide` shows",
    ),
    ("replace", IN_GIT),
    ("set", IN_GIT),
    ("taint", ONE_HOST),
    ("top", "use `docker stats` on the host"),
    ("uncordon", ONE_HOST),
    ("version", "use `driftless --version`"),
];

/// Adds the advice to the error about an unknown command.
pub(super) fn advise(error: &mut clap::Error) {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let Some((_, advice)) = INSTEAD.iter().find(|(known, _)| known == word) else { return };
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(*advice)]));
}

#[cfg(test)]
mod tests {
    use super::{INSTEAD, advise};
    use crate::cli::command_line::definition;

    #[test]
    fn commands_of_kubectl_are_answered_with_advice() {
        for (word, advice) in INSTEAD {
            let mut error =
                definition().try_get_matches_from(["driftless", *word, "-f", "web.yaml"]).unwrap_err();
            advise(&mut error);
            let text = error.to_string();
            assert!(text.contains(&format!("unrecognized subcommand '{word}'")), "{text}");
            assert!(text.contains(&format!("tip: {advice}")), "{text}");
        }
        let mut near = definition().try_get_matches_from(["driftless", "statsu"]).unwrap_err();
        advise(&mut near);
        assert!(near.to_string().contains("'status'"), "{near}");
    }

    #[test]
    fn number_of_instances_may_be_an_option() {
        let parsed =
            |words: &[&str]| definition().try_get_matches_from(words).map_err(|error| error.to_string());
        let scale = ["driftless", "scale", "shop/web", "--until", "2h"];
        assert!(parsed(&[&scale[..], &["--replicas=2"]].concat()).is_ok());
        assert!(parsed(&[&scale[..], &["--replicas=2", "2"]].concat()).is_err());
        assert!(parsed(&scale).unwrap_err().contains("required arguments"));
    }
}
