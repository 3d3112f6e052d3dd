//! The identity of the host: the file's name and labels, and what the machine itself says.

use std::collections::BTreeMap;

use driftless_model::HostIdentity;

use crate::{
    settings::{Repository, Settings},
    url::HOST_PLACEHOLDER,
};

impl Settings {
    /// Gives the host the name and the labels that the file does not have, and puts its name into the paths of
    /// repositories and applications. The name is the hostname, with `-` for letters that a name cannot have; the labels
    /// are `arch` and `os` of this program, by the words of Docker, and `engine: docker`. Messages name the same host unless
    /// `notifications.host` has another name.
    pub fn identify(&mut self, hostname: &str) {
        if self.host.name.is_empty() {
            self.host.name = name_of(hostname);
        }
        for (label, value) in machine_labels() {
            self.host.labels.entry(label.to_owned()).or_insert_with(|| value.to_owned());
        }
        if !self.host.name.is_empty() {
            self.notifications.host.get_or_insert_with(|| self.host.name.clone());
        }
        for repository in &mut self.repositories {
            repository.host.clone_from(&self.host);
            // Without a name it would be the folder of all hosts. The check refuses what is left of it.
            if self.host.name.is_empty() {
                continue;
            }
            if repository.path.contains(HOST_PLACEHOLDER) {
                let path = repository.path.replace(HOST_PLACEHOLDER, &self.host.name);
                repository.path_of_hosts = Some(std::mem::replace(&mut repository.path, path));
            }
            for application in &mut repository.applications {
                if application.path.contains(HOST_PLACEHOLDER) {
                    let path = application.path.replace(HOST_PLACEHOLDER, &self.host.name);
                    application.path_of_hosts = Some(std::mem::replace(&mut application.path, path));
                }
            }
        }
    }
}

impl Repository {
    /// The host as its own configuration has it, without the labels that `driftless.yaml` in Git adds.
    pub fn own_host(&self) -> &HostIdentity {
        self.host_without_git.as_ref().unwrap_or(&self.host)
    }

    /// These settings as a host of this name with these labels has them.
    #[must_use]
    pub fn for_host(&self, host: &HostIdentity) -> Self {
        let path_of_host = |written: Option<&String>, path: &String| {
            // Without a name it would be the folder of all hosts.
            let written = written.filter(|_| !host.name.is_empty());
            written.map_or_else(|| path.clone(), |written| written.replace(HOST_PLACEHOLDER, &host.name))
        };
        let path = path_of_host(self.path_of_hosts.as_ref(), &self.path);
        let mut settings = Self { path, host: host.clone(), ..self.clone() };
        for application in &mut settings.applications {
            application.path = path_of_host(application.path_of_hosts.as_ref(), &application.path);
        }
        settings
    }
}

/// The labels that this machine has as a host, unless its configuration says otherwise.
pub fn machine_labels() -> [(&'static str, &'static str); 3] {
    [("arch", arch()), ("os", std::env::consts::OS), ("engine", "docker")]
}

/// The architecture of this program, by the words of Docker.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The name of a host after its hostname.
fn name_of(hostname: &str) -> String {
    let letter =
        |letter: char| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
    let name: String = hostname.chars().map(letter).take(253).collect();
    let name = name.trim_start_matches(['.', '-', '_']);
    if HostIdentity::is_name(name) { name.to_owned() } else { String::new() }
}

/// A host with these labels in addition to its own, which win.
pub(super) fn with_labels(host: &HostIdentity, labels: &BTreeMap<String, String>) -> HostIdentity {
    let mut host = host.clone();
    for (label, value) in labels {
        host.labels.entry(label.clone()).or_insert_with(|| value.clone());
    }
    host
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Reference;

    #[test]
    fn hostname_becomes_a_name_of_a_host() {
        for (hostname, name) in
            [("nas", "nas"), ("web-1.example.com", "web-1.example.com"), ("-my pc", "my-pc")]
        {
            assert_eq!(name_of(hostname), name);
        }
        assert_eq!(name_of("--"), "");
    }

    #[test]
    fn folder_of_a_host_without_a_name_is_refused() {
        for path in ["${host}", "hosts/${host}"] {
            let text =
                format!("repositories: [{{url: https://git.example.com/infra.git, path: {path:?}}}]\n");
            let mut settings = Settings::parse("driftless.yaml", &text).unwrap();
            let of_options =
                Settings::for_repository("https://git.example.com/infra.git", path, Reference::Head);
            assert_eq!(
                of_options.unwrap().repositories[0].path,
                path,
                "it is checked before the host is known"
            );
            settings.identify("");
            let findings = settings.check_host("the command line");
            let found: Vec<String> = findings.iter().map(ToString::to_string).collect();
            assert!(found.len() == 1 && found[0].contains("set `host.name`"), "{path}: {found:?}");
            settings.identify("nas");
            assert_eq!(settings.repositories[0].path, path.replace("${host}", "nas"));
            assert_eq!(settings.check_host("the command line"), []);
        }
    }

    #[test]
    fn settings_of_another_host_have_its_folders() {
        let text = "repositories: [{url: https://git.example.com/infra.git, path: 'sites/${host}', applications: \
                    [{path: shop}, {path: '${host}'}]}]\n";
        let mut settings = Settings::parse("driftless.yaml", text).unwrap();
        settings.identify("nas");
        let web = HostIdentity { name: "web".to_owned(), labels: BTreeMap::new() };
        let other = settings.repositories[0].for_host(&web);
        let paths: Vec<&str> =
            other.applications.iter().map(|application| application.path.as_str()).collect();
        assert_eq!(other.path, "sites/web");
        assert_eq!(paths, ["sites/web/shop", "sites/web/web"]);
    }

    #[test]
    fn messages_name_the_host_unless_they_have_another_name() {
        let host_of_messages = |text: &str| {
            let text = format!("repositories: [{{url: https://git.example.com/infra.git}}]\n{text}");
            let mut settings = Settings::parse("driftless.yaml", &text).unwrap();
            settings.identify("3f2a9c1d0b7e");
            settings.notifications.host
        };
        assert_eq!(host_of_messages("").as_deref(), Some("3f2a9c1d0b7e"));
        assert_eq!(host_of_messages("host: {name: nas}").as_deref(), Some("nas"));
        assert_eq!(
            host_of_messages("host: {name: nas}\nnotifications: {host: home}").as_deref(),
            Some("home")
        );
    }
}
